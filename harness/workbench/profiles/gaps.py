"""Idle time between operations: bubble fractions, the largest gaps with what stands around them, known patterns."""

from collections.abc import Iterator, Sequence

from harness.records import Capture, Column, Device, Period, Table
from harness.units import percent
from harness.workbench.profiles import intervals, patterns
from harness.workbench.profiles.bubbles import BETWEEN, EDGE_STEPS, EXCELLENT, FEWEST_STEPS, RED_FLAG, parts, verdict
from harness.workbench.profiles.intervals import Idle, Interval
from harness.workbench.profiles.op_times import device_label, devices, origin, steps, why_nothing_ran

_IDLE = (
    Column(name="device", title="device"),
    Column(name="part", title="part"),
    Column(name="seconds", title="time", unit="s"),
    Column(name="idle_seconds", title="idle", unit="s"),
    Column(name="idle_fraction", title="fraction", unit="fraction"),
    Column(name="gaps", title="gaps", unit="count"),
    Column(name="verdict", title="verdict", is_whole=True),
)
_LARGEST = (
    Column(name="device", title="device"),
    Column(name="start_seconds", title="at", unit="s"),
    Column(name="seconds", title="gap", unit="s"),
    Column(name="place", title="where"),
    Column(name="before", title="after this"),
    Column(name="after", title="before this"),
    Column(name="host", title="host meanwhile"),
)


def gaps(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Idle time by device and part, the `top` largest gaps, and which of the known patterns show."""
    found = devices(capture)
    why = "" if found else why_nothing_ran(capture)
    rows = [(device_label(device, found), part) for device in found for part in parts(device)]
    return (
        Table(
            name="idle",
            title="Idle time between operations",
            origin=origin(capture),
            columns=_IDLE,
            rows=tuple(
                (
                    name,
                    part.name,
                    part.seconds,
                    intervals.length(part.idle),
                    part.fraction,
                    len(part.idle),
                    verdict(part),
                )
                for name, part in rows
            ),
            notes=tuple(_notes(found)),
            why_empty=why,
        ),
        _largest(capture, found, top, why),
        patterns.table(capture, found, why),
    )


def _notes(found: Sequence[Device]) -> Iterator[str]:
    if not found:
        return
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
    yield "A Pallas kernel is one operation here: what is idle inside it shows `ratchet.sh timeline`."


def _largest(capture: Capture, found: Sequence[Device], top: int | None, why: str) -> Table:
    every = [(device, gap) for device in found for gap in intervals.idle(device)]
    every.sort(key=lambda item: -item[1].interval.seconds)
    rows = tuple(
        (
            device_label(device, found),
            gap.interval.start,
            gap.interval.seconds,
            _place(device, gap),
            gap.before,
            gap.after,
            host_meanwhile(capture.host_periods, (gap.interval,)),
        )
        for device, gap in every[:top]
    )
    return Table(
        name="largest_gaps",
        title="Largest gaps",
        origin=origin(capture),
        columns=_LARGEST,
        rows=rows,
        notes=(f"{len(rows)} of {len(every)} gaps are shown.",) if len(rows) < len(every) else (),
        why_empty=why or ("" if rows else "no operation waited for another: they follow each other without a gap"),
    )


def _place(device: Device, gap: Idle) -> str:
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
