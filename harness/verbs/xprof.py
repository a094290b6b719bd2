"""The verb `xprof`: look into a capture, without a browser; its subcommands are the rows of one table."""

import argparse
import pkgutil
import shlex
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from harness.errors import RatchetError, UsageError
from harness.records import Capture, Table
from harness.render import tables as rendering
from harness.render.layout import terminal_width
from harness.shell.arguments import at_least, directory, mesh_sizes, value_of
from harness.shell.completers import attempts_and_files
from harness.shell.parser import Parser, did_you_mean
from harness.shell.tables import TableFigures, figures
from harness.shell.verb import Call, Document, Outcome, Verb
from harness.workbench.profiles import places, remote
from harness.workbench.profiles.classes import FRAMEWORK_CATEGORIES
from harness.workbench.profiles.places import PROFILE_DATA, RUNS, CaptureFiles

# Names of two words in published workflows, and the subcommand of each.
_PUBLISHED = {"memory peak": "memory", "compute breakdown": "breakdown", "comm overlap": "overlap"}
# Tables, or a text to print as it is (a graph, an address), or an Outcome with an exit code.
Answer: TypeAlias = tuple[Table, ...] | str | Outcome
# A function of a subcommand's options and its captures' files.
Answering: TypeAlias = Callable[[Namespace, Sequence[CaptureFiles]], Answer]
# A function that adds an argument to a parser.
Adding: TypeAlias = Callable[[Parser], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class XprofDocument:
    """An analysis of a capture: its tables or its text."""

    command: str
    tables: tuple[TableFigures, ...] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand.

    - `words`: the words that follow the name in its example.
    - `arguments`: functions that add the subcommand's own options to the parser.
    - `places`: the names of the arguments that take a capture. If there is only one, it may be left out, and the newest
      capture is used.
    - `tool`: the subcommand's name as a tool; "" for its usual name. None if it is not offered as a tool, because it
      starts a server or writes a file.
    """

    name: str
    sentence: str
    words: str
    answer: Answering
    arguments: Sequence[Adding] = ()
    places: tuple[str, ...] = ("where",)
    tool: str | None = ""

    @property
    def example(self) -> str:
        """A command line that works."""
        return f"ratchet.sh xprof {self.name} {self.words}"

    def parser(self) -> Parser:
        """The parser of the subcommand's arguments."""
        parser = Parser(
            prog=f"ratchet.sh xprof {self.name}",
            description=f"{self.sentence[0].upper()}{self.sentence[1:]}.",
            epilog=f"example: {self.example}",
            allow_abbrev=False,
        )
        parser.common(takes_contest=True)
        for name in self.places:
            many = "?" if len(self.places) == 1 else None
            default = " (default: the newest capture of the contest)" if many else ""
            complete = attempts_and_files if name == "first" else None
            parser.add_argument(name, nargs=many, help=f"{places.EXPECTED}{default}", complete=complete)
        for add in self.arguments:
            add(parser)
        parser.json("JSON instead of text")
        parser.needless_quiet()
        return parser


def _resolved(arguments: Namespace, word: str | None) -> CaptureFiles:
    return places.resolve(word, directory(arguments.directory).resolve(), remote.server())


def _captures(files: Sequence[CaptureFiles]) -> Sequence[Capture]:
    from harness.workbench.profiles import reading

    return reading.distinguish([reading.read(place.paths) for place in files])


def _analysis(function: str, *options: str) -> Answering:
    """A function that answers with `module:function` of harness.workbench.profiles, given captures and `options`."""

    def answer(arguments: Namespace, files: Sequence[CaptureFiles]) -> Answer:
        analyse = pkgutil.resolve_name(f"harness.workbench.profiles.{function}")
        result: Answer = analyse(*_captures(files), *(getattr(arguments, option) for option in options))
        return result

    return answer


def _tables(name: str, *options: str) -> Answering:
    """A function that answers with the tables of `module:NAME`, one Analysis or several, given `options`."""

    def answer(arguments: Namespace, files: Sequence[CaptureFiles]) -> Answer:
        from harness.workbench.profiles.analysis import Analysis, tables

        meant = pkgutil.resolve_name(f"harness.workbench.profiles.{name}")
        (capture,) = _captures(files)
        analyses = (meant,) if isinstance(meant, Analysis) else meant
        return tables(capture, analyses, **{option: getattr(arguments, option) for option in options})

    return answer


def _beside_useful(answer: Answering) -> Answering:
    """`answer`, given the FLOPs of the attempt's problem (None if unknown) as the option `useful_flops`."""

    def with_useful_flops(arguments: Namespace, files: Sequence[CaptureFiles]) -> Answer:
        arguments.useful_flops = _useful_flops(arguments, files[0])
        return answer(arguments, files)

    return with_useful_flops


def _useful_flops(arguments: Namespace, place: CaptureFiles) -> float | None:
    from harness.ledger import history
    from harness.ledger.paths import place_of

    folder = directory(arguments.directory).resolve()
    if place.attempt is None or place.log_directory.resolve() != folder / PROFILE_DATA:
        return None
    try:
        evidence = history.attempt(place_of(folder), place.attempt).evidence
    except RatchetError:
        return None
    # A capture of a suite shows only one member, and the capture does not state which one.
    return None if evidence.members else evidence.problem.work.flops


def _framework_ops(arguments: Namespace, files: Sequence[CaptureFiles]) -> Answer:
    from harness.workbench.profiles import hotspots

    (capture,) = _captures(files)
    return hotspots.framework_ops(capture, ",".join(arguments.category), arguments.top)


def _memory(function: str) -> Answering:
    """A function that answers with an analysis of memory, or with the tables of a compiler's message or a snapshot."""
    analyse = _analysis(function, "top", "module")

    def answer(arguments: Namespace, files: Sequence[CaptureFiles]) -> Answer:
        from harness.workbench import memory_reports

        path = files[0].paths[0] if files[0].paths else None
        return (memory_reports.read(path) if isinstance(path, Path) else None) or analyse(arguments, files)

    return answer


def _overlap(arguments: Namespace, files: Sequence[CaptureFiles]) -> Answer:
    from harness.workbench.profiles import communication

    (capture,) = _captures(files)
    return communication.overlap(capture, mesh_sizes(arguments.mesh))


def _graph(arguments: Namespace, files: Sequence[CaptureFiles]) -> Answer:
    from harness.workbench.profiles import graph

    (capture,) = _captures(files)
    around = graph.neighbourhood(capture, arguments.op, arguments.depth, arguments.module)
    return graph.dot(around) if arguments.dot else graph.table(capture, around)


def _sql(arguments: Namespace, _: Sequence[CaptureFiles]) -> Answer:
    from harness.workbench.profiles import asking

    if arguments.schema:
        return asking.schema()
    if arguments.query is None:
        raise UsageError("usage", "expected a capture and a query, or --schema, got no query")
    (capture,) = _captures((_resolved(arguments, arguments.where),))
    return asking.ask(capture, arguments.query, arguments.top)


def _diagnose(arguments: Namespace, files: Sequence[CaptureFiles]) -> Answer:
    from harness.workbench.profiles import diagnosis

    others = [_resolved(arguments, arguments.other)] if arguments.other else []
    return diagnosis.diagnose(*_captures([*files, *others]))


def _list_runs(arguments: Namespace, _: Sequence[CaptureFiles]) -> Answer:
    from harness.workbench.profiles.listing import list_on_server, list_runs

    if remote.server() and not arguments.log_directory:
        return list_on_server(remote.root(remote.server()))
    where = Path(arguments.log_directory) if arguments.log_directory else directory(arguments.directory) / PROFILE_DATA
    return list_runs(places.runs(where), str(where))


def _url(arguments: Namespace, files: Sequence[CaptureFiles]) -> Answer:
    from harness.workbench.profiles import links

    (place,) = files
    addresses = links.links(place, arguments.url or remote.server() or remote.LOCAL)
    return addresses if arguments.json else links.plain(addresses)


def _export(arguments: Namespace, files: Sequence[CaptureFiles]) -> Answer:
    from harness.workbench.profiles import exporting, reading

    (place,) = files
    default = directory(arguments.directory).resolve() / PROFILE_DATA / f"{place.name}.perfetto.json.gz"
    return exporting.export(reading.read(place.paths), Path(arguments.output) if arguments.output else default)


def _serve(arguments: Namespace, _: Sequence[CaptureFiles]) -> Answer:
    from harness.verbs.parts import serve

    return serve.run(Namespace(**vars(arguments), distributed=False, rest=()))


def _rows(text: str) -> int | None:
    """The largest number of rows, None for all."""
    return at_least(0)(text) or None


def _adding(method: Callable[..., object], *words: str, **how: Any) -> Adding:
    return lambda parser: method(parser, *words, **how)


_option, _word, _flag = (partial(_adding, method) for method in (Parser.option, Parser.word, Parser.flag))


def _top(default: int) -> Adding:
    return _option("--top N", f"how many rows at most; 0: all ({default})", type=_rows, default=default)


_LOG_DIRECTORY = _word("log_directory", f"a log directory (default: {PROFILE_DATA} of the contest)")
_MEMORY = (
    _option("--top N", "how many buffers to list (10)", type=at_least(1), default=10),
    _option("--module NAME", "the module (default: the one with most memory)"),
)
COMMANDS = (
    Command("list-runs", "the captures of a log directory: time, attempt, devices, size", "./profile_data",
            _list_runs, [_LOG_DIRECTORY], places=()),
    Command("diagnose", "all analyses at once: a checklist, then findings by cost, each with its rule and a remedy",
            "./profile_data", _diagnose, [_word("other", "a second capture, to compare with")]),
    Command("sql", "any question, in SQL: the capture as tables (docs/CAPTURE_TABLES.md)",
            "3 'select class, sum(self_seconds) from times group by 1'", _sql,
            [_word("where", places.EXPECTED), _word("query", "statements that only read, separated by semicolons"),
             _flag("--schema", "print the tables and columns that captures have"), _top(100)], places=()),
    Command("planes", "planes, lines, events and statistics, and which data the analyses lack", "./profile_data",
            _analysis("planes:planes", "top"), [_top(30)]),
    Command("ops", "time by HLO operation: self time, share, runs, category, FLOP rate, bandwidth", "3 --top 20",
            _beside_useful(_tables("hotspots:OPS", "top", "useful_flops")), [_top(30)]),
    Command("framework-ops", "time by framework operation and category: attention, moe, norm, matmul and others",
            "./profile_data --category attention", _framework_ops,
            [_adding(Parser.many, "--category NAME",
                     f"show only this category (may be repeated): {', '.join(FRAMEWORK_CATEGORIES)}"), _top(30)]),
    Command("compare", "changes from one capture to another, by category and operation, the largest first",
            "3 4", _analysis("comparison:compare", "top"), [_top(30)], places=("first", "second")),
    Command("breakdown", "time by class of operation, forward and backward, and in layers of a mixture of experts",
            "./profile_data", _tables("hotspots:BREAKDOWN")),
    Command("mfu", "model FLOPs utilisation from batch, sequence and the model's FLOPs per token",
            "./profile_data --gbs 64 --seq 4096 --flops-per-token 42e9",
            _analysis("ceilings:mfu", "gbs", "seq", "flops_per_token", "num_chips"),
            [_option("--gbs N", "global batch size, in sequences", type=float),
             _option("--seq N", "tokens in a sequence", type=float),
             _option("--flops-per-token N", "FLOPs per token, forward and backward, such as 6e9; if this, --gbs or "
                     "--seq is missing, only the trace's sum is shown", type=float),
             _option("--num-chips N", "devices that share the batch (default: those in the capture); one chip may be "
                     "two devices", type=at_least(1))]),
    Command("overlap",
            "communication that computation does not hide, by mesh axis and collective; sharding constraints to try",
            "./profile_data --mesh data=4,model=2", _overlap,
            [_option("--mesh A=N,B=M",
                     "name the axes of the mesh, the last one varying fastest (default: a mesh that the groups fit)")]),
    Command("roofline", "predicted and actual time of each operation, their ratio and a verdict", "3",
            _tables("ceilings:ROOFLINE", "top"), [_top(30)]),
    Command("utilization", "use of TensorCore and HBM by each module and device, and a conclusion", "3",
            _tables("ceilings:UTILIZATION")),
    Command("counters", "the hardware's own counters, where the capture has them: how busy each unit was",
            "./profile_data", _analysis("counters:counters", "top"), [_top(30)]),
    Command("gaps", "idle time between operations, the bubble fraction, the largest gaps, known patterns", "3 --top 5",
            _analysis("timeline:gaps_and_inside", "top"), [_top(10)]),
    Command("steps", "variation between steps and devices, and waiting for the host", "./profile_data",
            _analysis("timeline:steps_table")),
    Command("waste", "work that does nothing useful: padding, casts, copies, transposes; the lines that cause it",
            "./profile_data", _analysis("waste:waste", "top"), [_top(10)]),
    Command("lines", "time by source line", "./profile_data", _tables("hotspots:LINES", "top"), [_top(30)]),
    Command("scopes", "time by named scope, as a tree", "./profile_data --depth 3",
            _tables("hotspots:BY_SCOPE", "depth", "at_least"),
            [_option("--depth N", "how many scopes deep (4)", type=at_least(1), default=4),
             _option("--at-least SHARE", "leave out scopes that take less than this share of the time (0.01)",
                     type=float, default=0.01)]),
    Command("overview", "devices and steps, the program against the roofline, the longest operations", "./profile_data",
            _beside_useful(_analysis("overview:overview", "useful_flops"))),
    Command("memory", "peak memory and capacity, the parts of the peak, buffers alive at the peak, the heap over "
        "time",
            "./profile_data", _memory("memory:memory"), _MEMORY),
    Command("memory diagnose",
            "waste of memory: padding, growth, and buffers that live long or have a dimension as long as a vocabulary",
            "./profile_data", _memory("memory:diagnose"), _MEMORY),
    Command("graph", "an operation with its operands, and the operations that use its result",
            "./profile_data --op fusion.3 --dot | dot -Tsvg > fusion.svg", _graph,
            [_option("--op NAME", "the operation, such as fusion.3", required=True),
             _option("--depth N", "how many operations away (2)", type=at_least(1), default=2),
             _flag("--dot", "print the graph in DOT, for graphviz"),
             _option("--module NAME", "the module, if several modules have the operation")]),
    Command("url", "the addresses of XProf's pages for a capture", "./profile_data --url http://tpu-vm:8791",
            _url, [_option("--url URL", "an XProf server elsewhere "
                           f"(default: {remote.URL_VARIABLE} of the environment, else {remote.LOCAL})")],
            tool="xprof_trace_url"),
    Command("export", "the whole capture as a file for ui.perfetto.dev", "./profile_data -o step.json.gz",
            _export,
            [_adding(Parser.add_argument, "-o", "--output", metavar="FILE",
                     help=f"the file to write (default: {PROFILE_DATA}/RUN.perfetto.json.gz)")], tool=None),
    Command("report", "baseline, experiment and delta: step time, matrix units, hottest operation, peak memory", "3 7",
            _analysis("comparison:report"), places=("baseline", "experiment")),
    Command("serve", "serves XProf's own pages to this machine only; the verb `serve` passes arguments to xprof",
            "./profile_data --port 8792", _serve,
            [_LOG_DIRECTORY, _adding(Parser.add_argument, "--port", type=int, default=remote.PORT,
                                     help=f"the port ({remote.PORT}; 0: any free one)")], places=(), tool=None),
)  # fmt: skip
BY_NAME = {command.name: command for command in COMMANDS}


class Xprof(Verb):
    place = "profile", 50
    line = "look into a capture, without a browser"
    example = "xprof list-runs"
    description = "Looks into a capture, without a browser."
    is_watched = True
    document = Document(1, XprofDocument)
    effect = "reads"
    # The names under which XProf's own tools take captures.
    other_names: ClassVar[Mapping[str, str]] = {
        "where": "run",
        "first": "run_a",
        "second": "run_b",
        "baseline": "run_a",
        "experiment": "run_b",
    }

    def configure(self, parser: Parser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = _overview()
        parser.word("subcommand", "one of those below; SUBCOMMAND --help says more")
        parser.word("rest", "the subcommand's captures and options", nargs=argparse.REMAINDER, metavar="...")

    def parsers(self) -> Iterator[tuple[str, Parser]]:
        yield from super().parsers()
        for command in COMMANDS:
            yield f"{self.name} {command.name}", command.parser()

    def calls(self) -> Iterator[Call]:
        for command in COMMANDS:
            if command.tool is not None:
                tool = f"{self.name} {command.name}".replace(" ", "_").replace("-", "_")
                yield Call(tool=command.tool or tool, words=tuple(command.name.split()), parser=command.parser())

    def meant_by(self, words: Sequence[str]) -> str | None:
        name, rest = _named(words)
        return f"./ratchet.sh xprof {shlex.join([*name.split(), *_places(rest)])}" if name in BY_NAME else None

    def parse(self, words: Sequence[str]) -> Namespace:
        arguments = super().parse(words)
        if arguments.subcommand is None:
            raise UsageError("usage", f"expected a subcommand of xprof, got none\n{_overview()}")
        name, rest = _named([arguments.subcommand, *arguments.rest])
        if name not in BY_NAME:
            hint = did_you_mean(name, BY_NAME, "`ratchet.sh xprof --help` lists them")
            raise UsageError("usage", f"expected a subcommand of xprof, got {name!r}; {hint}")
        parser = BY_NAME[name].parser()
        parser.set_defaults(directory=arguments.directory, subcommand=name)
        return parser.parse_args(_places(rest))

    def usage(self, arguments: Namespace) -> str:
        return BY_NAME[arguments.subcommand].parser().format_usage().strip()

    def run(self, arguments: Namespace) -> Outcome:
        command = BY_NAME[arguments.subcommand]
        folder = directory(arguments.directory).resolve()
        files = [places.resolve(getattr(arguments, name), folder, remote.server()) for name in command.places]
        answer = command.answer(arguments, files)
        words = f"xprof {command.name}"
        if isinstance(answer, Outcome):
            return answer
        if isinstance(answer, str):
            return Outcome(document=XprofDocument(command=words, text=answer), text=lambda: answer)
        document = XprofDocument(command=words, tables=figures(answer))
        return Outcome(document=document, text=lambda: rendering.text(answer, terminal_width()) if answer else "")


def _named(words: Sequence[str]) -> tuple[str, list[str]]:
    """The subcommand's name at the beginning of the words (one or two words, or a published name), and the rest."""
    longer = " ".join(words[:2])
    if len(words) > 1 and (longer in BY_NAME or longer in _PUBLISHED):
        return _PUBLISHED.get(longer, longer), list(words[2:])
    return words[0], list(words[1:])


def _places(words: Sequence[str]) -> list[str]:
    """The words; `--run-dir DIR` and `--runs A,B` of published workflows are replaced by the captures that they name.

    With both options, the captures are runs in DIR. Raises UsageError `usage` if an option has no value.
    """
    rest, folder = value_of(words, "--run-dir")
    rest, runs = value_of(rest, "--runs")
    if runs is None:
        return rest if folder is None else [folder, *rest]
    named = runs.split(",")
    return [*named, *rest] if folder is None else [*(str(Path(folder) / RUNS / name) for name in named), *rest]


def _overview() -> str:
    width = max(len(command.name) for command in COMMANDS)
    lines = [
        f"  {command.name:<{width}}  {command.sentence}\n{'':<{width}}      {command.example}" for command in COMMANDS
    ]
    return "\n".join(
        (
            "subcommands:",
            *lines,
            "",
            "Captures are named by a log directory (with plugins/profile/RUN/), the folder or the name of a run,",
            "an .xplane.pb file, or the number of an attempt; the default is the newest capture of the contest.",
            f"If {remote.URL_VARIABLE} names an XProf server, any other name is a run on that server.",
            "--json prints JSON, in SI units.",
        )
    )
