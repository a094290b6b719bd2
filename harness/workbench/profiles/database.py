"""A capture as tables in DuckDB, recorded and derived, with times on the devices' own clocks."""

import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

import duckdb
import numpy as np

from harness.records import Capture, Cell, Device, Execution, Operation, Period
from harness.workbench.profiles import classes, op_times
from harness.workbench.profiles.classes import COMMUNICATION
from harness.workbench.profiles.reading import BARRIER
from harness.workbench.profiles.spans import LEAST, Spans, Values, meet, merge, spans, without
from harness.workbench.profiles.views import VIEWS_SQL

Row: TypeAlias = Sequence[Any]
# Shorter idle time between programs is caused by the device, not by the host. Our choice: on a v6e, queued programs
# follow each other within 1.4 to 1.7 us (one capture, 396 pairs of runs).
_QUEUED_SECONDS = 2e-6
# numpy's module for columns with missing values; it has no types.
_MASKED: Any = np.ma
# The category of an operation of which the simulator knew only the name.
_UNKNOWN = "unknown"
# Limit of DuckDB's memory, which does not include the records; a capture of a million events needs 60 MB.
_MEMORY = "512MiB"
_LITERAL = re.compile(r"'[^']*'|--.*")
_COLUMN = re.compile(r"^ *(\w+) (\w+)(\*?) +(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TableOf:
    """A table described by a text: first its name and a sentence on its rows, then each column's name, type, meaning.

    The type of a derived column ends with `*`. A table with `rows` is made only when a query names it, because its
    rows need XProf's tools or a second reading of the file.
    """

    text: str
    rows: "Callable[[Database], Iterable[Row]] | None" = None

    @property
    def name(self) -> str:
        """The table's name in queries."""
        return self.text.partition(":")[0]

    @property
    def sentence(self) -> str:
        """A sentence on the rows."""
        return self.text.partition("\n")[0].partition(": ")[2]

    @property
    def columns(self) -> tuple[tuple[str, str, bool, str], ...]:
        """Name and type of each column, True if it is derived, and its meaning."""
        return tuple((name, kind, bool(star), meaning) for name, kind, star, meaning in _COLUMN.findall(self.text))

    @property
    def kinds(self) -> str:
        """The columns as SQL declares them."""
        return ", ".join(f'"{name}" {kind}' for name, kind, _, _ in self.columns)


def made_on_demand(text: str) -> "Callable[[Callable[[Database], Iterable[Row]]], TableOf]":
    """A decorator: the function makes the rows of a table, which `text` describes and ON_DEMAND lists."""
    return partial(TableOf, text)


_SPAN = """
    start_seconds DOUBLE   its start, from the capture's first event
    seconds DOUBLE         its length
    end_seconds DOUBLE     its end
"""
RECORDED = (
    TableOf("""devices: a core, GPU or CPU on which something ran
    device INTEGER         its number here
    name VARCHAR           `TPU:0`
    host VARCHAR           its host
    platform VARCHAR       tpu, gpu or cpu
    kind VARCHAR           its kind, as the capture names it: `TPU v6 lite`
    label VARCHAR*         its name, after its host's name if there are several hosts
    is_main BOOLEAN*       true if analyses use it: it ran operations and is no SparseCore (a CPU: if nothing else ran)
    is_sparse_core BOOLEAN* true for a SparseCore, which works parallel to its chip's TensorCore
    peak_flops_per_second DOUBLE  as the capture states
    hbm_bytes_per_second DOUBLE   as the capture states
    """),
    TableOf("""operations: an HLO operation of one program, however often it ran
    operation INTEGER      its number here
    name VARCHAR           `fusion.3`
    module VARCHAR         its program: `jit_f(4)`
    text VARCHAR           its HLO, if the capture has it
    category VARCHAR       XProf's hlo_category
    framework_name VARCHAR the tf_op: `jit(f)/jvp(g)/dot_general:`
    source VARCHAR         `file:line`
    flops DOUBLE           of one run, by XLA's count; NULL for loops, conditions and calls, and if unknown
    bytes_accessed DOUBLE  of one run, in any memory; NULL as for flops
    hbm_bytes DOUBLE       the part of bytes_accessed in HBM; all of them if the capture does not tell memories apart
    class VARCHAR*         matmul, attention, communication, memory transfer ... (docs/PROTOCOL.md, section 6)
    kind VARCHAR*          the category; if there is none, derived from text and name
    half VARCHAR*          start or done of an asynchronous operation, else empty
    pair VARCHAR*          the name that both halves share
    framework_category VARCHAR* attention, moe, norm, matmul ...
    direction VARCHAR*     forward, backward, or neither known
    known_by VARCHAR*      the source of the direction: tf_op, name, or empty
    is_container BOOLEAN*  a loop, condition or call, which does nothing itself
    is_kernel BOOLEAN*     a custom call: Pallas and others
    is_host_transfer BOOLEAN* a copy from or to the host's memory, or the wait for one
    is_exponential BOOLEAN* an exponential, or a fusion written as one
    experts VARCHAR*       GMM or TGMM of a mixture of experts, else NULL
    result_bytes DOUBLE*   bytes of its result in memory, if its HLO states them
    """),
    TableOf(f"""executions: one run of an operation on one device; sorted by start, outer before nested runs
    execution INTEGER      its number here
    device INTEGER         of devices
    operation INTEGER      of operations
    line VARCHAR           serial (the operations' own line), or asynchronous (a parallel line){_SPAN}
    self_seconds DOUBLE*   without the operations nested in it
    is_work BOOLEAN*       true if its time counts as work; false for a loop, condition or call with nested operations
    run INTEGER*           the run of a module in which it began, NULL if in none
    step INTEGER*          the step in which it began, NULL if in none
    """),
    TableOf(f"""runs: one run of a module on a device
    run INTEGER            its number here
    device INTEGER         of devices
    module VARCHAR         `jit_f(4)`{_SPAN}
    is_recorded BOOLEAN*   true if the capture has its operations: the line of operations may end before the runs do
    """),
    TableOf(f"""steps: a marked step of a device; if no step is marked, a run of its longest module
    step INTEGER           its number here
    device INTEGER         of devices
    number INTEGER*        its number among the device's steps, from 0
    name VARCHAR           as marked{_SPAN}
    what VARCHAR*          the meaning of a step in this capture
    is_recorded BOOLEAN*   true if the capture has its operations
    """),
    TableOf(f"""host: an event on a thread of a host, including the annotations of a program
    name VARCHAR           its name
    thread VARCHAR         the thread{_SPAN}
    step INTEGER           the number of a step's annotation, NULL for anything else
    """),
    TableOf(f"""waits: a wait of a device's runtime between the start of a program and its first operation
    device INTEGER         of devices
    name VARCHAR           barrier-cores (for the program's other chips), dependency-wait (for its dependencies){_SPAN}
    module VARCHAR*        the program, NULL if the wait begins in no run
    """),
    TableOf("""busy: a span of time in which a device worked without a break
    device INTEGER         of devices
    of VARCHAR*            the work: everything, own (without collectives), kernels (custom calls)
    start_seconds DOUBLE*  its start
    end_seconds DOUBLE*    its end
    """),
    TableOf("""gaps: idle time of a device before, between or after operations, without waits for other chips (`waits`)
    device INTEGER         of devices
    position VARCHAR*      before, between or after
    start_seconds DOUBLE*  its start, from the capture's first event
    seconds DOUBLE*        its length
    end_seconds DOUBLE*    its end
    before VARCHAR*        the operation that ended before it
    after VARCHAR*         the operation that began after it
    place VARCHAR*         `inside jit_f(4)`, between runs, or unknown
    """),
    TableOf("""spans: a time in which a device ran modules in direct succession; without modules, all of its time
    device INTEGER         of devices
    start_seconds DOUBLE*  start of the first module
    end_seconds DOUBLE*    end of the last module; the next module begins more than 2 us later
    """),
)
# Tables that are made when a query names them, by the Python module with their functions `NAME_table`.
_MADE_BY = {
    "hotspots": "scopes",
    "inside": "insides kernel_transfers lanes",
    "communication": "collectives",
    "waste": "waste",
    "memory_tables": "heaps buffers heap_levels lives memories memory_levels allocations",
    "counters": "counters units",
    "planes": "planes lines",
}
ON_DEMAND = {name: f"{module}:{name}_table" for module, names in _MADE_BY.items() for name in names.split()}


def on_demand(name: str) -> TableOf:
    """The table of ON_DEMAND called `name`."""
    table: TableOf = pkgutil.resolve_name(f"harness.workbench.profiles.{ON_DEMAND[name]}")
    return table


@dataclass(slots=True)
class Database:
    """The tables of one capture; the tables of ON_DEMAND are made when a query first names them."""

    capture: Capture
    connection: "duckdb.DuckDBPyConnection" = field(init=False)
    options: dict[str, Any] = field(default_factory=dict)
    _made: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        # One processor, no file for spilled data, and no extensions from elsewhere.
        config = {"threads": "1", "memory_limit": _MEMORY, "temp_directory": "", "autoload_known_extensions": "false"}
        self.connection = duckdb.connect(":memory:", config={**config, "autoinstall_known_extensions": "false"})
        loaded = _Loaded(self.capture)
        for table in RECORDED:
            self._fill(table.name, table.kinds, loaded.columns(table.name))
        self.connection.execute(VIEWS_SQL)

    def need(self, query: str) -> None:
        """Makes the tables of ON_DEMAND that a query names."""
        for name in re.findall(r"\w+", _LITERAL.sub("", query).lower()):
            if name in ON_DEMAND and name not in self._made:
                self._made.add(name)
                table = on_demand(name)
                assert table.rows is not None
                self.add(table.name, table.kinds, table.rows(self))

    def add(self, name: str, kinds: str, rows: Iterable[Row]) -> None:
        """Creates the table `name` with these rows, replacing an older table of this name.

        `kinds` declares its columns as in SQL: `name TYPE, name TYPE`.
        """
        self._fill(name, kinds, [_objects(column) for column in zip(*rows, strict=True)])

    def rows(self, query: str, **parameters: Cell) -> list[tuple[Any, ...]]:
        """The rows of a query. Only `parameters` that the query names are passed on to it."""
        return [tuple(map(_plain, row)) for row in self.find(query, parameters).fetchall()]

    def find(self, query: str, parameters: Mapping[str, Cell]) -> "duckdb.DuckDBPyConnection":
        """The result of a query, with the names of its columns."""
        self.need(query)
        return self.connection.execute(query, {name: parameters[name] for name in re.findall(r"\$(\w+)", query)})

    def facts(self, query: str, **parameters: Cell) -> dict[str, Any]:
        """The first row of a query by column name; empty if the query has no row."""
        return next(iter(self.rows_by_name(query, **parameters)), {})

    def rows_by_name(self, query: str, **parameters: Cell) -> list[dict[str, Any]]:
        """The rows of a query by column name."""
        answer = self.find(query, parameters)
        names = [column[0] for column in answer.description or ()]
        return [dict(zip(names, map(_plain, row), strict=True)) for row in answer.fetchall()]

    def _fill(self, name: str, kinds: str, columns: Sequence[Values]) -> None:
        self.connection.execute(f'create or replace table "{name}" ({kinds})')
        if columns and len(columns[0]):
            loaded = {str(at): values for at, values in enumerate(columns)}  # noqa: F841
            self.connection.execute(f'insert into "{name}" select * from loaded')


def database_of(capture: Capture) -> Database:
    """The tables of a capture; made once for consecutive calls with the same capture."""
    if not _last or _last[0].capture is not capture:
        _last[:] = [Database(capture)]
    return _last[0]


_last: list[Database] = []


class _Loaded:
    """Columns of the tables that every capture has."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.numbers: dict[Operation, int] = {}
        self.rows_of: dict[str, list[Row]] = {table.name: [] for table in RECORDED}
        # Columns of the largest tables, which may have a row for each event; one piece for each device.
        self.pieces: dict[str, list[list[Values]]] = {"executions": [], "busy": [], "gaps": []}
        main = {id(device) for device in op_times.devices(capture)}
        labelled = op_times.devices(capture) or capture.devices
        for number, device in enumerate(capture.devices):
            derived = op_times.device_label(device, labelled), id(device) in main, op_times.is_sparse_core(device)
            peaks = device.peak_flops_per_second, device.hbm_bytes_per_second
            described = device.name, device.host, device.platform, device.kind
            self.rows_of["devices"].append((number, *described, *derived, *peaks))
            self._device(number, device)
        self.rows_of["operations"] = [_operation(number, operation) for operation, number in self.numbers.items()]
        self.rows_of["host"] = [
            (host.name, host.line or None, *_times(host), host.step) for host in capture.host_periods
        ]

    def columns(self, table: str) -> list[Values]:
        """The columns of a table in their order; empty if the table has no rows."""
        if table in self.pieces:
            kept = [_MASKED.concatenate(column) for column in zip(*self.pieces.pop(table), strict=True)]
            return [np.arange(len(kept[0])), *kept] if table == "executions" and kept else kept
        return [_objects(column) for column in zip(*self.rows_of[table], strict=True)]

    def _piece(self, table: str, device: int, columns: Sequence[Values]) -> None:
        self.pieces[table].append([np.full(len(columns[0]), device), *columns])

    def _device(self, number: int, device: Device) -> None:
        numbers = np.array(
            [self.numbers.setdefault(operation, len(self.numbers)) for operation in device.operations], int
        )
        steps, what = op_times.steps(device)
        runs, step_rows = self.rows_of["runs"], self.rows_of["steps"]
        serial, beside = _Ran(device.executions), _Ran(device.asynchronous)
        in_runs = _within(serial.starts, device.modules, len(runs))
        in_steps = _within(serial.starts, steps, len(step_rows))
        missing = _unrecorded(device, serial)
        runs += [
            (at, number, run.name, *_times(run), not meet(missing, run.start, run.end))
            for at, run in enumerate(device.modules, len(runs))
        ]
        step_rows += [
            (at, number, nth, step.name, *_times(step), what, not meet(missing, step.start, step.end))
            for nth, (at, step) in enumerate(enumerate(steps, len(step_rows)))
        ]
        waits = sorted(device.waits, key=lambda wait: wait.start)
        begun_in = _within(np.array([wait.start for wait in waits]), device.modules, 0)
        self.rows_of["waits"] += [
            (number, wait.name, *_times(wait), None if at is None else device.modules[at].name)
            for wait, at in zip(waits, begun_in.tolist(), strict=True)
        ]
        is_work = ~serial.of(device, op_times.is_container) | (serial.self_seconds == serial.seconds)
        none = _MASKED.masked_all(len(beside), int)
        lines = (
            ("serial", serial, is_work, in_runs, in_steps),
            ("asynchronous", beside, np.ones(len(beside), bool), none, none),
        )
        for line, ran, work, run_numbers, step_numbers in lines:
            called = np.full(len(ran), line, object)
            times = ran.starts, ran.seconds, ran.ends, ran.self_seconds
            self._piece("executions", number, (numbers[ran.numbers], called, *times, work, run_numbers, step_numbers))
        busy = {
            "everything": is_work,
            "own": is_work & serial.of(device, lambda operation: classes.op_class(operation) != COMMUNICATION),
            "kernels": serial.of(device, _is_kernel),
        }
        for of, chosen in busy.items():
            starts, ends = merge(serial.starts[chosen], serial.ends[chosen])
            self._piece("busy", number, (np.full(len(starts), of, object), starts, ends))
        if is_work.any():
            self._idle(number, device, serial, np.flatnonzero(is_work), missing)

    def _idle(self, number: int, device: Device, serial: "_Ran", at: Values, missing: Spans) -> None:
        """Adds the gaps and spans of a device; `at` has the indices of the executions that do work.

        Gaps and spans leave out the time in `missing`, for which the capture lacks the operations.
        """
        starts, ends = serial.starts[at], serial.ends[at]
        names = _objects([operation.name for operation in device.operations])[serial.numbers[at]]
        shown = [*device.modules, *device.steps]
        first, last = float(starts[0]), float(ends.max())
        begin, end = min([first, *(period.start for period in shown)]), max([last, *(period.end for period in shown)])
        so_far = np.maximum.accumulate(ends)
        # For each operation, the index of the operation with the latest end so far (of equal ends, the first).
        latest = np.maximum.accumulate(np.where(np.r_[True, ends[1:] > so_far[:-1]], np.arange(len(at)), 0))
        runs = np.array([(run.start, run.end) for run in device.modules] or [(first, last)])
        opens, closes, _ = without(merge(runs[:, 0], runs[:, 1], _QUEUED_SECONDS), missing)
        self.rows_of["spans"] += [(number, *times) for times in np.stack((opens, closes), 1).tolist()]
        barriers = [(wait.start, wait.end) for wait in device.waits if wait.name == BARRIER]
        uncounted = spans([*zip(*missing, strict=True), *barriers])
        # Gaps are before the first operation, after the last, and wherever all earlier operations ended before the next
        # began.
        holes = np.flatnonzero(starts[1:] > so_far[:-1] + LEAST) + 1
        none = _objects([None])
        gaps = [("between", so_far[holes - 1], starts[holes], names[latest[holes - 1]], names[holes])]
        if begin < first:
            gaps.append(("before", np.array([begin]), np.array([first]), none, names[:1]))
        if end > last:
            gaps.append(("after", np.array([last]), np.array([end]), names[latest[-1:]], none))
        for position, idle_from, idle_until, before, after in gaps:
            opens, closes, of = without((idle_from, idle_until), uncounted)
            positions = np.full(len(opens), position, object)
            places = _places(device, (opens + closes) / 2)
            self._piece("gaps", number, (positions, opens, closes - opens, closes, before[of], after[of], places))


def _times(period: Period) -> tuple[float, float, float]:
    return period.start, period.seconds, period.end


def _is_kernel(operation: Operation) -> bool:
    return classes.is_custom_call(operation) or operation.category == _UNKNOWN


class _Ran:
    """The executions of a line as columns."""

    def __init__(self, executions: Sequence[Execution]) -> None:
        count = len(executions)
        self.numbers = np.fromiter((run.operation for run in executions), int, count)
        self.starts = np.fromiter((run.start for run in executions), float, count)
        self.seconds = np.fromiter((run.seconds for run in executions), float, count)
        self.self_seconds = np.fromiter((run.self_seconds for run in executions), float, count)
        self.ends = self.starts + self.seconds

    def __len__(self) -> int:
        return len(self.numbers)

    def of(self, device: Device, is_meant: Callable[[Operation], bool]) -> Values:
        """A mask of the executions: True if `is_meant` is true for the execution's operation."""
        chosen: Values = np.array([is_meant(operation) for operation in device.operations], bool)[self.numbers]
        return chosen


def _within(starts: Values, periods: Sequence[Period], first: int) -> Values:
    """For each of `starts`, the number of the period that contains it (from `first` on), or masked if none does.

    `starts` are in ascending order.
    """
    numbers: Values = _MASKED.masked_all(len(starts), int)
    for number, period in enumerate(periods, first):
        low, high = np.searchsorted(starts, (period.start, period.end))
        numbers[low:high] = number
    return numbers


def _unrecorded(device: Device, serial: _Ran) -> Spans:
    """The times of runs without operations, if other runs of the same module have operations.

    If such a run follows the last operation, all time after this operation counts, because its run is cut off as well.
    """
    latest = np.maximum.accumulate(serial.ends)
    counts = np.searchsorted(serial.starts, [run.end for run in device.modules])
    full = [count > 0 and latest[count - 1] > run.start for count, run in zip(counts, device.modules, strict=True)]
    shown = {run.name for run, is_full in zip(device.modules, full, strict=True) if is_full}
    bare = [run for run, is_full in zip(device.modules, full, strict=True) if run.name in shown and not is_full]
    ends = [(run.start, run.end) for run in bare]
    if any(run.start >= latest[-1] for run in bare):
        ends.append((float(latest[-1]), max(period.end for period in (*device.modules, *device.steps))))
    return spans(ends)


def _places(device: Device, moments: Values) -> Values:
    """A text for each moment: `inside jit_f` (if runs overlap, the last to begin), `between runs` or `unknown`."""
    if not device.modules:
        return np.full(len(moments), "unknown", object)
    ordered = sorted(device.modules, key=lambda run: run.start)
    starts, ends = (np.array([getattr(run, name) for run in ordered]) for name in ("start", "end"))
    latest = np.maximum.accumulate(ends)
    at = np.searchsorted(starts, moments, "right") - 1
    # If runs overlap, a run that began earlier may still be in progress.
    for place in np.flatnonzero((at >= 0) & (ends[at] < moments) & (latest[at] >= moments)):
        while ends[at[place]] < moments[place]:
            at[place] -= 1
    called = _objects([f"inside {run.name}" for run in ordered])
    places: Values = np.where((at >= 0) & (ends[at] >= moments), called[at], "between runs")
    return places


# The columns of `operations` in their order: facts of the record, its costs, then values derived by `classes`.
_FACTS = attrgetter("name", "module", "text", "category", "framework_name", "source")
_COSTS = attrgetter("flops", "bytes_accessed", "hbm_bytes_at_most")
_CLASSES: tuple[Callable[[Operation], Cell], ...] = (
    classes.op_class,
    classes.category,
    classes.half,
    lambda operation: classes.pair_name(operation.name),
    classes.framework_category,
    lambda operation: classes.direction(operation)[0],
    lambda operation: classes.direction(operation)[1],
    op_times.is_container,
    classes.is_custom_call,
    classes.is_host_transfer,
    classes.is_exponential,
    classes.grouped_matmul,
    classes.result_bytes,
)


def _operation(number: int, operation: Operation) -> Row:
    costs = (None, None, None) if op_times.is_container(operation) else _COSTS(operation)
    return (number, *_FACTS(operation), *costs, *(derive(operation) for derive in _CLASSES))


def _objects(column: Sequence[Any]) -> Values:
    """A column in which cells may be None."""
    values = np.empty(len(column), object)
    values[:] = column
    return values


def _plain(value: Any) -> Any:
    # A literal such as 0.05 is a Decimal to DuckDB.
    return float(value) if isinstance(value, Decimal) else value
