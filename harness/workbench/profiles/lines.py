"""Time by line of source: which lines of the program the operations came from."""

from collections import defaultdict

from harness.records import Capture, Column, Table
from harness.units import percent
from harness.workbench.profiles.op_times import OperationTime, devices, op_times, origin, why_nothing_ran

NO_SOURCE = "(no source in the capture)"
_COLUMNS = (
    Column(name="source", title="source line"),
    Column(name="self_seconds", title="self time", unit="s"),
    Column(name="share", title="share", unit="fraction"),
    Column(name="count", title="runs", unit="count"),
    Column(name="longest", title="longest operation"),
)


def lines(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Self time by `file:line`, longest first; with `top` only so many."""
    groups: dict[str, list[OperationTime]] = defaultdict(list)
    found = op_times(devices(capture))
    for one in found:
        groups[one.operation.source or NO_SOURCE].append(one)
    whole = sum(one.self_seconds for one in found)
    rows = [
        (source, sum(one.self_seconds for one in group), sum(one.count for one in group), group[0].operation.name)
        for source, group in groups.items()
    ]
    rows.sort(key=lambda row: -row[1])
    why = ""
    if not found:
        why = why_nothing_ran(capture)
    elif groups.keys() == {NO_SOURCE}:
        why = (
            "no operation of the capture names its source: simulated captures have none, others only where the "
            "compiler kept what the program said (for the simulator, `ratchet.sh lines` says more)"
        )
    shown = [] if why else rows[:top]
    unnamed = sum(one.self_seconds for one in groups.get(NO_SOURCE, ()))
    notes = ["A fusion counts for the one line its metadata names, though it may hold work of several."]
    if unnamed:
        notes.append(f"{percent(unnamed / whole)} of the time names no line.")
    if len(shown) < len(rows):
        notes.append(f"{len(shown)} of {len(rows)} lines are shown.")
    return (
        Table(
            name="lines",
            title="Time by source line",
            origin=origin(capture),
            columns=_COLUMNS,
            rows=tuple(
                (source, took, took / whole if whole > 0 else None, count, longest)
                for source, took, count, longest in shown
            ),
            notes=() if why else tuple(notes),
            why_empty=why,
        ),
    )
