"""How steps vary, from one to the next and from device to device, and how long devices wait for the host."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from harness.records import Capture, Column, Device, Period, Table
from harness.units import percent
from harness.workbench.profiles import intervals
from harness.workbench.profiles.classes import COMMUNICATION, op_class
from harness.workbench.profiles.intervals import Interval
from harness.workbench.profiles.op_times import device_label, devices, origin, running, share, steps, why_nothing_ran
from harness.workbench.tables import Field, Fields, table, table_of

# Protocol, section 6: step time varying more than this between devices is a load imbalance.
IMBALANCE = 0.05
# Protocol, section 8: input under 10 % of the time.
INPUT = 0.10
_HOST_ROWS = 5

_VARIATION = (
    Column(name="what", title="variation"),
    Column(name="spread", title="spread", unit="fraction"),
    Column(name="limit", title="limit", unit="fraction"),
    Column(name="verdict", title="verdict", is_whole=True),
)
_HOST = (
    Column(name="period", title="the host meanwhile"),
    Column(name="line", title="thread"),
    Column(name="seconds", title="of the idle time", unit="s"),
    Column(name="share", title="share", unit="fraction"),
)

MARK_STEPS = 'To mark steps, put each in jax.profiler.StepTraceAnnotation("train", step_num=n).'
_NAME_FUNCTIONS = (
    "Functions of your own stand here by name where they are decorated with jax.profiler.annotate_function; a block of "
    "lines does in jax.profiler.TraceAnnotation"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """The steps of one device: how long each took, what it worked itself in it, and when it was idle."""

    device: Device
    steps: tuple[Period, ...]
    own_seconds: tuple[float, ...]
    idle: tuple[Interval, ...]

    @property
    def seconds(self) -> tuple[float, ...]:
        """How long each step took."""
        return tuple(step.seconds for step in self.steps)

    @property
    def idle_fraction(self) -> float:
        """Idle time in the steps over their time."""
        return intervals.length(self.idle) / sum(self.seconds)


def steps_table(capture: Capture) -> tuple[Table, ...]:
    """Steps by device, their variation against the limits, and what the host did while the devices were idle."""
    found = devices(capture)
    stepped = [_stepped(device) for device in found if sum(step.seconds for step in steps(device)[0]) > 0]
    why = (
        ""
        if stepped
        else f"the capture shows neither steps nor runs of modules. {MARK_STEPS.removesuffix('.')}"
        if found
        else why_nothing_ran(capture)
    )
    fields: Fields[Stepped] = (
        Field("device", "device", lambda one: device_label(one.device, found)),
        Field("count", "steps", lambda one: len(one.steps), "count"),
        Field("median_seconds", "median", lambda one: median(one.seconds), "s"),
        Field("shortest_seconds", "shortest", lambda one: min(one.seconds), "s"),
        Field("longest_seconds", "longest", lambda one: max(one.seconds), "s"),
        Field("spread", "spread", lambda one: spread(one.seconds), "fraction"),
        Field("own_seconds", "own work", lambda one: median(one.own_seconds), "s"),
        Field("idle_fraction", "idle", lambda one: one.idle_fraction, "fraction"),
    )
    what = steps(stepped[0].device)[1] if stepped else ""
    marks = "" if stepped and stepped[0].device.steps else f" {MARK_STEPS}"
    note = (
        f"Steps: {what}.{marks} Own work is the median without collectives: devices that wait for each other take "
        "equally long, whatever their share of the work."
    )
    return (
        table_of("steps", "Steps by device", origin(capture), fields, stepped, (note,), why),
        _variation(capture, stepped, why),
        _host(capture, stepped, why),
    )


def idle_in_steps(capture: Capture) -> float | None:
    """The share of the steps in which all devices are idle together; None where the capture shows no steps."""
    stepped = [_stepped(device) for device in devices(capture) if sum(step.seconds for step in steps(device)[0]) > 0]
    return intervals.length(_together(stepped)) / sum(stepped[0].seconds) if stepped else None


def _together(stepped: Sequence[Stepped]) -> tuple[Interval, ...]:
    """When all devices were idle, in the steps of each."""
    idle = stepped[0].idle if stepped else ()
    for one in stepped[1:]:
        idle = intervals.common(idle, one.idle)
    return idle


def spread(values: Sequence[float]) -> float | None:
    """Longest minus shortest over the median: None of a single value."""
    return share(max(values) - min(values), median(values)) if len(values) > 1 else None


def _stepped(device: Device) -> Stepped:
    found, _ = steps(device)
    busy = intervals.busy(device)
    kinds = [op_class(operation) == COMMUNICATION for operation in device.operations]
    own = intervals.union(Interval(run.start, run.end) for run in running(device) if not kinds[run.operation])
    windows = [Interval(step.start, step.end) for step in found]
    return Stepped(
        device=device,
        steps=found,
        own_seconds=tuple(intervals.length(intervals.within(own, window)) for window in windows),
        idle=tuple(gap for window in windows for gap in intervals.holes(window, busy)),
    )


def _variation(capture: Capture, stepped: Sequence[Stepped], why: str) -> Table:
    between_steps = [value for one in stepped if (value := spread(one.seconds)) is not None]
    uneven = max(between_steps, default=None)
    step = spread([median(one.seconds) for one in stepped])
    own = spread([median(one.own_seconds) for one in stepped])
    idle = max((one.idle_fraction for one in stepped), default=None)
    checks = (
        ("between steps, on the device where it is largest", uneven, IMBALANCE, "uneven steps"),
        ("between devices, step time", step, IMBALANCE, "load imbalance"),
        ("between devices, own work", own, IMBALANCE, "load imbalance"),
        ("idle in a step, on the device where it is largest", idle, INPUT, "input pipeline or host"),
    )
    rows = [
        (what, value, limit, "unknown: only one" if value is None else bad if value > limit else "fine")
        for what, value, limit, bad in checks
    ]
    note = (
        "Spread = (longest - shortest) / median. "
        f"Limits: {percent(IMBALANCE, 0)} between devices (protocol, section 6), {percent(INPUT, 0)} input "
        "(section 8); that between steps is ours, the same as between devices."
    )
    title = "Variation and idle time against the limits"
    return table("variation", title, origin(capture), _VARIATION, () if why else rows, (note,), why)


def _host(capture: Capture, stepped: Sequence[Stepped], why: str) -> Table:
    """What the host did while every device was idle."""
    together = _together(stepped)
    whole = intervals.length(together)
    did: dict[tuple[str, str], list[Interval]] = defaultdict(list)
    marks = {step.name for one in stepped for step in one.steps}
    for period in capture.host_periods:
        # The annotation of a step lasts as long as the step and says nothing.
        if period.step is None and period.name not in marks:
            did[period.name, period.line] += intervals.within(together, Interval(period.start, period.end))
    # Calls of one name may lie inside each other: their time counts once.
    took = {key: intervals.length(intervals.union(found)) for key, found in did.items() if found}
    ranked = sorted(took.items(), key=lambda item: -item[1])[:_HOST_ROWS]
    rows = [(name, line or None, value, value / whole) for (name, line), value in ranked]
    why = why or _why_no_host(capture, whole)
    shared = percent(whole / sum(stepped[0].seconds)) if stepped else ""
    notes = (f"Idle on all devices in the steps: {shared} of their time.", f"{_NAME_FUNCTIONS}.")
    return table("host", "The host while all devices were idle", origin(capture), _HOST, rows, notes, why)


def _why_no_host(capture: Capture, idle_seconds: float) -> str:
    if idle_seconds <= 0:
        return "there is no time in the steps in which all devices are idle"
    if capture.is_simulated:
        return "a simulated capture has no host"
    return (
        "the capture shows nothing of the host in the idle time: trace the host as well (host_tracer_level 1 or 2). "
        f"{_NAME_FUNCTIONS}"
    )
