"""The subcommands of `xprof` that rest on XProf's own tools: overview, memory, graph, url, export, report."""

import argparse
import os
from argparse import Namespace
from pathlib import Path

from harness.cli.arguments import directory
from harness.cli.verbs import VERBS
from harness.cli.xprof_command import Answer, Command
from harness.errors import UsageError
from harness.workbench.profiles import exporting, graph, links, memory_diagnosis, reading, summary
from harness.workbench.profiles.memory import memory
from harness.workbench.profiles.overview import overview
from harness.workbench.profiles.places import EXPECTED, PROFILE_DATA, Place, resolve

_URL_VARIABLE = "XPROF_URL"


def _overview(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return overview(reading.read(found[0].paths))


def _memory(given: Namespace, found: tuple[Place, ...]) -> Answer:
    # `memory diagnose WHERE`: the word stands where the capture may stand.
    words = list(given.words)
    is_diagnosis = words[:1] == ["diagnose"]
    rest = words[1:] if is_diagnosis else words
    if len(rest) > 1:
        raise UsageError("usage", f"expected one capture, got {' '.join(rest)!r}")
    place = resolve(rest[0] if rest else None, directory(given.directory).resolve())
    analysis = memory_diagnosis.diagnose if is_diagnosis else memory
    return analysis(reading.read(place.paths), given.top, given.module)


def _memory_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[diagnose] [where]",
        help=f"what is wrong with it; {EXPECTED} (default: the newest)",
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="how many buffers to list (10)")
    parser.add_argument("--module", default=None, metavar="NAME", help="the module (default: the one with most memory)")


def _graph(given: Namespace, found: tuple[Place, ...]) -> Answer:
    capture = reading.read(found[0].paths)
    around = graph.neighbourhood(capture, given.op, given.depth, given.module)
    return graph.dot(around) if given.dot else graph.table(capture, around)


def _graph_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", required=True, metavar="NAME", help="the operation, such as fusion.3")
    parser.add_argument("--depth", type=int, default=2, metavar="N", help="how many operations away (2)")
    parser.add_argument("--dot", action="store_true", help="print it in DOT, for graphviz")
    parser.add_argument("--module", default=None, metavar="NAME", help="the module, where several have the operation")


def _url(given: Namespace, found: tuple[Place, ...]) -> Answer:
    server = given.url or os.environ.get(_URL_VARIABLE) or links.LOCAL
    tables = links.links(found[0], server)
    return tables if given.json else links.plain(tables)


def _url_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        default=None,
        metavar="URL",
        help=f"an XProf server elsewhere (default: {_URL_VARIABLE} of the environment, else {links.LOCAL})",
    )


def _export(given: Namespace, found: tuple[Place, ...]) -> Answer:
    own = directory(given.directory).resolve() / PROFILE_DATA / f"{found[0].name}.perfetto.json.gz"
    return exporting.export(reading.read(found[0].paths), Path(given.output) if given.output else own)


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", default=None, metavar="FILE", help=f"where to (default: {PROFILE_DATA}/RUN.perfetto.json.gz)"
    )


def _serve(given: Namespace, found: tuple[Place, ...]) -> Answer:
    where = [given.log_directory] if given.log_directory else []
    contest = ["-C", str(given.directory)] if given.directory else []
    # Loaded when it is asked for: the server takes half a second to import.
    VERBS["serve"].run([*contest, *where, f"--port={given.port}"])
    return ()


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log_directory", nargs="?", help=f"a log directory (default: {PROFILE_DATA} of the contest)")
    parser.add_argument("--port", type=int, default=links.PORT, help=f"the port ({links.PORT}; 0: any)")


def _report(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return summary.report(*(reading.read(place.paths) for place in found))


PAGES = (
    Command(
        name="overview",
        sentence="devices and steps, the program against the roofline, what took longest",
        example="ratchet.sh xprof overview ./profile_data",
        run=_overview,
    ),
    Command(
        name="memory",
        sentence="peak and capacity, what it is made of, what is alive then, the heap over time; or what is wrong",
        example="ratchet.sh xprof memory ./profile_data; ratchet.sh xprof memory diagnose ./profile_data",
        run=_memory,
        arguments=_memory_arguments,
        places=(),
    ),
    Command(
        name="graph",
        sentence="what an operation takes and who takes what it makes",
        example="ratchet.sh xprof graph ./profile_data --op fusion.3 --dot | dot -Tsvg > fusion.svg",
        run=_graph,
        arguments=_graph_arguments,
    ),
    Command(
        name="url",
        sentence="the addresses of a capture in XProf's pages",
        example="ratchet.sh xprof url ./profile_data --url http://tpu-vm:8791",
        run=_url,
        arguments=_url_arguments,
    ),
    Command(
        name="export",
        sentence="the whole capture as a file for ui.perfetto.dev",
        example="ratchet.sh xprof export ./profile_data -o step.json.gz",
        run=_export,
        arguments=_export_arguments,
    ),
    Command(
        name="report",
        sentence="baseline, experiment and delta: step time, matrix units, hottest operation, peak memory",
        example="ratchet.sh xprof report 3 7",
        run=_report,
        places=("baseline", "experiment"),
    ),
    Command(
        name="serve",
        sentence="XProf's own pages, on this machine only; `ratchet.sh serve` hands further arguments to xprof",
        example="ratchet.sh xprof serve ./profile_data --port 8792",
        run=_serve,
        arguments=_serve_arguments,
        places=(),
    ),
)
