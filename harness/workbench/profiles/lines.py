"""Time by line of source: which lines of the program the operations came from."""

from collections import defaultdict

from harness.records import Capture, Table
from harness.units import percent
from harness.workbench.profiles.op_times import (
    OperationTime,
    devices,
    op_times,
    origin,
    share,
    total_runs,
    total_seconds,
    why_nothing_ran,
)
from harness.workbench.tables import Field, Fields, table_of

NO_SOURCE = "(no source in the capture)"


def lines(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Self time by `file:line`, longest first; with `top` only so many."""
    groups: dict[str, list[OperationTime]] = defaultdict(list)
    found = op_times(devices(capture))
    for one in found:
        groups[one.operation.source or NO_SOURCE].append(one)
    whole = total_seconds(found)
    ranked = sorted(groups, key=lambda source: -total_seconds(groups[source]))
    fields: Fields[str] = (
        Field("source", "source line", lambda source: source),
        Field("self_seconds", "self time", lambda source: total_seconds(groups[source]), "s"),
        Field("share", "share", lambda source: share(total_seconds(groups[source]), whole), "fraction"),
        Field("count", "runs", lambda source: total_runs(groups[source]), "count"),
        Field("longest", "longest operation", lambda source: groups[source][0].operation.name),
    )
    why = ""
    if not found:
        why = why_nothing_ran(capture)
    elif groups.keys() == {NO_SOURCE}:
        why = (
            "no operation of the capture names its source: simulated captures have none, others only where the "
            "compiler kept what the program said (for the simulator, `ratchet.sh lines` says more)"
        )
    shown = [] if why else ranked[:top]
    unnamed = total_seconds(groups.get(NO_SOURCE, ()))
    notes = ["A fusion counts for the one line its metadata names, though it may hold work of several."]
    if unnamed:
        notes.append(f"{percent(unnamed / whole)} of the time names no line.")
    if len(shown) < len(ranked):
        notes.append(f"{len(shown)} of {len(ranked)} lines are shown.")
    return (table_of("lines", "Time by source line", origin(capture), fields, shown, notes, why),)
