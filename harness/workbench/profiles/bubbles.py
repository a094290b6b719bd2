"""How much of a device's runs is idle: all of them, fill, steady steps and drain, and the time between runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.records import Device
from harness.units import quantity
from harness.workbench.profiles import intervals
from harness.workbench.profiles.intervals import Interval
from harness.workbench.profiles.op_times import steps

# Protocol, section 3, item 4: under 5 % is excellent, over 10 % a red flag.
EXCELLENT, RED_FLAG = 0.05, 0.10
# The same item: the first and last 2 to 3 steps are fill and drain. Two leave a middle from six steps on.
EDGE_STEPS = 2
FEWEST_STEPS = 3 * EDGE_STEPS

# Ours: programs that are queued follow each other on a v6e within 1.4 to 1.7 us (one capture, 396 pairs of runs). Such
# idle time is the device's own, and no wait for the host.
_QUEUED_SECONDS = 2e-6

BETWEEN, STEADY = "between runs", "steady"
GOOD, FAIR, BAD = "excellent", "fair", "red flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """A part of a device's time: `inside` are the runs it consists of, idle time there is a bubble."""

    name: str
    inside: tuple[Interval, ...]
    idle: tuple[Interval, ...]

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return intervals.length(self.inside)

    @property
    def fraction(self) -> float | None:
        """How much of it was idle."""
        return intervals.length(self.idle) / self.seconds if self.seconds > 0 else None


def parts(device: Device) -> Iterator[DevicePart]:
    """All runs together, fill, steady steps and drain where there are steps enough, and what lies between the runs."""
    runs = inside(device)
    busy = intervals.busy(device)
    yield _part("all runs", runs, busy)
    found, _ = steps(device)
    if len(found) >= FEWEST_STEPS:
        edges = (
            ("fill", found[:EDGE_STEPS]),
            (STEADY, found[EDGE_STEPS:-EDGE_STEPS]),
            ("drain", found[-EDGE_STEPS:]),
        )
        for name, some in edges:
            yield _part(f"{name}: {quantity(len(some), 'step')}", intervals.common(intervals.of(some), runs), busy)
    if len(runs) > 1:
        outside = tuple(Interval(one.end, other.start) for one, other in pairwise(runs))
        yield DevicePart(name=BETWEEN, inside=(Interval(runs[0].start, runs[-1].end),), idle=outside)


def inside(device: Device) -> tuple[Interval, ...]:
    """The runs of the device's modules, queued ones together; without any, from its first operation to its last."""
    if device.modules:
        return intervals.union((Interval(run.start, run.end) for run in device.modules), _QUEUED_SECONDS)
    busy = intervals.busy(device)
    return (Interval(busy[0].start, busy[-1].end),) if busy else ()


def verdict(part: DevicePart) -> str:
    """The rating of a part that has one: fill, drain and the time between runs, which is the host's, have none."""
    if part.fraction is None:
        return "nothing ran"
    if part.name == BETWEEN:
        return "host or input?" if part.fraction > RED_FLAG else "fine"
    if part.name.startswith(("fill", "drain")):
        return "not counted"
    return rating(part.fraction)


def rating(fraction: float) -> str:
    """What the protocol says to a bubble fraction, wherever it was taken."""
    if fraction < EXCELLENT:
        return GOOD
    return BAD if fraction > RED_FLAG else FAIR


def _part(name: str, runs: tuple[Interval, ...], busy: Sequence[Interval]) -> DevicePart:
    return DevicePart(name=name, inside=runs, idle=tuple(gap for run in runs for gap in intervals.holes(run, busy)))
