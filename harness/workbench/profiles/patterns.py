"""What a timeline can show at a glance: the protocol's patterns as rules, each with what was seen and what to try."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from harness.records import Capture, Column, Device, Table
from harness.units import seconds
from harness.workbench.profiles import intervals
from harness.workbench.profiles.breakdown import FORMATTING_LIMIT
from harness.workbench.profiles.bubbles import BETWEEN, RED_FLAG, STEADY, inside, parts
from harness.workbench.profiles.classes import (
    COMMUNICATION,
    DATA_FORMATTING,
    TRANSFER,
    half,
    is_host_transfer,
    op_class,
)
from harness.workbench.profiles.intervals import Interval
from harness.workbench.profiles.op_times import OperationTime, op_times, origin, running
from harness.workbench.tables import table

# What of a device's time is much, where the protocol names no number: its red flag for idle time (section 3, item 4).
_MUCH = RED_FLAG
_SOURCE = (
    "Patterns: protocol, section 3. Where it names no number, much is what its item 4 calls a red flag; that one block "
    "is long from half of the time on is ours."
)
# Ours: one operation with more than half of the time is what the timeline consists of.
_MOST = 0.5

_COLUMNS = (
    Column(name="pattern", title="pattern"),
    Column(name="is_seen", title="seen"),
    Column(name="value", title="found", unit="fraction"),
    Column(name="threshold", title="from", unit="fraction"),
    Column(name="observation", title="what"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """What the rules look at: devices, and their operations by time."""

    devices: tuple[Device, ...]
    operations: tuple[OperationTime, ...]

    @property
    def busy_seconds(self) -> float:
        """Self time of all operations."""
        return sum(one.self_seconds for one in self.operations)

    def share(self, seconds: float) -> float | None:
        """How much of the operations' time `seconds` are."""
        return seconds / self.busy_seconds if self.busy_seconds > 0 else None

    def of_class(self, *classes: str) -> tuple[OperationTime, ...]:
        """The operations of `classes`."""
        return tuple(one for one in self.operations if op_class(one.operation) in classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One pattern: `seen` gives the figure and what it is; None for the figure where the capture cannot show it."""

    name: str
    threshold: float
    advice: str
    seen: Callable[[DeviceView], tuple[float | None, str]]


def pattern_table(capture: Capture, found: Sequence[Device], why_empty: str) -> Table:
    """Each pattern of the protocol: whether it shows, by what figure, and what it means."""
    view = DeviceView(devices=tuple(found), operations=op_times(found))
    rows, notes = [], []
    for pattern in () if why_empty else PATTERNS:
        value, observation = pattern.seen(view)
        is_seen = None if value is None else value > pattern.threshold
        rows.append((pattern.name, is_seen, value, pattern.threshold, observation))
        if is_seen:
            notes.append(f"{pattern.name}: {pattern.advice}.".capitalize())
    return table("patterns", "Patterns of the timeline", origin(capture), _COLUMNS, rows, (*notes, _SOURCE), why_empty)


def _bubbles(view: DeviceView) -> tuple[float | None, str]:
    """Fill and drain left out where there are steps enough to tell them (protocol, section 3, item 4)."""
    found = [tuple(parts(device)) for device in view.devices]
    runs = [next((part for part in some if part.name.startswith(STEADY)), some[0]) for some in found]
    whole = sum(part.seconds for part in runs)
    idle = sum(intervals.length(part.idle) for part in runs)
    is_steady = all(part.name.startswith(STEADY) for part in runs)
    return (idle / whole if whole > 0 else None), f"idle time inside the {'steady steps' if is_steady else 'runs'}"


def _transfers(view: DeviceView) -> tuple[float | None, str]:
    return _waited(view, "between the device's memories", of_host=False)


def _host_transfers(view: DeviceView) -> tuple[float | None, str]:
    return _waited(view, "from or to the host's memory", of_host=True)


def _waited(view: DeviceView, where: str, *, of_host: bool) -> tuple[float | None, str]:
    halves = [
        one
        for one in view.of_class(TRANSFER)
        if half(one.operation) == "done" and is_host_transfer(one.operation) == of_host
    ]
    if not halves:
        return None, f"no asynchronous transfer {where}"
    longest = halves[0].operation.name
    return view.share(sum(one.self_seconds for one in halves)), f"waiting for transfers {where}, longest {longest}"


def _short_blocks(view: DeviceView) -> tuple[float | None, str]:
    waits = [wait for device in view.devices for wait in _waits(device)]
    if not waits:
        return None, "no gap between the operations of a run"
    # Half of the time is in longer ones: copies of nothing, of which there may be most, do not make a block short.
    lengths = sorted(run.seconds for device in view.devices for run in running(device))
    half_of_all = sum(lengths) / 2
    took = next(length for length, so_far in zip(lengths, accumulate(lengths), strict=True) if so_far >= half_of_all)
    observation = f"median gap {seconds(median(waits))}, operation {seconds(took)}"
    return (median(waits) / took if took > 0 else None), observation


def _long_block(view: DeviceView) -> tuple[float | None, str]:
    longest = view.operations[0]
    return view.share(longest.self_seconds), f"longest operation: {longest.operation.name}"


def _copies(view: DeviceView) -> tuple[float | None, str]:
    copies = view.of_class(DATA_FORMATTING)
    names = ", ".join(one.operation.name for one in copies[:2])
    found = f"copies and other formatting, {names}" if copies else "no copy, no data formatting"
    return view.share(sum(one.self_seconds for one in copies)), found


def _edges(view: DeviceView) -> tuple[float | None, str]:
    whole = edge = 0.0
    for device in view.devices:
        busy = intervals.busy(device)
        for run in inside(device):
            own = intervals.within(busy, run)
            whole += run.seconds
            edge += own[0].start - run.start + run.end - own[-1].end if own else run.seconds
    return (edge / whole if whole > 0 else None), "idle before first, after last operation of a run"


def _collectives(view: DeviceView) -> tuple[float | None, str]:
    found = view.of_class(COMMUNICATION)
    if not found:
        return 0.0, "no collective"
    return view.share(sum(one.self_seconds for one in found)), f"collectives, longest {found[0].operation.name}"


def _host(view: DeviceView) -> tuple[float | None, str]:
    outside = [part for device in view.devices for part in parts(device) if part.name == BETWEEN]
    whole = sum(part.seconds for part in outside)
    if not whole:
        return None, "each device shows one run only"
    return sum(intervals.length(part.idle) for part in outside) / whole, "idle time between the runs"


def _waits(device: Device) -> Iterator[float]:
    """The length of each gap inside a run."""
    runs = inside(device)
    for gap in intervals.idle(device):
        middle_of_it = (gap.interval.start + gap.interval.end) / 2
        if intervals.within(runs, Interval(middle_of_it, gap.interval.end)):
            yield gap.interval.seconds


PATTERNS = (
    Pattern(name="gaps between blocks", threshold=_MUCH, advice="more steps or larger blocks", seen=_bubbles),
    Pattern(
        name="transfers not overlapped",
        threshold=_MUCH,
        advice="double buffering is off or too shallow",
        seen=_transfers,
    ),
    Pattern(
        name="host transfers not overlapped",
        threshold=_MUCH,
        advice="start them earlier, beside more work, or offload less",
        seen=_host_transfers,
    ),
    Pattern(name="many very short blocks", threshold=_MUCH, advice="blocks are too small", seen=_short_blocks),
    Pattern(name="one very long block", threshold=_MOST, advice="good, if it has steps enough", seen=_long_block),
    Pattern(name="copies", threshold=FORMATTING_LIMIT, advice="look for aliasing, layouts and sharding", seen=_copies),
    Pattern(name="idle at start and end", threshold=_MUCH, advice="fill and drain; the grid is small", seen=_edges),
    Pattern(
        name="large collectives",
        threshold=_MUCH,
        advice="wrong sharding? with_sharding_constraint or shard_map",
        seen=_collectives,
    ),
    Pattern(
        name="idle while the host works",
        threshold=_MUCH,
        advice="input pipeline or host synchronisation; jax.profiler.annotate_function on the suspects names them",
        seen=_host,
    ),
)
