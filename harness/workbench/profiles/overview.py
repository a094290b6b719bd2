"""Overview of a capture: devices and steps, the program against the roofline, longest operations, XProf's summary."""

from collections.abc import Mapping
from dataclasses import replace

from harness.errors import RatchetError
from harness.records import Capture, Cell, Table
from harness.workbench.profiles import conversion
from harness.workbench.profiles.analysis import Analysis, Facts, tables
from harness.workbench.profiles.conversion import GIBIBYTES, GIGAFLOPS, MICROSECOND, DataTable, Value, number
from harness.workbench.profiles.database import database_of
from harness.workbench.profiles.hotspots import EXECUTED_NOTE, useful_note
from harness.workbench.profiles.op_times import devices, origin, why_nothing_ran
from harness.workbench.profiles.reading import sources
from harness.workbench.profiles.timeline import MARK_STEPS, SHORT, host_transfers
from harness.workbench.tables import columns, table

_NO_DEVICE = (
    "XProf's tables need device planes (/device:TPU:0), and the capture has none: a CPU's operations are on the "
    "host's threads"
)
# XProf's overview_page (xprof 2.24) shows 0.0 % for these figures if they are unknown, for example without hardware
# counters.
_ZERO_IS_UNKNOWN = (
    ("mxu_utilization_percent", "matrix unit used"),
    ("hbm_utilization_percent", "HBM used"),
    ("memory_bw_utilization_relative_to_hw_limit", "memory bandwidth, of the hardware's limit"),
)
_DUTY = ("device_duty_cycle_percent", "device duty cycle, while programs run")
_IDLE = ("device_idle_time_percent", "device idle, of the whole capture")
_CORRECTED = (
    "XProf's time is {:.2f} times that of the devices, because it adds the start time of the capture's lines. XProf's "
    "times, rates and shares are corrected here, but not on XProf's own pages."
)
# If XProf's time exceeds the devices' time by more than this factor, XProf's time is wrong, not just rounded.
_SAME_TIME = 1.01

_DEVICES = Analysis(
    name="devices",
    title="{name}: {length:s} captured",
    columns="device;host;kind;steps:count;step_seconds=step;shortest_step_seconds=shortest;"
    "longest_step_seconds=longest;busy_seconds=busy;idle_fraction=idle;operations:count;executions:count",
    query="""
        with of_steps as (
            select device, count(*) as steps, median(seconds) as step, min(seconds) as least, max(seconds) as most
            from steps group by 1),
        of_work as (select device, count(distinct operation) as operations, count(*) as executions from work group by 1)
        select name, host, coalesce(nullif(kind, ''), platform), steps, step, least, most, coalesce(busy, 0),
            1 - busy / nullif(span, 0), operations, executions
        from devices d left join of_steps using (device) left join busy_times using (device)
        left join of_work using (device)
        where is_main order by device""",
    facts="""
        select greatest(max(end_seconds), (select max(end_seconds) from runs), (select max(end_seconds) from steps),
                (select max(end_seconds) from host)) as length, count(distinct device) as count,
            case when count(distinct device) > 1 then 's' else '' end as many,
            arg_min(what, device) is null as unmarked, arg_min(what, device) as what,
            (select devices from unrecorded) as short,
            (select sum(g.seconds) filter (not (g.start_seconds + g.end_seconds) / 2
                    between l.start_seconds and l.end_seconds) / nullif(sum(g.seconds), 0)
                from gaps g join loops l using (device) join devices d using (device)
                where d.is_main and position = 'between') as outside
        from work left join (select device, any_value(what) as what from steps group by 1) using (device)
        where is_main""",
    notes=(
        "{hosts} host{plural}, {count} device{many}; idle: between a device's first operation and its last. See "
        "`xprof gaps`.",
        "{outside:%} of the idle time is before the first step or after the last.",
        f"{SHORT} The times of these steps are by the profiler's clock, which may jump.",
        "Steps: {what}.",
        f"Steps are not marked. {MARK_STEPS}{{unmarked:?}}",
        "{left_out}",
    ),
)
_LONGEST = Analysis(
    name="longest",
    title="What took longest",
    columns="operation;class;self_seconds=self time;share;count=runs;framework_name=tf_op;source",
    query="""select name, class, self_seconds, share, count, nullif(framework_name, ''), nullif(source, '')
        from times order by rank""",
    rows="operations",
    notes=("{more} more: `xprof ops`.",),
)


def overview(capture: Capture, useful_flops: float | None = None, top: int = 5) -> tuple[Table, ...]:
    """Devices, the program against the roofline, the `top` operations, and XProf's own summary.

    `useful_flops` are those of one run, if known.
    """
    words: Facts = {
        "name": capture.name,
        "hosts": len(capture.paths),
        "plural": "s" * (len(capture.paths) > 1),
        "top": top,
        "left_out": [f"{sentence}." for sentence in capture.left_out],
    }
    shown, longest = tables(capture, (_DEVICES, _LONGEST), **words)
    if not shown.rows:
        # These notes are shown even if nothing ran.
        shown = replace(shown, title=capture.name, notes=tuple(words["left_out"]))
    program, scale = _program(capture, useful_flops)
    return shown, program, longest, *host_transfers(capture), _summary(capture, scale)


# Each column, its name and unit in XProf's roofline_model, and the power of the correction factor: -1 for a time, 1 for
# a rate, 0 for a figure without time.
_PROGRAM = (
    ("seconds=time per core", "total_time_per_core", MICROSECOND, -1),
    ("flops_per_second=FLOP rate", "measured_flop_rate", GIGAFLOPS, 1),
    ("of_peak_flops=of peak:fraction", "compute_efficiency", 1.0, 1),
    ("hbm_bytes_per_second=HBM", "hbm_bw", GIBIBYTES, 1),
    ("of_peak_bandwidth=of peak:fraction", "max_mem_bw_utilization", 1.0, 1),
    ("flops_per_byte=intensity", "operational_intensity", 1.0, 0),
    ("ridge_flops_per_byte=ridge", "", 1.0, 0),
    ("of_roofline=of roofline:fraction", "roofline_efficiency", 1.0, 1),
)
_PROGRAM_COLUMNS = columns(";".join((*(column for column, *_ in _PROGRAM), "bound_by=bound by")))


def _program(capture: Capture, useful_flops: float | None) -> tuple[Table, float]:
    """XProf's roofline of the program as a whole, and the factor by which its times are too long."""
    answers, why = _tool_tables(capture, "roofline_model")
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    scale, total = 1.0, {"step": "Total", "operation": "Program", "include_infeed_outfeed": True}
    listed = answers[0].rows if answers else ()
    if row := next((row for row in listed if total.items() <= row.items()), None):
        scale = _excess(capture, row)
        # XProf writes 0 for an unknown figure.
        values = [number(row, name, unit * scale**power) or None for _, name, unit, power in _PROGRAM]
        ridge = float(answers[0].properties["hbm_ridge_point"]) or None
        of_peak = None if values[1] is None else values[2]
        rows.append((*values[:2], of_peak, *values[3:6], ridge, values[7], str(row.get("bound_by") or "unknown")))
        useful = useful_note(database_of(capture), useful_flops)
        notes = [
            "XProf's roofline_model over the whole capture, idle time before and between programs included.",
            *([_CORRECTED.format(scale)] if scale != 1.0 else ()),
            "XLA counts 0 FLOPs for a Pallas kernel without pl.CostEstimate, so rates with such kernels are too low.",
            EXECUTED_NOTE,
            *((useful,) if useful else ()),
        ]
    title = "The program against the roofline"
    return table("program", title, origin(capture), _PROGRAM_COLUMNS, rows, notes, why), scale


def _tool_tables(capture: Capture, tool: str) -> tuple[tuple[DataTable, ...], str]:
    """The tables of XProf's tool for a capture with device planes, or the reason why there are none."""
    if not any(device.platform != "cpu" for device in devices(capture)):
        is_cpu = bool(capture.devices) and all(device.platform == "cpu" for device in capture.devices)
        return (), _NO_DEVICE if is_cpu else why_nothing_ran(capture)
    try:
        return conversion.ask(sources(capture), tool), why_nothing_ran(capture)
    except RatchetError as error:
        return (), str(error)


def _excess(capture: Capture, row: Mapping[str, Value]) -> float:
    """The factor by which XProf's time of a core exceeds the devices' time; 1.0 if it does not.

    In xprof 2.24, a line's start time is added to the end of the last event, but not to the start of the first.
    """
    ((span,),) = database_of(capture).rows(_SPAN)
    answer = number(row, "total_time_per_core", MICROSECOND)
    return answer / span if answer is not None and span > 0 and answer > span * _SAME_TIME else 1.0


# The time from a device's first event to its last; the mean over all devices.
_SPAN = """
    select avg(span) from (
        select max(end_seconds) - min(start_seconds) as span from (
            select device, start_seconds, end_seconds from executions where line = 'serial'
            union all select device, start_seconds, end_seconds from runs
            union all select device, start_seconds, end_seconds from steps)
        join devices using (device) where is_main group by device)"""


def _summary(capture: Capture, scale: float) -> Table:
    """XProf's figures, with corrected idle time, and XProf's messages."""
    answers, why = _tool_tables(capture, "overview_page")
    rows: list[tuple[Cell, ...]] = []
    for first in answers[:1]:
        idle = first.fraction(_IDLE[0])
        rows = [
            (_DUTY[1], first.fraction(_DUTY[0])),
            (_IDLE[1], None if idle is None else 1 - (1 - idle) * scale),
            *((title, first.fraction(name) or None) for name, title in _ZERO_IS_UNKNOWN),
        ]
    notes = ["A dash marks an unknown figure; XProf shows 0.0 % for it."]
    for answer in answers:
        if answer.columns == ("severity", "message"):
            notes += [f"XProf, {str(row['severity']).lower()}: {row['message']}" for row in answer.rows]
    title = "XProf's own summary (overview_page)"
    return table("summary", title, origin(capture), "figure;fraction=value", rows, notes, why)
