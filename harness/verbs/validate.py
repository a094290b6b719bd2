"""The verb `validate`: everything that needs a TPU, tried in one go."""

from pathlib import Path

from harness.hardware import DEFAULT_CHIP
from harness.records.validation import Validation
from harness.shell.arguments import minutes
from harness.shell.parser import Parser
from harness.shell.verb import Document, Verb


class Validate(Verb):
    place = "machine", 130
    line = "everything that needs a TPU, tried in one go"
    example = "validate --minutes 30"
    description = (
        "Tries everything that needs a device: a measured attempt, an A/A control, captures and their lines, "
        "snapshots, a capture through the profiler's server, and, for each template and example of this chip except "
        "suites, the measured and the simulated time of its kernel. The steps are the project's device "
        "tests (`ratchet.sh test -m device`), each with a time limit; if no time is left for a step, it is not run. "
        "Writes a page, and an archive of the logs, captures and kernels. Exit code 1 if a step failed or was "
        "not run."
    )
    examples = "ratchet.sh validate; ratchet.sh validate --on cpu --minutes 10"
    takes_contest = False
    document = Document(1, Validation)

    def configure(self, parser: Parser) -> None:
        parser.choice(
            "--on",
            ["tpu", "cpu"],
            "cpu: try the command itself, on small kernels; its times say nothing about a TPU (tpu)",
        )
        parser.chip(f"with --on cpu, the chip that kernels are compiled for ({DEFAULT_CHIP})")
        parser.add_argument("--minutes", type=minutes, default=30.0, help="minutes that the validation may take (30)")
        parser.option("--out NAME", "write NAME.md and NAME.tar.gz (validate-CHIP in this folder)", type=Path)
        parser.json("the findings as JSON")
        parser.quiet()
