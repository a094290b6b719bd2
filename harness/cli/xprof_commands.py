"""The verb `xprof` and its subcommands: what each says about itself, the captures it wants and the options it takes."""

import argparse
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.cli import published
from harness.cli.arguments import (
    Parser,
    add_contest,
    add_json,
    add_needless_quiet,
    add_only_reads,
    at_least,
    did_you_mean,
)
from harness.cli.verb import Verb
from harness.errors import UsageError
from harness.workbench.profiles import places, remote
from harness.workbench.profiles.classes import FRAMEWORK_CATEGORIES
from harness.workbench.profiles.places import PROFILE_DATA


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing beyond the places and --json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One subcommand; `arguments` adds its own options to the parser.

    `places` names the captures that it wants. One that stands alone may be left out: it is the newest then.
    """

    name: str
    sentence: str
    example: str
    arguments: Callable[[argparse.ArgumentParser], None] = _no_arguments
    places: tuple[str, ...] = ("where",)

    def parser(self) -> Parser:
        """What it understands."""
        parser = Parser(
            prog=f"ratchet.sh xprof {self.name}",
            description=f"{self.sentence[0].upper()}{self.sentence[1:]}.",
            epilog=f"example: {self.example}",
            allow_abbrev=False,
        )
        add_contest(parser)
        add_only_reads(parser)
        for name in self.places:
            many = "?" if len(self.places) == 1 else None
            default = " (default: the newest capture of the contest)" if many else ""
            parser.add_argument(name, nargs=many, help=f"{places.EXPECTED}{default}")
        self.arguments(parser)
        add_json(parser, "JSON instead of text")
        add_needless_quiet(parser)
        return parser


def _list_runs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log_directory", nargs="?", help=f"a log directory (default: {PROFILE_DATA} of the contest)")


def _rows(text: str) -> int | None:
    """How many rows at most, None for all."""
    return at_least(0)(text) or None


def _top(default: int) -> Callable[[argparse.ArgumentParser], None]:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--top", type=_rows, default=default, metavar="N", help=f"how many rows at most; 0: all ({default})"
        )

    return add


def _framework_ops_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--category", action="append", default=[], metavar="NAME",
        help=f"only these, may be repeated: {', '.join(FRAMEWORK_CATEGORIES)}",
    )  # fmt: skip
    _top(30)(parser)


def _mfu_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gbs", type=float, default=None, metavar="N", help="global batch size, in sequences")
    parser.add_argument("--seq", type=float, default=None, metavar="N", help="tokens in a sequence")
    parser.add_argument(
        "--flops-per-token", type=float, default=None, metavar="N",
        help="of the model, forward and backward (6e9); without these three only the trace's own count is used",
    )  # fmt: skip
    parser.add_argument(
        "--num-chips", type=at_least(1), default=None, metavar="N",
        help="devices that share the batch (those in the capture); a chip may be two",
    )  # fmt: skip


def _overlap_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mesh", default=None, metavar="A=N,B=M",
        help="name the axes of the mesh, the last one varying fastest (default: what the groups fit)",
    )  # fmt: skip


def _scopes_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--depth", type=at_least(1), default=4, metavar="N", help="how many scopes deep (4)")
    parser.add_argument(
        "--at-least", type=float, default=0.01, metavar="SHARE", help="leave out what takes less of the time (0.01)"
    )


def _memory_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--top", type=at_least(1), default=10, metavar="N", help="how many buffers to list (10)")
    parser.add_argument("--module", default=None, metavar="NAME", help="the module (default: the one with most memory)")


def _graph_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", required=True, metavar="NAME", help="the operation, such as fusion.3")
    parser.add_argument("--depth", type=at_least(1), default=2, metavar="N", help="how many operations away (2)")
    parser.add_argument("--dot", action="store_true", help="print it in DOT, for graphviz")
    parser.add_argument("--module", default=None, metavar="NAME", help="the module, where several have the operation")


def _url_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", default=None, metavar="URL",
        help=f"an XProf server elsewhere (default: {remote.URL_VARIABLE} of the environment, else {remote.LOCAL})",
    )  # fmt: skip


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", default=None, metavar="FILE", help=f"where to (default: {PROFILE_DATA}/RUN.perfetto.json.gz)"
    )


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log_directory", nargs="?", help=f"a log directory (default: {PROFILE_DATA} of the contest)")
    parser.add_argument("--port", type=int, default=remote.PORT, help=f"the port ({remote.PORT}; 0: any)")


COMMANDS = (
    Command(
        name="list-runs",
        sentence="the captures of a log directory: when, which attempt, devices, size",
        example="ratchet.sh xprof list-runs ./profile_data",
        arguments=_list_runs_arguments,
        places=(),
    ),
    Command(
        name="ops",
        sentence="time by HLO operation: self time, share, runs, category, FLOP rate, bandwidth",
        example="ratchet.sh xprof ops 3 --top 20",
        arguments=_top(30),
    ),
    Command(
        name="framework-ops",
        sentence="time by framework operation and category: attention, moe, norm, matmul and others",
        example="ratchet.sh xprof framework-ops ./profile_data --category attention",
        arguments=_framework_ops_arguments,
    ),
    Command(
        name="compare",
        sentence="what changed from one capture to another, by category and operation, the largest change first",
        example="ratchet.sh xprof compare 3 4",
        arguments=_top(30),
        places=("first", "second"),
    ),
    Command(
        name="breakdown",
        sentence="time by class of operation, forward and backward, layers of a mixture of experts",
        example="ratchet.sh xprof breakdown ./profile_data",
    ),
    Command(
        name="mfu",
        sentence="model FLOPs utilisation from batch, sequence and the model's FLOPs per token",
        example="ratchet.sh xprof mfu ./profile_data --gbs 64 --seq 4096 --flops-per-token 42e9",
        arguments=_mfu_arguments,
    ),
    Command(
        name="overlap",
        sentence="communication that computation does not hide, by mesh axis and collective; constraints that spare it",
        example="ratchet.sh xprof overlap ./profile_data --mesh data=4,model=2",
        arguments=_overlap_arguments,
    ),
    Command(
        name="roofline",
        sentence="predicted and measured time of each operation, their ratio and a verdict",
        example="ratchet.sh xprof roofline 3",
        arguments=_top(30),
    ),
    Command(
        name="utilization",
        sentence="TC % and HBM % of each module and device, and what the two say together",
        example="ratchet.sh xprof utilization 3",
    ),
    Command(
        name="counters",
        sentence="the hardware's own counters, where the capture has them: how busy each unit was",
        example="ratchet.sh xprof counters ./profile_data",
        arguments=_top(30),
    ),
    Command(
        name="gaps",
        sentence="idle time between operations, the bubble fraction, the largest gaps, known patterns",
        example="ratchet.sh xprof gaps 3 --top 5",
        arguments=_top(10),
    ),
    Command(
        name="steps",
        sentence="variation between steps and devices, and waiting for the host",
        example="ratchet.sh xprof steps ./profile_data",
    ),
    Command(
        name="waste",
        sentence="work that does nothing useful: padding, casts, copies, transposes; the lines that cause it",
        example="ratchet.sh xprof waste ./profile_data",
        arguments=_top(10),
    ),
    Command(
        name="lines",
        sentence="time by source line",
        example="ratchet.sh xprof lines ./profile_data",
        arguments=_top(30),
    ),
    Command(
        name="scopes",
        sentence="time by named scope, as a tree",
        example="ratchet.sh xprof scopes ./profile_data --depth 3",
        arguments=_scopes_arguments,
    ),
    Command(
        name="overview",
        sentence="devices and steps, the program against the roofline, what took longest",
        example="ratchet.sh xprof overview ./profile_data",
    ),
    Command(
        name="memory",
        sentence="peak and capacity, what it is made of, what is alive then, the heap over time",
        example="ratchet.sh xprof memory ./profile_data",
        arguments=_memory_arguments,
    ),
    Command(
        name="memory diagnose",
        sentence="what is wrong with the memory: padding, growth, buffers kept long or as large as a vocabulary",
        example="ratchet.sh xprof memory diagnose ./profile_data",
        arguments=_memory_arguments,
    ),
    Command(
        name="graph",
        sentence="what an operation takes and who takes what it makes",
        example="ratchet.sh xprof graph ./profile_data --op fusion.3 --dot | dot -Tsvg > fusion.svg",
        arguments=_graph_arguments,
    ),
    Command(
        name="url",
        sentence="the addresses of a capture in XProf's pages",
        example="ratchet.sh xprof url ./profile_data --url http://tpu-vm:8791",
        arguments=_url_arguments,
    ),
    Command(
        name="export",
        sentence="the whole capture as a file for ui.perfetto.dev",
        example="ratchet.sh xprof export ./profile_data -o step.json.gz",
        arguments=_export_arguments,
    ),
    Command(
        name="report",
        sentence="baseline, experiment and delta: step time, matrix units, hottest operation, peak memory",
        example="ratchet.sh xprof report 3 7",
        places=("baseline", "experiment"),
    ),
    Command(
        name="serve",
        sentence="XProf's own pages, on this machine only; `ratchet.sh serve` hands further arguments to xprof",
        example="ratchet.sh xprof serve ./profile_data --port 8792",
        arguments=_serve_arguments,
        places=(),
    ),
)


BY_NAME = {command.name: command for command in COMMANDS}


class Xprof(Verb):
    name = "xprof"
    group = "profile"
    line = "look into a capture, without a browser"
    example = "xprof list-runs"
    description = "Looks into a capture, without a browser."
    is_watched = True
    does = "harness.cli.xprof:xprof"

    def configure(self, parser: Parser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = _overview()
        parser.add_argument("subcommand", nargs="?", help="one of those below; SUBCOMMAND --help says more")
        parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="its captures and options")

    def parsers(self) -> Iterator[tuple[str, Parser]]:
        yield from super().parsers()
        for command in COMMANDS:
            yield f"{self.name} {command.name}", command.parser()

    def parse(self, words: Sequence[str]) -> Namespace:
        given = super().parse(words)
        name, rest = given.subcommand, given.rest
        if name is None:
            raise UsageError("usage", f"expected a subcommand of xprof, got none\n{_overview()}")
        # `memory diagnose` is a subcommand of two words, `memory peak` a published spelling.
        longer = f"{name} {rest[0]}" if rest else name
        if longer in BY_NAME or longer in published.NAMES:
            name, rest = published.NAMES.get(longer, longer), rest[1:]
        if name not in BY_NAME:
            hint = did_you_mean(name, BY_NAME, "`ratchet.sh xprof --help` lists them")
            raise UsageError("usage", f"expected a subcommand of xprof, got {name!r}; {hint}")
        parser = BY_NAME[name].parser()
        parser.set_defaults(directory=given.directory, subcommand=name)
        return parser.parse_args(published.places(rest))

    def usage(self, given: Namespace) -> str:
        return BY_NAME[given.subcommand].parser().format_usage().strip()


def _overview() -> str:
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {one.name:<{width}}  {one.sentence}\n{'':<{width}}      {one.example}" for one in COMMANDS]
    return "\n".join(
        (
            "subcommands:",
            *lines,
            "",
            "Captures are named by a log directory (with plugins/profile/RUN/), the folder or the name of a run,",
            "an .xplane.pb file, or the number of an attempt; without one it is the newest of the contest.",
            f"Where {remote.URL_VARIABLE} names an XProf server, what is neither a path nor a number is a run there.",
            "--json prints JSON, in SI units.",
        )
    )
