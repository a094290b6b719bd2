"""Useless work in a capture: copies, changes of layout, casts and padding, with their time and source lines."""

from collections.abc import Iterator, Mapping
from typing import Any

from harness.errors import RatchetError
from harness.records import Capture, Table
from harness.workbench.hlo.graph import Graph
from harness.workbench.hlo.waste import COPY_WAIT, HOST_WAIT, OTHER, PADDING, Waste, prefetches, waste_of, waste_tables
from harness.workbench.hlo.work import work
from harness.workbench.profiles.analysis import tables
from harness.workbench.profiles.classes import DATA_FORMATTING, TRANSFER
from harness.workbench.profiles.database import Database, Row, database_of, made_on_demand
from harness.workbench.profiles.graph import graphs_of, running_instruction
from harness.workbench.profiles.hotspots import CHAINS
from harness.workbench.profiles.op_times import devices, origin, why_nothing_ran
from harness.workbench.profiles.timeline import HOST_FACTS

# Kinds of waste by XProf's category, for operations without HLO in the capture. On a TPU, copies and transposes have
# the same category.
_BY_CATEGORY = {
    "copy": "copy",
    "transpose": "transpose",
    "convert": "cast",
    "dynamic-update-slice": "dynamic-update-slice",
}


@made_on_demand("""waste: an operation that does nothing useful, or moves padding
    kind VARCHAR*          copy, transpose, cast, padding, wait for host memory ...
    name VARCHAR           the operation's name
    source VARCHAR         its source line
    bytes DOUBLE*          useless bytes that all its runs moved; NULL if unknown
    seconds DOUBLE*        the time of these runs; for padding, only the padding's share (by bytes)
""")
def waste_table(database: Database) -> Iterator[Row]:
    """A row for each operation that does nothing useful, or that moves padding together with useful values."""
    graphs: dict[str, Graph] = {}
    options = database.options
    options["is_whole"], options["unread"] = False, ""
    try:
        graphs, options["is_whole"] = graphs_of(database.capture)
    except RatchetError as error:
        options["unread"] = f"The HLO could not be read, so kinds come only from XProf's categories: {error}"
    beside = {name: prefetches(graph) for name, graph in graphs.items()}
    options["has_prefetches"] = any(beside.values())
    for took in database.rows_by_name("select * from times where not is_container order by rank"):
        wasted = _waste_of(took, graphs.get(took["module"]), beside.get(took["module"], frozenset()))
        if wasted is not None:
            kind, each, seconds = wasted
            yield kind, took["name"], took["source"], None if each is None else int(each) * took["count"], seconds


def waste(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Tables of useless work: time by kind, and the `top` source lines; from the modules' HLO if the capture has it."""
    database = database_of(capture)
    if not devices(capture):
        return waste_tables((), 0.0, origin(capture), (), top, why_nothing_ran(capture))
    wasted = [
        Waste(kind=kind, name=name, source=source, hbm_bytes=None if size is None else int(size), seconds=seconds)
        for kind, name, source, size, seconds in database.rows("select * from waste order by rowid")
    ]
    options = database.options
    notes = [
        "Time is self time, summed over devices. A useful operation on padded values counts only "
        "with the padding's share of its bytes, which is an upper bound."
    ]
    if not options["is_whole"]:
        notes.append("The capture lacks its modules, so useless work inside fusions, such as casts, is unknown.")
    notes += [options["unread"]] if options["unread"] else []
    if any(item.kind == HOST_WAIT for item in wasted):
        is_bound = database.facts(HOST_FACTS)["is_bound"]
        remedy = "start the transfers earlier, so that more work runs meanwhile, or offload less"
        remedy = "the link to the host is the limit; `xprof overview` shows the possible gain" if is_bound else remedy
        notes.append(f"Waits for host memory: {remedy}.")
    if options["has_prefetches"]:
        notes.append("Copies between memories overlap with other work, so only the wait for their end counts.")
    ((whole,),) = database.rows("select whole from whole")
    return (*waste_tables(wasted, whole, origin(capture), notes, top), *tables(database, (CHAINS,), top=top))


def _waste_of(
    took: Mapping[str, Any], graph: Graph | None, beside: frozenset[str]
) -> tuple[str, float | None, float] | None:
    """Kind of waste, wasted bytes of one run and wasted seconds of all runs; None if the whole operation is useful."""
    seconds: float = took["self_seconds"]
    if took["class"] == TRANSFER and took["half"] == "done":
        # A done half only waits; the start half moves the bytes.
        kind = HOST_WAIT if took["is_host_transfer"] else COPY_WAIT
        return (kind, took["bytes_accessed"], seconds) if seconds > 0 else None
    instruction = running_instruction(graph, took["name"]) if graph is not None else None
    if graph is None or instruction is None:
        moving = None if took["half"] else _BY_CATEGORY.get(took["kind"])
        moving = moving or (OTHER if took["class"] == DATA_FORMATTING and not took["half"] else None)
        return None if moving is None else (moving, took["bytes_accessed"], seconds)
    wasted = waste_of(graph, instruction, beside)
    if wasted is None:
        return None
    kind, each = wasted
    if kind == PADDING:
        whole = work(graph, instruction).hbm_bytes
        seconds *= min(1.0, (each or 0) / whole) if whole else 0.0
    return kind, each, seconds
