"""A capture at a glance: devices and steps, the program against the roofline, what took longest, XProf's summary."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from harness.errors import RatchetError
from harness.records import Capture, Column, Device, Table
from harness.records.table import Cell
from harness.workbench.profiles import datatables, intervals
from harness.workbench.profiles.classes import op_class
from harness.workbench.profiles.datatables import GIBIBYTES, GIGAFLOPS, MICROSECOND, DataTable, Value, number
from harness.workbench.profiles.op_times import devices, op_times, origin, steps, why_nothing_ran

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


def overview(capture: Capture, top: int = 5) -> tuple[Table, ...]:
    """Devices, the program against the roofline, the `top` operations, and XProf's own summary."""
    paths = tuple(map(Path, capture.paths))
    program, scale = _program(capture, paths)
    return _devices(capture), program, _longest(capture, top), _summary(capture, paths, scale)


def step_seconds(device: Device) -> float | None:
    """The median step of `device`, None where it shows none."""
    found = [step.seconds for step in steps(device)[0]]
    return median(found) if found else None


def program_row(capture: Capture, paths: Sequence[Path]) -> tuple[Mapping[str, Value], DataTable] | None:
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
    notes = [
        f"{len(capture.paths)} host{'s' * (len(capture.paths) > 1)}, {len(found)} device{'s' * (len(found) > 1)}; "
        f"idle: between a device's first operation and its last, see `xprof gaps`."
    ]
    if found:
        notes.append(f"A step is one of the {steps(found[0])[1]}." if steps(found[0])[0] else "Steps are not marked.")
    notes += [f"{sentence}." for sentence in capture.left_out]
    return Table(
        name="devices",
        title=f"{capture.name}: {length * 1e3:.3f} ms captured" if found else capture.name,
        origin=origin(capture),
        columns=(
            Column(name="device", title="device"),
            Column(name="host", title="host"),
            Column(name="kind", title="kind"),
            Column(name="steps", title="steps", unit="count"),
            Column(name="step_seconds", title="step", unit="s"),
            Column(name="shortest_step_seconds", title="shortest", unit="s"),
            Column(name="longest_step_seconds", title="longest", unit="s"),
            Column(name="busy_seconds", title="busy", unit="s"),
            Column(name="idle_fraction", title="idle", unit="fraction"),
            Column(name="operations", title="operations", unit="count"),
            Column(name="executions", title="executions", unit="count"),
        ),
        rows=tuple(_device(device) for device in found),
        notes=tuple(notes) if found else tuple(f"{sentence}." for sentence in capture.left_out),
        why_empty="" if found else why_nothing_ran(capture),
    )


def _device(device: Device) -> tuple[Cell, ...]:
    lengths = [step.seconds for step in steps(device)[0]]
    busy = intervals.busy(device)
    seconds = intervals.length(busy)
    span = busy[-1].end - busy[0].start if busy else 0.0
    return (
        device.name,
        device.host,
        device.kind or device.platform,
        len(lengths) or None,
        median(lengths) if lengths else None,
        min(lengths, default=None),
        max(lengths, default=None),
        seconds,
        1 - seconds / span if span > 0 else None,
        len({execution.operation for execution in device.executions}),
        len(device.executions),
    )


def _program(capture: Capture, paths: Sequence[Path]) -> tuple[Table, float]:
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
    table = Table(
        name="program",
        title="The program against the roofline",
        origin=origin(capture),
        columns=(
            Column(name="seconds", title="time per core", unit="s"),
            Column(name="flops_per_second", title="FLOP rate", unit="FLOP/s"),
            Column(name="of_peak_flops", title="of peak", unit="fraction"),
            Column(name="hbm_bytes_per_second", title="HBM", unit="B/s"),
            Column(name="of_peak_bandwidth", title="of peak", unit="fraction"),
            Column(name="flops_per_byte", title="intensity", unit="FLOP/B"),
            Column(name="ridge_flops_per_byte", title="ridge", unit="FLOP/B"),
            Column(name="of_roofline", title="of roofline", unit="fraction"),
            Column(name="bound_by", title="bound by"),
        ),
        rows=tuple(rows),
        notes=tuple(notes),
        why_empty="" if rows else why,
    )
    return table, scale


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
    whole = sum(one.self_seconds for one in found)
    rows = tuple(
        (
            one.operation.name,
            op_class(one.operation),
            one.self_seconds,
            one.self_seconds / whole if whole else None,
            one.count,
            one.operation.framework_name or None,
            one.operation.source or None,
        )
        for one in found[:top]
    )
    return Table(
        name="longest",
        title="What took longest",
        origin=origin(capture),
        columns=(
            Column(name="operation", title="operation"),
            Column(name="class", title="class"),
            Column(name="self_seconds", title="self time", unit="s"),
            Column(name="share", title="share", unit="fraction"),
            Column(name="count", title="runs", unit="count"),
            Column(name="framework_name", title="tf_op"),
            Column(name="source", title="source"),
        ),
        rows=rows,
        notes=(f"{len(found) - len(rows)} more: `xprof ops`.",) if len(found) > len(rows) else (),
        why_empty="" if rows else why_nothing_ran(capture),
    )


def _summary(capture: Capture, paths: Sequence[Path], scale: float) -> Table:
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    why = _why_no_table(capture)
    if any(device.platform != "cpu" for device in devices(capture)):
        try:
            rows, notes = _said(datatables.ask(paths, "overview_page"), scale)
        except RatchetError as error:
            why = str(error)
    return Table(
        name="summary",
        title="XProf's own summary (overview_page)",
        origin=origin(capture),
        columns=(Column(name="figure", title="figure"), Column(name="fraction", title="value", unit="fraction")),
        rows=tuple(rows),
        notes=tuple(notes),
        why_empty="" if rows else why,
    )


def _said(tables: Sequence[DataTable], scale: float) -> tuple[list[tuple[Cell, ...]], list[str]]:
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
    for table in tables:
        if table.columns == ("severity", "message"):
            for row in table.rows:
                yield f"XProf, {str(row['severity']).lower()}: {row['message']}"
