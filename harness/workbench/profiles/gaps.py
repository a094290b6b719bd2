"""Idle time between operations: bubble fractions, the largest gaps with what stands around them, known patterns."""

from collections.abc import Iterator, Sequence

from harness.records import Capture, Device, Period, Table
from harness.units import percent
from harness.workbench.profiles import intervals, patterns
from harness.workbench.profiles.bubbles import (
    BETWEEN,
    EDGE_STEPS,
    EXCELLENT,
    FAIR,
    FEWEST_STEPS,
    GOOD,
    RED_FLAG,
    DevicePart,
    parts,
    verdict,
)
from harness.workbench.profiles.classes import is_custom_call
from harness.workbench.profiles.inside import inside_table
from harness.workbench.profiles.intervals import IdleInterval, Interval
from harness.workbench.profiles.op_times import device_label, devices, origin, steps, why_nothing_ran
from harness.workbench.tables import Field, Fields, table_of

_IDLE: Fields[tuple[str, DevicePart, float | None]] = (
    Field("device", "device", lambda one: one[0]),
    Field("part", "part", lambda one: one[1].name),
    Field("seconds", "time", lambda one: one[1].seconds, "s"),
    Field("idle_seconds", "idle", lambda one: intervals.length(one[1].idle), "s"),
    Field("idle_fraction", "fraction", lambda one: one[1].fraction, "fraction"),
    Field("gaps", "gaps", lambda one: len(one[1].idle), "count"),
    Field("custom_fraction", "inside kernels", lambda one: one[2], "fraction"),
    Field("verdict", "verdict", lambda one: _verdict(one[1], one[2]), is_whole=True),
)
# From here on what happens between operations says little about how busy the units are.
_MOSTLY = 0.5
# The category of an operation of which the simulator had only the name.
_UNKNOWN = "unknown"


def gaps_and_inside(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """What `gaps` says; where kernels fill a run also what the capture's files show inside them.

    Raises RatchetError where they cannot be read.
    """
    filled = (_in_kernels(device, part) for device in devices(capture) for part in parts(device))
    is_needed = any(share is not None and share > _MOSTLY for share in filled)
    return (*gaps(capture, top), *((inside_table(capture),) if is_needed else ()))


def gaps(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Idle time by device and part, the `top` largest gaps, and which of the known patterns show."""
    found = devices(capture)
    why = "" if found else why_nothing_ran(capture)
    by_part = [
        (device_label(device, found), part, _in_kernels(device, part)) for device in found for part in parts(device)
    ]
    return (
        table_of("idle", "Idle time between operations", origin(capture), _IDLE, by_part, _notes(found), why),
        _largest(capture, found, top, why),
        patterns.pattern_table(capture, found, why),
    )


def _in_kernels(device: Device, part: DevicePart) -> float | None:
    """How much of the part's time custom calls fill, or operations of which the capture does not say what they are.

    What is idle inside them is not seen between operations.
    """
    if part.name == BETWEEN or not part.seconds:
        return None
    kernels = [
        Interval(run.start, run.end)
        for run in device.executions
        if is_custom_call(device.operations[run.operation]) or device.operations[run.operation].category == _UNKNOWN
    ]
    filled = intervals.common(part.inside, intervals.union(kernels))
    return intervals.length(filled) / part.seconds


def _verdict(part: DevicePart, in_kernels: float | None) -> str:
    said = verdict(part)
    if in_kernels is not None and in_kernels > _MOSTLY and said in (GOOD, FAIR):
        return "unknown: kernels fill it, see inside them below"
    return said


def _notes(found: Sequence[Device]) -> Iterator[str]:
    yield (
        f"Bubble fraction: under {percent(EXCELLENT, 0)} excellent, over {percent(RED_FLAG, 0)} a red flag "
        "(protocol, section 3, item 4)."
    )
    counts = sorted({len(steps(device)[0]) for device in found})
    what = steps(found[0])[1]
    if counts[-1] >= FEWEST_STEPS:
        yield f"Fill and drain are the first and last {EDGE_STEPS} {what}."
    else:
        yield (f"Fill and drain are not told apart: that takes {FEWEST_STEPS} steps, here {counts[-1]} ({what}).")
    if all(not device.modules for device in found):
        yield "The capture shows no runs of modules, so that idle time of the host is in the bubble fraction."
    yield (
        "A Pallas kernel is one operation here. Where kernels fill a run, a table below looks inside them; of an "
        "attempt `ratchet.sh show N` does."
    )


def _largest(capture: Capture, found: Sequence[Device], top: int | None, why: str) -> Table:
    every = [(device, gap) for device in found for gap in intervals.idle(device)]
    every.sort(key=lambda item: -item[1].interval.seconds)
    fields: Fields[tuple[Device, IdleInterval]] = (
        Field("device", "device", lambda one: device_label(one[0], found)),
        Field("start_seconds", "at", lambda one: one[1].interval.start, "s"),
        Field("seconds", "gap", lambda one: one[1].interval.seconds, "s"),
        Field("place", "where", lambda one: _place(*one)),
        Field("before", "after this", lambda one: one[1].before),
        Field("after", "before this", lambda one: one[1].after),
        Field("host", "host meanwhile", lambda one: host_meanwhile(capture.host_periods, (one[1].interval,))),
    )
    shown = every[:top]
    notes = (f"{len(shown)} of {len(every)} gaps are shown.",) if len(shown) < len(every) else ()
    why = why or "no operation waited for another: they follow each other without a gap"
    return table_of("largest_gaps", "Largest gaps", origin(capture), fields, shown, notes, why)


def _place(device: Device, gap: IdleInterval) -> str:
    middle = (gap.interval.start + gap.interval.end) / 2
    for module in device.modules:
        if module.start <= middle <= module.end:
            return f"inside {module.name}"
    return BETWEEN if device.modules else "unknown"


def host_meanwhile(periods: Sequence[Period], idle: Sequence[Interval]) -> str | None:
    """What the host did for most of the `idle` time; of several the shortest, which says most. None: nothing known."""
    best: tuple[float, float, str] | None = None
    # The annotation of a step lasts as long as the step and says nothing.
    for period in (period for period in periods if period.step is None):
        shared = intervals.length(intervals.within(idle, Interval(period.start, period.end)))
        if shared > 0 and (best is None or (shared, -period.seconds) > best[:2]):
            best = (shared, -period.seconds, period.name)
    return best[2] if best else None
