"""A whole capture in the JSON trace-event format, for ui.perfetto.dev: planes are processes, and lines are threads."""

import gzip
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.dumps.xplane import Event, Plane, Value
from harness.files import written_atomically
from harness.records import Capture, Table
from harness.units import quantity
from harness.workbench.profiles.executions import nesting_order
from harness.workbench.profiles.op_times import origin
from harness.workbench.profiles.reading import spaces
from harness.workbench.tables import table
from harness.workbench.traces import perfetto

# jax's own trace.json.gz stops at this number of events (protocol, section 6); the export has all events.
_CUT_AT = 1_000_000
_PICOSECONDS = 1000  # in a nanosecond


def export(capture: Capture, path: Path) -> tuple[Table, ...]:
    """A table of the contents of the trace of `capture`, which is written to `path` (gzip).

    Raises RatchetError `bad-profile`, `no-space`, `read-only` or `io`; then `path` is unchanged.
    """
    count: Counter[str] = Counter()
    about = {"source": origin(capture), "run": capture.name, "hosts": len(capture.paths)}
    with (
        written_atomically(path) as stream,
        gzip.GzipFile(fileobj=stream, mode="wb", filename="", mtime=0, compresslevel=6) as packed,
    ):
        packed.writelines(perfetto.document(about, _events(capture, count)))
    notes = ["Open the file at https://ui.perfetto.dev (`Open trace file`); it stays on your machine."]
    if count["events"] > _CUT_AT:
        notes.append(f"The file has all events; the profiler's own trace.json.gz stops at {_CUT_AT:,}.")
    if count["timeless"]:
        notes.append(f"Left out: {quantity(count['timeless'], 'event')} without a place in time (sums).")
    if len(capture.paths) > 1:
        notes.append(
            "Each host has its own clock, so events of different hosts at the same position may differ in time."
        )
    columns = "file!;events:count;processes=planes:count;threads=lines:count;bytes=size"
    row = (str(path), count["events"], count["processes"], count["threads"], path.stat().st_size)
    return (table("export", f"{capture.name} for Perfetto", origin(capture), columns, [row], notes),)


def _events(capture: Capture, count: Counter[str]) -> Iterator[dict[str, object]]:
    for host, space in spaces(capture):
        zero = space.start_ps or 0
        # In the viewer, devices come before the host.
        for plane in sorted(space.planes, key=lambda plane: (not plane.name.startswith("/device:"), plane.name)):
            if any(line.events for line in plane.lines):
                yield from _plane(plane, host, zero, count)


def _plane(plane: Plane, host: str, zero: int, count: Counter[str]) -> Iterator[dict[str, object]]:
    count["processes"] += 1
    # A viewer takes process 0 for the idle process of an operating system.
    process = {"pid": count["processes"]}
    yield from perfetto.label("process", process | {"tid": 0}, f"{plane.name} ({host})", count["processes"])
    for line in plane.lines:
        parts = lanes(line.events)
        count["timeless"] += len(line.events) - sum(map(len, parts))
        for number, lane in enumerate(parts, 1):
            count["threads"] += 1
            where = process | {"tid": count["threads"]}
            name = line.name if number == 1 else f"{line.name} ({number})"
            yield from perfetto.label("thread", where, name, count["threads"])
            for at in lane:
                count["events"] += 1
                yield _slice(line.events[at], where, zero)


def lanes(events: Sequence[Event]) -> list[list[int]]:
    """Indices of the events that have a place in time, in as few lists as possible; no two events of a list cross.

    Events of a list may be nested. A viewer nests the slices of a thread, but cannot draw slices that cross, such as
    those of asynchronous events.
    """
    numbers, starts, ends = array("q"), array("q"), array("q")
    zero = _nanoseconds(events[0].start_ps) if events else 0
    for number, event in enumerate(events):
        if event.occurrences is None:
            numbers.append(number)
            starts.append(_nanoseconds(event.start_ps) - zero)
            ends.append(_end(event) - zero)
    placed: list[list[int]] = []
    open_ends: list[list[int]] = []
    for at in nesting_order(starts, ends):
        for lane, around in zip(placed, open_ends, strict=True):
            while around and around[-1] <= starts[at]:
                around.pop()
            if not around or ends[at] <= around[-1]:
                lane.append(numbers[at])
                around.append(ends[at])
                break
        else:
            placed.append([numbers[at]])
            open_ends.append([ends[at]])
    return placed


def _slice(event: Event, where: Mapping[str, int], zero: int) -> dict[str, object]:
    moment = _nanoseconds(zero)
    arguments = {"duration_ps": event.duration_ps, **dict(_plain(event.of.stats)), **dict(_plain(event.stats))}
    name = event.of.display_name or event.of.name
    if name != event.of.name:
        arguments["long_name"] = event.of.name
    start, end = _nanoseconds(event.start_ps) - moment, _end(event) - moment
    return perfetto.slice_of(name or "(no name)", where, start, end, arguments)


def _plain(stats: Mapping[str, Value]) -> Iterator[tuple[str, str | int | float]]:
    """The statistics except bytes; numbers that JSON cannot express become text."""
    for name, value in stats.items():
        if not isinstance(value, bytes):
            # NaN, infinity, and integers that a viewer in a browser would round.
            is_number = math.isfinite(value) and abs(value) < 1 << 53 if isinstance(value, (int, float)) else False
            yield name, value if is_number or isinstance(value, str) else str(value)


def _nanoseconds(picoseconds: int) -> int:
    # Integers, because a float is too inexact for picoseconds since 1970.
    return (picoseconds + _PICOSECONDS // 2) // _PICOSECONDS


def _end(event: Event) -> int:
    return _nanoseconds(event.start_ps + event.duration_ps)
