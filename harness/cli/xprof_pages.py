"""The subcommands of `xprof` that rest on XProf's own tools, answered: overview, memory, graph, url, export, report."""

import os
from argparse import Namespace
from pathlib import Path

from harness.cli.arguments import directory
from harness.cli.xprof_commands import URL_VARIABLE
from harness.cli.xprof_time import Analysis, Answer
from harness.errors import UsageError
from harness.workbench.profiles import exporting, graph, links, memory_diagnosis, places, reading, summary
from harness.workbench.profiles.listing import list_runs
from harness.workbench.profiles.memory import memory
from harness.workbench.profiles.overview import overview
from harness.workbench.profiles.places import PROFILE_DATA, Place, resolve


def _list_runs(given: Namespace, found: tuple[Place, ...]) -> Answer:
    where = Path(given.log_directory) if given.log_directory else directory(given.directory) / PROFILE_DATA
    return list_runs(places.runs(where), str(where))


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


def _graph(given: Namespace, found: tuple[Place, ...]) -> Answer:
    capture = reading.read(found[0].paths)
    around = graph.neighbourhood(capture, given.op, given.depth, given.module)
    return graph.dot(around) if given.dot else graph.table(capture, around)


def _url(given: Namespace, found: tuple[Place, ...]) -> Answer:
    server = given.url or os.environ.get(URL_VARIABLE) or links.LOCAL
    tables = links.links(found[0], server)
    return tables if given.json else links.plain(tables)


def _export(given: Namespace, found: tuple[Place, ...]) -> Answer:
    own = directory(given.directory).resolve() / PROFILE_DATA / f"{found[0].name}.perfetto.json.gz"
    return exporting.export(reading.read(found[0].paths), Path(given.output) if given.output else own)


def _serve(given: Namespace, found: tuple[Place, ...]) -> Answer:
    # Imported when it is asked for: the server takes half a second.
    from harness.cli.serve import serve

    return serve(Namespace(**vars(given), distributed=False, rest=()))


def _report(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return summary.report(*(reading.read(place.paths) for place in found))


PAGES: dict[str, Analysis] = {
    "list-runs": _list_runs,
    "overview": _overview,
    "memory": _memory,
    "graph": _graph,
    "url": _url,
    "export": _export,
    "report": _report,
    "serve": _serve,
}
