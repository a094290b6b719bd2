"""A capture at a glance: devices and steps, the program against the roofline, what took longest, XProf's summary."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from harness.errors import RatchetError
from harness.records import Capture, Cell, Column, Device, Table
from harness.workbench.profiles import datatables, intervals
from harness.workbench.profiles.classes import op_class
from harness.workbench.profiles.datatables import GIBIBYTES, GIGAFLOPS, MICROSECOND, DataTable, Value, number
from harness.workbench.profiles.op_times import (
    OperationTime,
    devices,
    op_times,
    origin,
    share,
    steps,
    total_seconds,
    why_nothing_ran,
)
from harness.workbench.profiles.reading import sources
from harness.workbench.profiles.remote import Source
from harness.workbench.profiles.steps import MARK_STEPS
from harness.workbench.tables import Field, Fields, table, table_of

_NO_DEVICE = (
    "XProf's tables are about device planes (/device:TPU:0), and the capture has none: a CPU's operations stand on "
    "the host's threads"
)
# XProf's overview_page says 0.0 % for these also where it knows nothing: without the hardware's counters, and
# for the roofline always (xprof 2.24), where its roofline_model has the figure.
_ZERO_IS_UNKNOWN = (
    ("mxu_utilization_percent", "matrix unit used"),
    ("hbm_utilization_percent", "HBM used"),
    ("memory_bw_utilization_relative_to_hw_limit", "memory bandwidth of the hardware's limit"),
)
_DUTY = ("device_duty_cycle_percent", "device duty cycle, while programs run")
_IDLE = ("device_idle_time_percent", "device idle, of the whole capture")
# A longer time than the devices show is XProf's mistake, not rounding.
_SAME_TIME = 1.01


_DEVICES: Fields[Device] = (
    Field("device", "device", lambda device: device.name),
    Field("host", "host", lambda device: device.host),
    Field("kind", "kind", lambda device: device.kind or device.platform),
    Field("steps", "steps", lambda device: len(_lengths(device)) or None, "count"),
    Field("step_seconds", "step", lambda device: step_seconds(device), "s"),
    Field("shortest_step_seconds", "shortest", lambda device: min(_lengths(device), default=None), "s"),
    Field("longest_step_seconds", "longest", lambda device: max(_lengths(device), default=None), "s"),
    Field("busy_seconds", "busy", lambda device: intervals.length(intervals.busy(device)), "s"),
    Field("idle_fraction", "idle", lambda device: _idle_fraction(device), "fraction"),
    Field("operations", "operations", lambda device: len({run.operation for run in device.executions}), "count"),
    Field("executions", "executions", lambda device: len(device.executions), "count"),
)


def overview(capture: Capture, top: int = 5) -> tuple[Table, ...]:
    """Devices, the program against the roofline, the `top` operations, and XProf's own summary."""
    paths = sources(capture)
    program, scale = _program(capture, paths)
    return _devices(capture), program, _longest(capture, top), _summary(capture, paths, scale)


def step_seconds(device: Device) -> float | None:
    """The median step of `device`, None where it shows none."""
    found = _lengths(device)
    return median(found) if found else None


def _lengths(device: Device) -> list[float]:
    return [step.seconds for step in steps(device)[0]]


def _idle_fraction(device: Device) -> float | None:
    busy = intervals.busy(device)
    span = busy[-1].end - busy[0].start if busy else 0.0
    return 1 - intervals.length(busy) / span if span > 0 else None


def program_row(capture: Capture, paths: Sequence[Source]) -> tuple[Mapping[str, Value], DataTable] | None:
    """XProf's roofline of the program as a whole, with the table it stands in; None without device planes.

    Raises RatchetError where the capture cannot be converted.
    """
    if not any(device.platform != "cpu" for device in devices(capture)):
        return None
    table = datatables.ask(paths, "roofline_model")[0]
    for row in table.rows:
        if (row.get("step"), row.get("operation"), row.get("include_infeed_outfeed")) == ("Total", "Program", True):
            return row, table
    return None


def _devices(capture: Capture) -> Table:
    found = devices(capture)
    length = max((run.end for device in found for run in device.executions), default=0.0)
    notes = []
    if found:
        notes = [
            f"{len(capture.paths)} host{'s' * (len(capture.paths) > 1)}, {len(found)} device{'s' * (len(found) > 1)}; "
            "idle: between a device's first operation and its last, see `xprof gaps`.",
            f"A step is one of the {steps(found[0])[1]}."
            if steps(found[0])[0]
            else f"Steps are not marked. {MARK_STEPS}",
        ]
    return Table(
        name="devices",
        title=f"{capture.name}: {length * 1e3:.3f} ms captured" if found else capture.name,
        origin=origin(capture),
        columns=tuple(field.column for field in _DEVICES),
        rows=tuple(tuple(field.cell(device) for field in _DEVICES) for device in found),
        # Also where nothing ran.
        notes=(*notes, *(f"{sentence}." for sentence in capture.left_out)),
        why_empty="" if found else why_nothing_ran(capture),
    )


_PROGRAM = (
    Column(name="seconds", title="time per core", unit="s"),
    Column(name="flops_per_second", title="FLOP rate", unit="FLOP/s"),
    Column(name="of_peak_flops", title="of peak", unit="fraction"),
    Column(name="hbm_bytes_per_second", title="HBM", unit="B/s"),
    Column(name="of_peak_bandwidth", title="of peak", unit="fraction"),
    Column(name="flops_per_byte", title="intensity", unit="FLOP/B"),
    Column(name="ridge_flops_per_byte", title="ridge", unit="FLOP/B"),
    Column(name="of_roofline", title="of roofline", unit="fraction"),
    Column(name="bound_by", title="bound by"),
)


def _program(capture: Capture, paths: Sequence[Source]) -> tuple[Table, float]:
    """The table, and what XProf's times are to be divided by."""
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    why = _why_no_table(capture)
    scale = 1.0
    try:
        found = program_row(capture, paths)
    except RatchetError as error:
        found, why = None, str(error)
    if found is not None:
        row, said = found
        scale = excess(capture, row)
        flops = number(row, "measured_flop_rate", GIGAFLOPS * scale)
        rows.append(
            (
                number(row, "total_time_per_core", MICROSECOND / scale),
                flops or None,
                (number(row, "compute_efficiency", scale) or None) if flops else None,
                number(row, "hbm_bw", GIBIBYTES * scale) or None,
                number(row, "max_mem_bw_utilization", scale) or None,
                number(row, "operational_intensity") or None,
                float(said.properties["hbm_ridge_point"]) or None,
                number(row, "roofline_efficiency", scale) or None,
                str(row.get("bound_by") or "unknown"),
            )
        )
        notes += [
            "XProf's roofline_model over the whole capture, idle time before and between programs included.",
            *_about(scale),
            "XLA counts 0 FLOPs for a Pallas kernel without pl.CostEstimate: then the rates are too low.",
        ]
    title = "The program against the roofline"
    return table("program", title, origin(capture), _PROGRAM, rows, notes, why), scale


def excess(capture: Capture, row: Mapping[str, Value]) -> float:
    """By how much XProf's time of a core is longer than what the devices show, if it is: 1.0 if not.

    xprof 2.24 takes the last event's end with the time at which its line begins, and the first event's start without.
    """
    own = sum(map(_span_seconds, devices(capture))) / len(devices(capture))
    said = number(row, "total_time_per_core", MICROSECOND)
    return said / own if said is not None and own > 0 and said > own * _SAME_TIME else 1.0


def _span_seconds(device: Device) -> float:
    """From the first thing that a device shows to the last."""
    shown = [(run.start, run.end) for run in device.executions]
    shown += [(period.start, period.end) for period in (*device.modules, *device.steps)]
    return max(end for _, end in shown) - min(start for start, _ in shown)


def _about(scale: float) -> Iterator[str]:
    if scale != 1.0:
        yield (
            f"XProf counts {scale:.2f} times the time that the devices show, since it adds when the capture's lines "
            "begin: its times, rates and shares are put right here, in its own pages they are not."
        )


def _why_no_table(capture: Capture) -> str:
    is_cpu = bool(capture.devices) and all(device.platform == "cpu" for device in capture.devices)
    return _NO_DEVICE if is_cpu else why_nothing_ran(capture)


def _longest(capture: Capture, top: int) -> Table:
    found = op_times(devices(capture))
    whole = total_seconds(found)
    fields: Fields[OperationTime] = (
        Field("operation", "operation", lambda one: one.operation.name),
        Field("class", "class", lambda one: op_class(one.operation)),
        Field("self_seconds", "self time", lambda one: one.self_seconds, "s"),
        Field("share", "share", lambda one: share(one.self_seconds, whole), "fraction"),
        Field("count", "runs", lambda one: one.count, "count"),
        Field("framework_name", "tf_op", lambda one: one.operation.framework_name or None),
        Field("source", "source", lambda one: one.operation.source or None),
    )
    notes = (f"{len(found) - top} more: `xprof ops`.",) if len(found) > top else ()
    why = why_nothing_ran(capture)
    return table_of("longest", "What took longest", origin(capture), fields, found[:top], notes, why)


def _summary(capture: Capture, paths: Sequence[Source], scale: float) -> Table:
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    why = _why_no_table(capture)
    if any(device.platform != "cpu" for device in devices(capture)):
        try:
            rows, notes = _figures(datatables.ask(paths, "overview_page"), scale)
        except RatchetError as error:
            why = str(error)
    columns = (Column(name="figure", title="figure"), Column(name="fraction", title="value", unit="fraction"))
    return table("summary", "XProf's own summary (overview_page)", origin(capture), columns, rows, notes, why)


def _figures(tables: Sequence[DataTable], scale: float) -> tuple[list[tuple[Cell, ...]], list[str]]:
    """Its figures, the idle time by the devices' own time, and what it says in words."""
    first = tables[0]
    idle = first.fraction(_IDLE[0])
    rows: list[tuple[Cell, ...]] = [
        (_DUTY[1], first.fraction(_DUTY[0])),
        (_IDLE[1], None if idle is None else 1 - (1 - idle) * scale),
    ]
    rows += [(title, first.fraction(name) or None) for name, title in _ZERO_IS_UNKNOWN]
    notes = ["- is a figure for which XProf has no counters and prints 0.0 %."]
    return rows, [*notes, *_messages(tables)]


def _messages(tables: Sequence[DataTable]) -> Iterator[str]:
    for said in tables:
        if said.columns == ("severity", "message"):
            for row in said.rows:
                yield f"XProf, {str(row['severity']).lower()}: {row['message']}"
