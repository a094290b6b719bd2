"""Intervals of time: when a device was busy, when idle, and what stood around an idle interval."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.records import Device, Execution, Period
from harness.workbench.profiles.op_times import running

# Captures count whole picoseconds; what is shorter than half of one comes from rounding.
_LEAST = 0.5e-12


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """From `start` to `end`, in seconds from the capture's first event."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleInterval:
    """An idle interval between two operations: the names of the one that ended before and the one that began after."""

    interval: Interval
    before: str
    after: str


def union(intervals: Iterable[Interval], apart: float = _LEAST) -> tuple[Interval, ...]:
    """The same time in intervals that lie more than `apart` from each other, in order."""
    found: list[Interval] = []
    for one in sorted(intervals):
        if found and one.start <= found[-1].end + apart:
            found[-1] = Interval(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(one)
    return tuple(found)


def length(intervals: Iterable[Interval]) -> float:
    """Seconds of intervals that do not overlap."""
    return sum(one.seconds for one in intervals)


def within(intervals: Sequence[Interval], window: Interval) -> tuple[Interval, ...]:
    """The parts of ordered `intervals` that lie in `window`."""
    first = max(0, bisect_right(intervals, window.start, key=lambda one: one.start) - 1)
    found = []
    # Not a slice: it would copy the rest, which may be a million of them.
    for place in range(first, len(intervals)):
        one = intervals[place]
        if one.start >= window.end:
            break
        if one.end > window.start:
            found.append(Interval(max(one.start, window.start), min(one.end, window.end)))
    return tuple(found)


def holes(window: Interval, busy: Sequence[Interval]) -> Iterator[Interval]:
    """The parts of `window` that the union `busy` leaves free."""
    at = window.start
    for one in within(busy, window):
        if one.start > at + _LEAST:
            yield Interval(at, one.start)
        at = one.end
    if at + _LEAST < window.end:
        yield Interval(at, window.end)


def common(some: Sequence[Interval], others: Sequence[Interval]) -> tuple[Interval, ...]:
    """The time that two unions share."""
    return tuple(part for one in some for part in within(others, one))


def of(periods: Iterable[Period]) -> tuple[Interval, ...]:
    """When any of `periods` lasted."""
    return union(Interval(period.start, period.end) for period in periods)


def busy(device: Device) -> tuple[Interval, ...]:
    """When an operation ran."""
    return union(Interval(run.start, run.end) for run in running(device))


def idle(device: Device) -> tuple[IdleInterval, ...]:
    """Every idle interval between the first operation and the last."""
    found = []
    last: Execution | None = None
    for run in running(device):
        if last is not None and run.start > last.end + _LEAST:
            before, after = device.operations[last.operation].name, device.operations[run.operation].name
            found.append(IdleInterval(interval=Interval(last.end, run.start), before=before, after=after))
        if last is None or run.end > last.end:
            last = run
    return tuple(found)
