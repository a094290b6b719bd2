"""A run on an XProf server, read like a capture's file: the server's trace events, plus figures from its tables."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harness import reading_limits
from harness.dumps.xplane import Described, Event, Line, Plane, Space, Value
from harness.errors import RatchetError
from harness.workbench.profiles import conversion
from harness.workbench.profiles.conversion import GIBIBYTES, GIGAFLOPS, MICROSECOND, number
from harness.workbench.profiles.remote import Remote, decode

# The trace viewer stops at this number of events (xprof 2.24).
MOST_EVENTS = 1_000_000
_PICOSECONDS_PER_MICROSECOND = 1_000_000
# XProf derives lines of a device from other lines, and gives them this number or a higher one (kThreadIdDerivedMin of
# its trace_utils). Threads of a host may have any number.
_DERIVED = 0xDEADBEEF
# Numbers of programs have 64 bits.
_DIGITS = 21
# Statistics that files store as numbers; the trace viewer writes each as text.
_NUMBERS = frozenset(
    {
        "bytes_accessed",
        "device_duration_ps",
        "device_offset_ps",
        "device_ordinal",
        "flops",
        "model_flops",
        "program_id",
        "hbm_bytes",
        "run_id",
        "step_num",
    }
)
# The prefix of a simulated run's statistics that are numbers.
_SIMULATED = "simulated "


class _Traced(msgspec.Struct):
    """One event of the trace viewer; the last event of a trace is empty.

    `args` are its statistics. In an event that names a process or thread, they contain the name.
    """

    pid: int = 0
    tid: int = 0
    ph: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, Any] = {}


class _RemoteTrace(msgspec.Struct):
    traceEvents: list[_Traced]


def protos(host: Remote) -> dict[str, bytes]:
    """The serialized HloProto of every module of the run, by name."""
    return {
        name: host.ask("graph_viewer", {"host": host.host, "module_name": name, "type": "pb"})
        for name in host.modules()
    }


def space(host: Remote) -> Space:
    """The host's capture: the trace viewer's events, plus figures from XProf's tables that the events lack.

    FLOPs come from hlo_stats, and a device's peaks from roofline_model. The module of an operation is that of the run
    around it.
    """
    data = host.ask("trace_viewer", {"host": host.host})
    reading_limits.note_objects(len(data))
    events = decode(data, host.server, _RemoteTrace).traceEvents
    names = {event.pid: str(event.args.get("name", "")) for event in events if event.name == "process_name"}
    lines = {(event.pid, event.tid): str(event.args.get("name", "")) for event in events if event.name == "thread_name"}
    timed: dict[tuple[int, int], list[_Traced]] = defaultdict(list)
    for event in events:
        is_derived = event.tid >= _DERIVED and names.get(event.pid, "").startswith("/device:")
        if event.ph in ("X", "i") and not is_derived:
            timed[event.pid, event.tid].append(event)
    modules = protos(host) if not any(name.startswith("/device:TPU") for name in names.values()) else {}
    flops, stats = ({}, {}) if modules else (_flops(host), _peaks(host))
    planes = []
    for pid, name in names.items():
        of_lines = {tid: timed[pid, tid] for (process, tid) in lines if process == pid and (pid, tid) in timed}
        runs = [event for tid in of_lines if lines[pid, tid] == "XLA Modules" for event in of_lines[tid]]
        described: dict[tuple[str, str], Described] = {}
        planes.append(
            Plane(
                name=name,
                stats=stats if name.startswith("/device:") else {},
                lines=tuple(
                    _line(lines[pid, tid], _events(of_lines[tid], runs, modules, flops, described)) for tid in of_lines
                ),
                described=tuple(described.values()),
            )
        )
    kept = tuple(Described(name=name, stats={"Hlo Proto": proto}) for name, proto in modules.items())
    planes.append(Plane(name="/host:metadata", stats={}, lines=(), described=kept))
    cut = (f"the trace viewer stops at {MOST_EVENTS:,} events, so later events are not read",)
    return Space(
        planes=tuple(planes), hostnames=(host.host,), errors=(), warnings=cut if len(events) >= MOST_EVENTS else ()
    )


def _line(name: str, events: tuple[Event, ...]) -> Line:
    return Line(name=name, events=events, start_ps=min((event.start_ps for event in events), default=None))


def _events(
    events: Sequence[_Traced],
    runs: Sequence[_Traced],
    modules: Mapping[str, bytes],
    flops: Mapping[tuple[int | None, str], float],
    described: dict[tuple[str, str], Described],
) -> tuple[Event, ...]:
    """The events of one line.

    `runs` are the module runs on the same device; an operation belongs to the module of the run around it.
    """
    ordered = sorted(runs, key=lambda run: run.ts)
    placed, at = [], 0
    for event in sorted(events, key=lambda event: event.ts):
        while at + 1 < len(ordered) and ordered[at + 1].ts <= event.ts:
            at += 1
        stats = {name: _value(name, str(text)) for name, text in event.args.items()}
        text = str(stats.pop("long_name", "")) or event.name
        around = ordered[at].name if ordered else _module_called(str(stats.get("hlo_module", "")), modules)
        if "hlo_category" in stats or "hlo_module" in stats:
            program = _integer(around.rpartition("(")[2].removesuffix(")"))
            if program is not None:
                stats.setdefault("program_id", program)
            if flops.get((program, event.name)):
                stats.setdefault("flops", flops[program, event.name])
        of = described.setdefault((around, text), Described(name=text, display_name=event.name, stats=stats))
        start = round(event.ts * _PICOSECONDS_PER_MICROSECOND)
        length = round(event.dur * _PICOSECONDS_PER_MICROSECOND)
        placed.append(Event(of=of, start_ps=start, duration_ps=length, stats=stats))
    return tuple(placed)


def _module_called(plain: str, modules: Mapping[str, bytes]) -> str:
    """The only module called `plain`, with its number; `plain` if there is none, or several."""
    named = [name for name in modules if name.partition("(")[0] == plain]
    return named[0] if len(named) == 1 else plain


def _value(name: str, text: str) -> Value:
    number = _integer(text) if name in _NUMBERS or name.startswith(_SIMULATED) else None
    return text if number is None else number


def _flops(host: Remote) -> dict[tuple[int | None, str], float]:
    """FLOPs of one execution, by (program, operation), computed from XProf's rates and times."""
    return {
        (_integer(row.get("program_id")), str(row.get("hlo_op_name"))): round(rate * took)
        for row in conversion.ask((host,), "hlo_stats")[0].rows
        if (rate := number(row, "model_flop_rate", GIGAFLOPS)) and (took := number(row, "avg_time", MICROSECOND))
    }


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS else None


def _peaks(host: Remote) -> dict[str, Value]:
    """The statistics of a device's plane: the kind of device and its peaks."""
    properties = conversion.ask((host,), "roofline_model")[0].properties
    if not properties.get("device_type"):
        return {}
    try:
        flops, bandwidth = float(properties["peak_flop_rate"]) * GIGAFLOPS, float(properties["peak_hbm_bw"]) * GIBIBYTES
    except (KeyError, ValueError, TypeError) as error:
        raise RatchetError(
            "no-answer", f"XProf at {host.server} states no peaks of {properties['device_type']}"
        ) from error
    return {
        "device_type_string": properties["device_type"],
        "peak_teraflops_per_second": flops / 1e12,
        "peak_hbm_bw_gigabytes_per_second": bandwidth / 1e9,
    }
