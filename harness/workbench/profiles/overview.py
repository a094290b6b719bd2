"""A capture at a glance: devices and steps, the program against the roofline, what took longest, XProf's summary."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.errors import RatchetError
from harness.records import Capture, Cell, Column, Device, Table
from harness.workbench.profiles import datatables
from harness.workbench.profiles.analysis import Analysis, Facts, run
from harness.workbench.profiles.database import opened
from harness.workbench.profiles.datatables import GIBIBYTES, GIGAFLOPS, MICROSECOND, DataTable, Value, number
from harness.workbench.profiles.op_times import devices, origin, why_nothing_ran
from harness.workbench.profiles.reading import sources
from harness.workbench.profiles.remote import Source
from harness.workbench.profiles.timeline import MARK_STEPS, host_transfers
from harness.workbench.tables import table

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


_DEVICES = Analysis(
    name="devices",
    title="{name}: {length} ms captured",
    columns="device;host;kind;steps:count;step_seconds=step;shortest_step_seconds=shortest;"
    "longest_step_seconds=longest;"
    "busy_seconds=busy;idle_fraction=idle;operations:count;executions:count",
    query="""
        with of_steps as (
            select device, count(*) as steps, median(seconds) as step, min(seconds) as least, max(seconds) as most
                from steps group by 1),
        of_busy as (
            select device, sum(end_seconds - start_seconds) as busy, max(end_seconds) - min(start_seconds) as span
            from busy where of = 'everything' group by 1),
        of_work as (select device, count(distinct operation) as operations, count(*) as executions from work group by 1)
        select name, host, coalesce(nullif(kind, ''), platform), steps, step, least, most, coalesce(busy, 0),
            1 - busy / nullif(span, 0), operations, executions
        from devices d left join of_steps using (device) left join of_busy using (device) left join of_work using
            (device)
        where is_main order by device""",
    facts="""
        select printf('%.3f', 1e3 * max(end_seconds)) as length, count(distinct device) as count,
            case when count(distinct device) > 1 then 's' else '' end as many,
            case when arg_min(what, device) is null then '' end as unmarked, arg_min(what, device) as what
        from work left join (select device, any_value(what) as what from steps group by 1) using (device) where
            is_main""",
    notes=(
        "{hosts} host{plural}, {count} device{many}; idle: between a device's first operation and its last, see "
        "`xprof gaps`.",
        "A step is one of the {what}.",
        f"Steps are not marked. {MARK_STEPS}{{unmarked}}",
        "{left_out}",
    ),
)
_LONGEST = Analysis(
    name="longest",
    title="What took longest",
    columns="operation;class;self_seconds=self time;share;count=runs;framework_name=tf_op;source",
    query="""select name, class, self_seconds, share, count, nullif(framework_name, ''), nullif(source, '')
        from times order by rank limit $top""",
    facts="select case when count(*) > $top then count(*) - $top end as more from times",
    notes=("{more} more: `xprof ops`.",),
)


def overview(capture: Capture, top: int = 5) -> tuple[Table, ...]:
    """Devices, the program against the roofline, the `top` operations, and XProf's own summary."""
    paths = sources(capture)
    program, scale = _program(capture, paths)
    words: Facts = {
        "name": capture.name, "hosts": len(capture.paths), "plural": "s" * (len(capture.paths) > 1), "top": top,
        "left_out": [f"{sentence}." for sentence in capture.left_out],
    }  # fmt: skip
    shown, longest = (run(opened(capture), each, words) for each in (_DEVICES, _LONGEST))
    assert shown is not None
    assert longest is not None
    if not shown.rows:
        # Also where nothing ran.
        shown = replace(shown, title=capture.name, notes=tuple(words["left_out"]))
    return shown, program, longest, *host_transfers(capture), _summary(capture, paths, scale)


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
        stated = program_row(capture, paths)
    except RatchetError as error:
        stated, why = None, str(error)
    if stated is not None:
        row, answer = stated
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
                float(answer.properties["hbm_ridge_point"]) or None,
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
    answer = number(row, "total_time_per_core", MICROSECOND)
    return answer / own if answer is not None and own > 0 and answer > own * _SAME_TIME else 1.0


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
    for answer in tables:
        if answer.columns == ("severity", "message"):
            for row in answer.rows:
                yield f"XProf, {str(row['severity']).lower()}: {row['message']}"
