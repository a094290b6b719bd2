"""The hardware's own counters, where a capture has them: how busy each unit was, and each counter by kernel."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness import chips
from harness.errors import RatchetError
from harness.records import Capture, Table
from harness.units import quantity
from harness.workbench.profiles import datatables
from harness.workbench.profiles.database import MORE, Database, Row, TableOf
from harness.workbench.profiles.datatables import Value, number
from harness.workbench.profiles.op_times import origin, share
from harness.workbench.profiles.reading import sources
from harness.workbench.profiles.remote import Source
from harness.workbench.tables import Field, Fields, table_of

# A counter that could not be read comes as 64 ones, which is no number of events.
_UNREADABLE = 0.999 * 2**64
# Names begin with where in the chip the counter is.
_PLACE = re.compile(r"^.*_counters_(?:unprivileged_)?(?:count_)?")
_FIRST = chips.having(lambda row: row.workbench.has_counters)[0]
_FIRST_PERIODIC = chips.having(lambda row: row.workbench.has_periodic_counters)[0]
_WITH_UNITS = " and ".join(chips.having(lambda row: row.workbench.has_unit_counters))
_WHY = (
    f"the capture has no hardware counters: a TPU writes them from {_FIRST} on, periodically from {_FIRST_PERIODIC} "
    "on, where the profiler is asked to (advanced_configuration: tpu_enable_periodic_counter_sampling); a CPU and the "
    "simulator have none"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterUnit:
    """A unit of a device over the whole capture: what it did and at most could have done, in `unit`s."""

    device: int
    name: str
    unit: str
    achieved: float
    peak: float
    busiest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """One counter of one kernel on one chip, added up over samples."""

    host: str
    chip: int
    kernel: str
    counter: str
    count: float
    meaning: str


def _rows_of_counters(database: Database) -> Iterator[Row]:
    for one in _counts([row for path in sources(database.capture) for row in _rows((path,), "perf_counters")])[0]:
        yield one.host, one.chip, one.kernel, one.counter, one.count, one.meaning


MORE["counters"] = TableOf("counters", "a hardware counter of one kernel on one chip, added up over samples", """
    host VARCHAR           its host
    chip INTEGER           its number there
    kernel VARCHAR         the kernel
    counter VARCHAR        its whole name
    count DOUBLE           what it counted; those that could not be read are left out
    meaning VARCHAR        what it counts
    """, _rows_of_counters)  # fmt: skip
_UNITS: Fields[CounterUnit] = (
    Field("device", "device", lambda one: one.device),
    Field("name", "unit", lambda one: one.name),
    Field("achieved_fraction", "busy", lambda one: share(one.achieved, one.peak), "fraction"),
    Field("busiest_fraction", "busiest sample", lambda one: one.busiest, "fraction"),
    Field("achieved", "achieved", lambda one: one.achieved, "count"),
    Field("peak", "possible", lambda one: one.peak, "count"),
    Field("unit", "in", lambda one: one.unit),
)
_COUNTS: Fields[Count] = (
    Field("host", "host", lambda one: one.host),
    Field("chip", "chip", lambda one: one.chip),
    Field("kernel", "kernel", lambda one: one.kernel),
    Field("count", "count", lambda one: one.count, "count"),
    Field("counter", "counter", lambda one: _PLACE.sub("", one.counter)),
    Field("meaning", "what it counts", lambda one: one.meaning or None),
    Field("name", "whole name", lambda one: one.counter),
)


def counters(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Units by XProf's utilization_viewer, counters by its perf_counters; with `top` only so many counters.

    Raises RatchetError where the capture cannot be converted.
    """
    paths = sources(capture)
    found, unreadable = _counts([row for path in paths for row in _rows((path,), "perf_counters")])
    every = _units([row for path in paths for row in _rows((path,), "utilization_viewer")]) if found else []
    units = [one for one in every if one.achieved]
    where = origin(capture)
    about = (
        "Of the whole capture, idle time between kernels included: a short kernel in a long capture looks idle here, "
        "whatever it does while it runs. The busiest sample says more about it.",
        "Achieved and possible are XProf's, from the chip's counters and its clock (xprof 2.24 knows "
        f"{_WITH_UNITS}). "
        f"{len(every) - len(units)} units of which no counter moved are left out: idle, or not counted.",
    )
    cut = [f"{len(found[:top])} of {len(found)} counters are shown."] if top and top < len(found) else []
    if unreadable:
        cut.append(f"Left out: {quantity(unreadable, 'value')} that the chip could not read (64 ones).")
    why = f"XProf works out units for {_WITH_UNITS} alone; the counters themselves follow" if found else _WHY
    return (
        table_of("units", "How busy the units were, by the hardware's counters", where, _UNITS, units, about, why),
        table_of("counters", "Counters, largest first", where, _COUNTS, found[:top], cut, _WHY),
    )


def _rows(paths: Sequence[Source], tool: str) -> Sequence[Mapping[str, Value]]:
    """The rows of a tool that has nothing to say of most captures."""
    try:
        return datatables.ask(paths, tool)[0].rows
    except RatchetError as error:
        if error.kind != "no-answer":
            raise
        return ()


def _units(rows: Sequence[Mapping[str, Value]]) -> list[CounterUnit]:
    samples: dict[tuple[int, int, str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        achieved, peak = number(row, "achieved"), number(row, "peak")
        if achieved is None or not peak or max(achieved, peak) >= _UNREADABLE:
            continue
        key = int(number(row, "device") or 0), int(number(row, "node") or 0), str(row["name"]), str(row["unit"])
        samples[key].append((achieved, peak))
    return [
        CounterUnit(
            device=device,
            name=name if not node else f"{name}, core {node}",
            unit=unit,
            achieved=sum(achieved for achieved, _ in some),
            peak=sum(peak for _, peak in some),
            busiest=max(achieved / peak for achieved, peak in some),
        )
        for (device, node, name, unit), some in samples.items()
    ]


def _counts(rows: Sequence[Mapping[str, Value]]) -> tuple[list[Count], int]:
    sums: dict[tuple[str, int, str, str, str], float] = defaultdict(float)
    unreadable = 0
    for row in rows:
        value = number(row, "Value") or 0.0
        if value >= _UNREADABLE:
            unreadable += 1
        elif value:
            chip = int(number(row, "Chip") or 0)
            sums[str(row["Host"]), chip, str(row["Kernel"]), str(row["Counter"]), str(row["Description"] or "")] += (
                value
            )
    found = [
        Count(host=host, chip=chip, kernel=kernel, counter=counter, count=value, meaning=meaning)
        for (host, chip, kernel, counter, meaning), value in sums.items()
    ]
    return sorted(found, key=lambda one: (-one.count, one.counter)), unreadable
