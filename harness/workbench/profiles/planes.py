"""The contents of a capture's files by plane and line, and the data that an analysis needs but the capture lacks."""

from collections.abc import Iterator
from itertools import islice

from harness.records import Capture, Table
from harness.workbench.profiles.analysis import Analysis, tables
from harness.workbench.profiles.database import Database, Row, database_of, made_on_demand
from harness.workbench.profiles.reading import spaces

_PICOSECONDS = 1e12
# The names of a line's statistics are read from this many of its events.
_LOOKED_AT = 200


@made_on_demand("""planes: a plane of a file: a device, a host, or data about the capture
    host VARCHAR           its host
    plane VARCHAR          its name
    lines INTEGER          the number of its lines
    events BIGINT          on all its lines
    kinds INTEGER          number of kinds of events that it describes
    modules INTEGER        number of HLO modules in it
    statistics VARCHAR     names of its own statistics
    described VARCHAR      names of the statistics that its kinds of events have
""")
def planes_table(database: Database) -> Iterator[Row]:
    for host, space in spaces(database.capture):
        for plane in space.planes:
            described = sorted({name for each in plane.described for name in each.stats})
            modules = sum(any(isinstance(value, bytes) for value in each.stats.values()) for each in plane.described)
            modules *= plane.name == "/host:metadata"
            counts = len(plane.lines), sum(len(line.events) for line in plane.lines), len(plane.described), modules
            yield host, plane.name, *counts, ", ".join(sorted(plane.stats)), ", ".join(described)


@made_on_demand("""lines: a line of a plane: a thread, a queue, a row
    host VARCHAR           its host
    plane VARCHAR          its plane
    line VARCHAR           its name
    events BIGINT          number of its events
    unnamed INTEGER        number of its events of a kind that the file does not describe
    start_seconds DOUBLE   start of its first event, by the profiler's clock
    has_own_time BOOLEAN   whether its events carry the device's own time
    statistics VARCHAR     names of the statistics of its first 200 events
""")
def lines_table(database: Database) -> Iterator[Row]:
    zero = min((space.start_ps for _, space in spaces(database.capture) if space.start_ps is not None), default=0)
    for host, space in spaces(database.capture):
        for plane in space.planes:
            for line in plane.lines:
                looked_at = list(islice(line.events, _LOOKED_AT))
                names = sorted({name for event in looked_at for name in event.stats})
                has_own = any("device_offset_ps" in event.stats for event in looked_at)
                start = None if line.start_ps is None else (line.start_ps - zero) / _PICOSECONDS
                counts = len(line.events), line.unnamed_events
                yield host, plane.name, line.name, *counts, start, has_own, ", ".join(names)


_PLANES = Analysis(
    name="planes",
    title="Planes",
    columns="host;plane!;lines:count;events:count;kinds:count;modules:count;statistics",
    query="select host, plane, lines, events, kinds, modules, nullif(statistics, '') from planes order by rowid",
)
_LINES = Analysis(
    name="lines",
    title="Lines",
    columns="plane;line!;events:count;start_seconds=from;has_own_time=own time;statistics",
    query="""
        select plane, line, events, start_seconds, has_own_time, nullif(statistics, '') from lines
        order by plane not like '/device:%', events desc, rowid""",
    rows="lines",
    notes=(
        "own time: the events have times of the device's own clock as well as the profiler's.",
        "{top} of {known} lines are shown, devices first.",
    ),
)
# For each kind of data: an SQL condition for its presence in the capture, the analyses that need it, and the way to
# record it.
_NEEDS = (
    ("operations of a device", "exists (from executions)", "all but host and planes",
     "run something during the capture"),
    ("the device's own time", "exists (from lines where has_own_time)", "steps, gaps on a clock that does not jump",
     "a TPU's profiler writes it"),
    ("runs of modules", "exists (from runs)", "utilization, gaps between runs",
     "a TPU's and a CPU's profiler write them"),
    ("marked steps", "exists (from steps where what like 'steps marked%')", "steps of a training loop by name",
     'jax.profiler.StepTraceAnnotation("train", step_num=n)'),
    ("HLO modules", "exists (from planes where modules > 0)", "waste, graph, memory, hlo CAPTURE",
     "enable_hlo_proto; compile during the capture, or earlier in the same process"),
    ("FLOPs and bytes", "exists (from operations where flops is not null)", "roofline, utilization, mfu",
     "a TPU's profiler writes them; kernels need pl.CostEstimate"),
    ("bytes by memory", "exists (from planes where described like '%memory_access_breakdown%')",
     "HBM apart from host memory", "a TPU's profiler writes them"),
    ("peaks of the device", "exists (from devices where peak_flops_per_second is not null)",
     "roofline, utilization, mfu",
     "a TPU's profiler writes them"),
    ("tf_op", "exists (from operations where framework_name != '')", "scopes, framework-ops, breakdown",
     "jax.named_scope; HLO metadata must not be stripped"),
    ("source lines", "exists (from operations where source != '')", "lines, waste by line", "HLO metadata"),
    ("asynchronous operations", "exists (from executions where line = 'asynchronous')", "overlap, flight times",
     "a TPU's profiler writes them"),
    ("lines inside kernels", "exists (from lines where plane like '/device:TPU%' and line not in ('XLA Ops', "
     "'Async XLA Ops', 'XLA Modules', 'Steps', 'XLA TraceMe', 'Overlay'))", "gaps inside kernels",
     "LIBTPU_INIT_ARGS=--xla_xprof_enable_custom_call_tracing=true, tpu_trace_mode TRACE_COMPUTE"),
    ("allocator events", "exists (from lines where statistics like '%bytes_reserved%')", "memory, as measured",
     "a TPU writes them if something is allocated during the capture"),
    ("hardware counters", "exists (from lines where statistics like '%performance_counter_id%')", "counters",
     "advanced_configuration: tpu_enable_periodic_counter_sampling"),
    ("threads of the host", "exists (from host)", "steps and gaps: the host meanwhile", "host_tracer_level 1 or 2"),
)  # fmt: skip

_NEEDED = "what VARCHAR, is_there BOOLEAN, used_by VARCHAR, how VARCHAR"
_MISSING = Analysis(
    name="missing",
    title="What the analyses need",
    columns="what;is_there=there;used_by=used by;how=if not",
    query="select what, is_there, used_by, case when not is_there then how end from needs order by rowid",
)


def planes(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Tables of planes, of lines, and of the data that analyses need.

    Raises RatchetError if the files cannot be read.
    """
    database = database_of(capture)
    (there,) = database.rows(f"select {', '.join(holds for _, holds, _, _ in _NEEDS)}")
    database.add(
        "needs", _NEEDED, [(what, has, used, how) for (what, _, used, how), has in zip(_NEEDS, there, strict=True)]
    )
    # These tables are not empty even if nothing ran during the capture.
    return tables(database, (_PLANES, _LINES, _MISSING), is_about_devices=False, top=top)
