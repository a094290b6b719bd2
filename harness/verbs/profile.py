"""The verb `profile`: capture kernel.py on its own, for XProf."""

from argparse import ArgumentTypeError

from harness.loop import kept_captures
from harness.shell.arguments import at_least
from harness.shell.parser import Parser
from harness.shell.tables import TABLES
from harness.shell.verb import Verb
from harness.workbench.profiles.places import PROFILE_DATA

_SERVER_PORT = 9999


def _steps(text: str) -> tuple[int, int]:
    """The first and the last step in `10:20`."""
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise ArgumentTypeError(f"expected the first and the last step, such as 10:20, got {text!r}")
    return int(first), int(last)


class Profile(Verb):
    place = "profile", 40
    line = "capture kernel.py on its own, for XProf"
    example = "profile --calls 3"
    description = (
        "Captures a few calls of kernel.py on its own with JAX's profiler, after a warm-up. Each call has an "
        f"annotation. The capture goes to {PROFILE_DATA}/plugins/profile, where XProf and `ratchet.sh xprof` find it. "
        f"That folder keeps {kept_captures.RULE}."
    )
    examples = "ratchet.sh profile --mode TRACE_COMPUTE_AND_SYNC; ratchet.sh profile --serve 9999"
    document = TABLES

    def configure(self, parser: Parser) -> None:
        from harness.sandbox.profiles import TRACE_MODES

        parser.chip("the chip that kernel.py is for (default: the contest's)")
        parser.member()
        parser.choice(
            "--on",
            ["cpu", "tpu", "gpu"],
            "where kernel.py runs (default: the chip if it is here, else the CPU, whose times say nothing about a TPU)",
        )
        parser.choice(
            "--mode", TRACE_MODES, "what the profiler records on a TPU (TRACE_COMPUTE); no effect on other devices"
        )
        parser.option("--calls N", "calls in the capture (3)", type=at_least(1), default=3)
        parser.option("--warmup N", "calls before the capture (5)", type=at_least(1), default=5)
        parser.option(
            "--serve PORT",
            f"run kernel.py until Ctrl-C, with JAX's profiler server for XProf's page on PORT ({_SERVER_PORT})",
            type=int,
            nargs="?",
            const=_SERVER_PORT,
        )
        parser.option(
            "--steps A:B",
            "run kernel.py repeatedly, each run a step, and capture steps A to B; with --serve it runs on afterwards",
            type=_steps,
        )
        parser.option("--snapshots N", "take N snapshots of the running kernel", type=at_least(1))
        parser.option("--every S", "seconds between snapshots (2)", type=float, default=2.0)
        parser.json("JSON instead of text")
        parser.quiet()
