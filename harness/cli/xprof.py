"""What `xprof` answers: a subcommand's captures resolved and analysed, as tables or as text."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from harness.cli.arguments import directory, mesh_sizes
from harness.cli.documents import XprofDocument, figures
from harness.cli.verb import Outcome
from harness.cli.xprof_commands import BY_NAME
from harness.records import Capture, Table
from harness.render import tables
from harness.render.layout import terminal_width
from harness.workbench.profiles import (
    breakdown,
    compare,
    counters,
    exporting,
    gaps,
    graph,
    links,
    memory,
    memory_diagnosis,
    mfu,
    operations,
    overlap,
    overview,
    places,
    reading,
    remote,
    roofline,
    steps,
    summary,
    utilization,
    waste,
)
from harness.workbench.profiles.listing import list_on_server, list_runs
from harness.workbench.profiles.places import PROFILE_DATA, CaptureFiles

# Tables, or text that is to stay as it is (a graph, an address), or all of it where a subcommand says how it ended.
Answer: TypeAlias = tuple[Table, ...] | str | Outcome


def xprof(given: Namespace) -> Outcome:
    command = BY_NAME[given.subcommand]
    folder = directory(given.directory).resolve()
    found = [places.resolve(getattr(given, name), folder, remote.server()) for name in command.places]
    if command.name in OF_PLACES:
        answer = OF_PLACES[command.name](given, *found)
    else:
        captures = reading.told_apart([reading.read(place.paths) for place in found])
        answer = OF_CAPTURES[command.name](given, *captures)
    asked = f"xprof {command.name}"
    if isinstance(answer, Outcome):
        return answer
    if isinstance(answer, str):
        return Outcome(document=XprofDocument(command=asked, text=answer), text=lambda: answer)
    return Outcome(
        document=XprofDocument(command=asked, tables=figures(answer)),
        text=lambda: tables.text(answer, terminal_width()) if answer else "",
    )


def _framework_ops(given: Namespace, capture: Capture) -> Answer:
    wanted = [name for word in given.category for name in word.split(",")]
    return operations.framework_ops(capture, wanted, given.top)


def _graph(given: Namespace, capture: Capture) -> Answer:
    around = graph.neighbourhood(capture, given.op, given.depth, given.module)
    return graph.dot(around) if given.dot else graph.table(capture, around)


def _list_runs(given: Namespace) -> Answer:
    if remote.server() and not given.log_directory:
        return list_on_server(remote.root(remote.server()))
    where = Path(given.log_directory) if given.log_directory else directory(given.directory) / PROFILE_DATA
    return list_runs(places.runs(where), str(where))


def _url(given: Namespace, place: CaptureFiles) -> Answer:
    found = links.links(place, given.url or remote.server() or remote.LOCAL)
    return found if given.json else links.plain(found)


def _export(given: Namespace, place: CaptureFiles) -> Answer:
    own = directory(given.directory).resolve() / PROFILE_DATA / f"{place.name}.perfetto.json.gz"
    return exporting.export(reading.read(place.paths), Path(given.output) if given.output else own)


def _serve(given: Namespace) -> Answer:
    # Imported when it is asked for: the server takes half a second.
    from harness.cli.serve import serve

    return serve(Namespace(**vars(given), distributed=False, rest=()))


# What answers a subcommand, from its options and its captures.
OF_CAPTURES: dict[str, Callable[..., Answer]] = {
    "ops": lambda given, capture: operations.ops(capture, given.top),
    "framework-ops": _framework_ops,
    "compare": lambda given, first, second: compare.compare(first, second, given.top),
    "breakdown": lambda _, capture: breakdown.breakdown(capture),
    "mfu": lambda given, capture: mfu.mfu(capture, given.gbs, given.seq, given.flops_per_token, given.num_chips),
    "overlap": lambda given, capture: overlap.overlap(capture, mesh_sizes(given.mesh)),
    "roofline": lambda given, capture: roofline.roofline(capture, given.top),
    "utilization": lambda _, capture: utilization.utilization(capture),
    "counters": lambda given, capture: counters.counters(capture, given.top),
    "gaps": lambda given, capture: gaps.gaps_and_inside(capture, given.top),
    "steps": lambda _, capture: steps.steps_table(capture),
    "waste": lambda given, capture: waste.waste(capture, given.top),
    "lines": lambda given, capture: operations.lines(capture, given.top),
    "scopes": lambda given, capture: operations.scopes(capture, given.depth, given.at_least),
    "overview": lambda _, capture: overview.overview(capture),
    "memory": lambda given, capture: memory.memory(capture, given.top, given.module),
    "memory diagnose": lambda given, capture: memory_diagnosis.diagnose(capture, given.top, given.module),
    "graph": _graph,
    "report": lambda _, baseline, experiment: summary.report(baseline, experiment),
}
# Likewise, from where the captures lie.
OF_PLACES: dict[str, Callable[..., Answer]] = {
    "list-runs": _list_runs,
    "url": _url,
    "export": _export,
    "serve": _serve,
}
