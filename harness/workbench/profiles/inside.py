"""What a capture shows inside its kernels: where a simulated run's cycles went, or rows that the device recorded."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.dumps.xplane import Event, Plane, Value
from harness.records import Capture, Table
from harness.workbench.profiles import intervals, reading
from harness.workbench.profiles.bubbles import rating
from harness.workbench.profiles.intervals import Interval
from harness.workbench.profiles.op_times import origin, share
from harness.workbench.profiles.reading import KNOWN_LINES, OPS_LINE, TPU_PLANE, sources
from harness.workbench.tables import Field, Fields, table_of

# How the simulator begins the statistics of a module's run (render/traces/xspace.py), and ends the rows it draws.
_CYCLES, _DRAWN = "simulated cycles: ", " (simulated)"
_ISSUING = "issuing"
_CUSTOM_CALL = "custom-call"
_DIGITS = 21
_PICOSECONDS = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """A part of the time inside the kernels of a device: cycles of the simulator, or what a row of the device fills."""

    device: str
    part: str
    amount: float
    whole: float
    reading: str = ""


def inside_table(capture: Capture) -> Table:
    """Of each device with kernels the parts of its simulated cycles, else the rows recorded beside its operations."""
    planes = [
        (match[1], plane)
        for source in sources(capture)
        for plane in reading.space(source).planes
        if (match := TPU_PLANE.fullmatch(plane.name))
    ]
    is_simulated = any(_cycles(plane) for _, plane in planes)
    found = [part for device, plane in planes for part in (_simulated(device, plane) or _recorded(device, plane))]
    fields: Fields[Inside] = (
        Field("device", "device", lambda one: one.device),
        Field("part", "inside", lambda one: one.part),
        Field("cycles" if is_simulated else "seconds", "cycles" if is_simulated else "time", lambda one: one.amount,
              "count" if is_simulated else "s"),
        Field("share", "share", lambda one: share(one.amount, one.whole), "fraction"),
        Field("reading", "reading", lambda one: one.reading or None, is_whole=True),
    )  # fmt: skip
    notes = (
        "Cycles of the whole simulated run; bubbles are those in which nothing is issued. By source line: `ratchet.sh "
        "lines N`, in time: `ratchet.sh timeline N`."
        if is_simulated
        else "Rows that the device recorded beside its operations, as far as they lie inside custom calls.",
    )
    why = (
        "the capture shows nothing inside its kernels: on a TPU that takes LIBTPU_INIT_ARGS="
        "--xla_xprof_enable_custom_call_tracing=true; of an attempt `ratchet.sh timeline N` writes the simulated inside"
    )
    return table_of("inside", "Inside the kernels", origin(capture), fields, found, notes, why)


def _cycles(plane: Plane) -> dict[str, int]:
    """Where the cycles of a simulated core went; nothing of one that was measured, or written by an older version."""
    said = {
        name.removeprefix(_CYCLES): _integer(value)
        for line in plane.lines
        for event in line.events
        for name, value in event.stats.items()
        if name.startswith(_CYCLES)
    }
    return {name: cycles for name, cycles in said.items() if cycles is not None}


def _integer(value: Value) -> int | None:
    # A server's trace viewer has all statistics as text.
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < _DIGITS else None
    return value if isinstance(value, int) else None


def _simulated(device: str, plane: Plane) -> list[Inside]:
    parts = _cycles(plane)
    whole = sum(parts.values())
    if not whole:
        return []
    idle = whole - parts.get(_ISSUING, 0)
    rows = [Inside(device=device, part="bubbles", amount=idle, whole=whole, reading=rating(idle / whole))]
    ranked = sorted(parts.items(), key=lambda part: -part[1])
    return [*rows, *(Inside(device=device, part=name, amount=cycles, whole=whole) for name, cycles in ranked)]


def _recorded(device: str, plane: Plane) -> Iterator[Inside]:
    """What rows besides the operations fill of the time inside custom calls, and what none of them does."""
    # Times since 1970 in seconds would lose their nanoseconds.
    zero = min((event.start_ps for line in plane.lines for event in line.events), default=0)
    kernels = _filled(
        (event for line in plane.lines if line.name == OPS_LINE for event in line.events if _is_kernel(event)), zero
    )
    whole = intervals.length(kernels)
    rows = [line for line in plane.lines if line.name not in KNOWN_LINES and not line.name.endswith(_DRAWN)]
    shared = [(line.name, intervals.common(_filled(line.events, zero), kernels)) for line in rows]
    filled = [(name, some) for name, some in shared if some]
    if not filled or not whole:
        return
    for name, some in filled:
        yield Inside(device=device, part=name, amount=intervals.length(some), whole=whole)
    together = intervals.length(intervals.union(piece for _, some in filled for piece in some))
    yield Inside(device=device, part="in none of these rows", amount=whole - together, whole=whole)


def _is_kernel(event: Event) -> bool:
    return (event.of.stats.get("hlo_category") or event.stats.get("hlo_category")) == _CUSTOM_CALL


def _filled(events: Iterable[Event], zero_ps: int) -> tuple[Interval, ...]:
    """When any of the events lasted, in seconds after `zero_ps`."""
    return intervals.union(
        Interval(
            (event.start_ps - zero_ps) / _PICOSECONDS, (event.start_ps + event.duration_ps - zero_ps) / _PICOSECONDS
        )
        for event in events
        if event.occurrences is None
    )
