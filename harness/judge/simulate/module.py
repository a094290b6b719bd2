"""Simulates one compiled module: the top-level program and all HLO ops that it calls."""

import re
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import mul
from pathlib import Path

import msgspec

from harness.dumps.llo import ModuleDump, garbage_kept, read_module
from harness.hardware import Chip
from harness.hlo.evaluation import Values
from harness.hlo.tables import Tables
from harness.judge.simulate import sparse_core
from harness.judge.simulate.channel import FROM_VECTOR, SPARSE_CORE, Decision, GrantedBound
from harness.judge.simulate.compiled_module import CompiledModule, compile_module
from harness.judge.simulate.core import cycles_of, run_compiled
from harness.judge.simulate.cycle_breakdown import breakdown
from harness.judge.simulate.machine import Machine, machine_of
from harness.judge.simulate.runs import CoreRun, OpRun, grid_steps
from harness.judge.simulate.several_chips import OTHER_CHIP
from harness.judge.simulate.timeline import Recording
from harness.judge.simulate.uncertainty import plus_minus_seconds, relative_uncertainty
from harness.records import CycleBreakdown, Offence, OpTime, PartKind, Simulation, TimedRun, Unit

# Published peaks and clocks are rounded to three digits.
_ROUNDED_PEAK = 1.002
_NO_END = "no known end"
# The most runs that try other outcomes of decisions that depend on vectors; and the reason stated if more are needed.
_MOST_WAYS = 24
_TOO_MANY_WAYS = f"{FROM_VECTOR} decides more branches than {_MOST_WAYS} runs can try both ways"
# The time limit, in seconds on this computer, for the runs of both outcomes of a branch. Either run may have no end.
_BOUND_SECONDS = 5.0


@garbage_kept()
def run(
    dump_directory: Path,
    chip: Chip,
    *,
    deadline_seconds: float = 60.0,
    operands: Mapping[str, Values] | None = None,
    with_lines: bool = True,
    timeline: Path | None = None,
) -> Simulation:
    """The module dumped in `dump_directory`, executed on `chip`.

    - `operands`: contents of parameters by name, for programs whose control flow reads them. Without `operands`, the
      module is executed once with each of the timing tables next to the dump. Then `runs` and `offences` cover all
      runs; all other results are those of the first run.
    - `with_lines`: if True, the cost of each source line is computed too, which doubles the simulation's run time.
    - `timeline`: a file to which a small timeline is written as JSON, if the run has an end.

    Raises RatchetError `no-dump` if the folder holds no schedule.

    `seconds` is None, and `unknown[0]` is the reason, in each of these cases:
    - The schedule is incomplete, or its control flow depends on something that is not known.
    - A wait can never be satisfied.
    - The run takes longer than `deadline_seconds` on this computer, or longer than 10 s on the chip.
    - The chip cannot do the simulated work in the simulated time.
    """
    ends = time.monotonic() + deadline_seconds
    dump = read_module(dump_directory)
    recording = None if timeline is None else Recording(dump, machine_of(chip))
    prepared = prepare(dump, chip, operands, traced=recording is not None)
    left = ends - time.monotonic()
    simulation = run_prepared(prepared, deadline_seconds=left, with_lines=with_lines, recording=recording)
    if timeline is not None and recording is not None and recording.cores and not recording.cores[0].reason:
        timeline.write_bytes(msgspec.json.encode(recording.timeline))
    return simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A dump with all data that its runs share, including runs on a changed machine.

    `tables` has one entry for each run. If `has_timings`, there is one run for each of the dump's timing tables.
    Otherwise there is a single run.
    """

    dump: ModuleDump
    chip: Chip
    compiled: CompiledModule
    tables: tuple[Tables, ...]
    has_timings: bool


@garbage_kept()
def prepare(
    dump: ModuleDump,
    chip: Chip,
    operands: Mapping[str, Values] | None = None,
    *,
    fetched_before: bool = False,
    traced: bool = False,
) -> Prepared:
    """The module compiled for `chip`, and for every machine with the same number of branch slots.

    `fetched_before` and `traced`: see `compile_module`.
    """
    has_timings = bool(dump.timings) and not operands
    argument_sets = [timing.arguments for timing in dump.timings] if has_timings else [operands or dump.arguments]
    return Prepared(
        dump=dump,
        chip=chip,
        compiled=compile_module(dump, machine_of(chip), traced=traced, fetched_before=fetched_before),
        tables=tuple(Tables(dump.module, arguments) for arguments in argument_sets),
        has_timings=has_timings,
    )


@garbage_kept()
def run_module(
    dump: ModuleDump,
    chip: Chip,
    *,
    machine: Machine | None = None,
    deadline_seconds: float = 60.0,
    operands: Mapping[str, Values] | None = None,
    with_lines: bool = True,
    fetched_before: bool = False,
) -> Simulation:
    """The simulation of a dump on `machine` (None: the chip's machine).

    `fetched_before`: see `compile_module`.
    """
    ends = time.monotonic() + deadline_seconds
    prepared = prepare(dump, chip, operands, fetched_before=fetched_before)
    left = ends - time.monotonic()
    return run_prepared(prepared, machine=machine, deadline_seconds=left, with_lines=with_lines)


@garbage_kept()
def run_prepared(
    prepared: Prepared,
    *,
    machine: Machine | None = None,
    deadline_seconds: float = 60.0,
    with_lines: bool = True,
    recording: Recording | None = None,
) -> Simulation:
    """The simulation of a prepared module on `machine` (None: the chip's own). Records the first run in `recording`.

    `machine` must have as many branch slots as the chip's machine.
    """
    deadline = time.monotonic() + deadline_seconds
    machine = machine or machine_of(prepared.chip)
    first, *more = prepared.tables
    simulation = _execute(prepared, machine, first, deadline, with_lines=with_lines, recording=recording)
    if not prepared.has_timings:
        return simulation
    every = (simulation, *(_execute(prepared, machine, tables, deadline, with_lines=False) for tables in more))
    return replace(
        simulation,
        runs=tuple(_timed(timing.name, run) for timing, run in zip(prepared.dump.timings, every, strict=True)),
        offences=_merged(offence for run in every for offence in run.offences),
    )


@garbage_kept()
def mean_seconds(prepared: Prepared, machine: Machine, deadline_seconds: float) -> float | None:
    """The `mean_seconds` of the simulation on `machine`, at much lower cost; None if a run has no end."""
    deadline = time.monotonic() + deadline_seconds
    cycle_counts = [_cycles_taken(prepared, machine, tables, deadline) for tables in prepared.tables]
    seconds = [cycles / machine.clock_hz for cycles in cycle_counts if cycles is not None]
    return statistics.fmean(seconds) if len(seconds) == len(cycle_counts) else None


def _cycles_taken(prepared: Prepared, machine: Machine, tables: Tables, deadline: float) -> int | None:
    if prepared.dump.assumption is None:
        return cycles_of(prepared.compiled, machine, tables, deadline)
    ways = _both_ways(prepared.compiled, machine, tables, deadline)
    cores = ways[prepared.dump.assumption == "always"]
    return None if _reason(cores) else _cycles_of(cores)


def _execute(
    prepared: Prepared,
    machine: Machine,
    tables: Tables,
    deadline: float,
    *,
    with_lines: bool,
    recording: Recording | None = None,
) -> Simulation:
    """One run of the module, with these tables."""
    cores = run_compiled(prepared.compiled, machine, tables, deadline, recording.traces if recording else ())
    if recording is not None:
        recording.cores = cores
    simulation = _total(prepared.dump, machine, cores, with_lines=with_lines)
    assumption = prepared.dump.assumption
    if assumption is not None and simulation.seconds is None and FROM_VECTOR in simulation.unknown[0]:
        cores = _both_ways(prepared.compiled, machine, tables, deadline)[assumption == "always"]
        simulation = _total(prepared.dump, machine, cores, with_lines=with_lines)
        assumption_text = f"assumed, not known: code that depends on {FROM_VECTOR} {assumption} runs"
        simulation = replace(simulation, unknown=(*simulation.unknown, assumption_text))
    if machine == machine_of(prepared.chip):
        simulation = _with_range(_possible(simulation, prepared.chip), prepared, machine, tables, deadline)
    return _with_uncertainty(simulation)


def _both_ways(
    compiled: CompiledModule, machine: Machine, tables: Tables, deadline: float
) -> list[tuple[CoreRun, ...]]:
    """The shortest and the longest run over the outcomes of all decisions that depend on a vector's contents.

    In the first two runs, all of these conditions fail and all of them hold. The conditions do not show which of the
    two runs skips the conditional code, because a compiler may jump over this code or into it. So the run with fewer
    executed bundles counts as the shortest.

    Neither run executes code that needs one condition to hold and another to fail. So further runs reverse decisions
    one by one: first decisions with the same outcome in all runs, then decisions of the longest and of the shortest
    run. The search ends when a run has no end: this run then counts as the longest. If not all decisions can be
    reversed in `_MOST_WAYS` runs, the longest run is returned with `_TOO_MANY_WAYS` as its reason.
    """
    bounds = [GrantedBound(holds=holds) for holds in (False, True)]
    ways = [(bound, run_compiled(compiled, machine, tables, deadline, bound=bound)) for bound in bounds]
    first, last = sorted(ways, key=lambda way: _executed_bundles(way[1]))
    while not _reason(last[1]) and (bound := _next_bound(bounds, (last[0], first[0]))) is not None:
        if len(bounds) == _MOST_WAYS:
            return [first[1], tuple(replace(core, reason=_TOO_MANY_WAYS) for core in last[1])]
        bounds.append(bound)
        way = bound, run_compiled(compiled, machine, tables, deadline, bound=bound)
        if _reason(way[1]) or _cycles_of(way[1]) > _cycles_of(last[1]):
            last = way
        elif _cycles_of(way[1]) < _cycles_of(first[1]):
            first = way
    return [first[1], last[1]]


def _next_bound(bounds: list[GrantedBound], ends: tuple[GrantedBound, ...]) -> GrantedBound | None:
    """The assumptions of the next run, with one decision reversed, or None if every reversal has been run.

    Decisions with the same outcome in all runs are reversed first, then each decision of both `ends`.
    """
    outcomes: dict[Decision, set[bool]] = {}
    for bound in bounds:
        for decision, outcome in bound.turned.items():
            outcomes.setdefault(decision, set()).add(outcome)
        for decision, decided in bound.decided.items():
            outcomes.setdefault(decision, set()).update(decided)
    for bound in bounds:
        for decision in bound.decided:
            if len(outcomes[decision]) == 1:
                return bound.with_turn(decision)
    for end in ends if len(outcomes) > 1 else ():
        for decision, decided in end.decided.items():
            bound = end.with_turn(decision)
            if len(decided) == 1 and all((bound.holds, bound.turned) != (each.holds, each.turned) for each in bounds):
                return bound
    return None


def _executed_bundles(cores: tuple[CoreRun, ...]) -> int:
    return sum(op.bundle_cycles for core in cores for op in core.ops)


def _cycles_of(cores: tuple[CoreRun, ...]) -> int:
    return max(core.cycles for core in cores)


def _reason(cores: tuple[CoreRun, ...]) -> str:
    """The reason why the core with the most cycles has no end, or ""."""
    return max(cores, key=lambda core: core.cycles).reason


def _timed(name: str, run: Simulation) -> TimedRun:
    return TimedRun(
        name=name,
        seconds=run.seconds,
        plus_minus_seconds=run.plus_minus_seconds,
        relative_uncertainty=run.relative_uncertainty,
        hbm_bytes=run.hbm_read_bytes + run.hbm_written_bytes,
        mxu_flops=run.mxu_flops,
        unknown=run.unknown,
        range_seconds=run.range_seconds,
    )


def _with_range(
    simulation: Simulation, prepared: Prepared, machine: Machine, tables: Tables, deadline: float
) -> Simulation:
    """The simulation. If a vector or the SparseCore makes its latency unknown, the reason also states a range."""
    if simulation.seconds is not None or not simulation.unknown:
        return simulation
    reason, ends = simulation.unknown[0], None
    if SPARSE_CORE in reason:
        range_text, ends = _without_sparse_core(prepared, machine, tables, deadline)
    elif FROM_VECTOR in reason:
        until = min(deadline, time.monotonic() + _BOUND_SECONDS)
        ways = [_seconds_taken(cores, machine) for cores in _both_ways(prepared.compiled, machine, tables, until)]
        never, always = (_NO_END if isinstance(way, str) else _microseconds(way) for way in ways)
        range_text = (
            f"a range, not a latency: {never} (simulated) if code that depends on it never runs, {always} if it always "
            "runs"
        )
    else:
        return simulation
    return replace(simulation, unknown=(f"{reason}; {range_text}", *simulation.unknown[1:]), range_seconds=ends)


def _without_sparse_core(
    prepared: Prepared, machine: Machine, tables: Tables, deadline: float
) -> tuple[str, tuple[float, float] | None]:
    """A sentence on the range of the latency, and the range's two ends in seconds (None if one end is unknown)."""
    bound = GrantedBound(without_sparse_core=True)
    rest = _seconds_taken(run_compiled(prepared.compiled, machine, tables, deadline, bound=bound), machine)
    most = sparse_core.most_seconds(prepared.dump.module, machine)
    if isinstance(rest, str):
        return f"there is no range either: {rest}", None
    if most is None:
        return f"a range, not a latency: {_microseconds(rest)} or more (simulated as if that part took no time)", None
    range_text = (
        f"a range, not a latency: {_microseconds(rest)} (simulated as if that part took no time) to "
        f"{_microseconds(rest + most)} (as if it moved one slice or tile after the other, each in its transfer time)"
    )
    return range_text, (rest, rest + most)


def _seconds_taken(cores: tuple[CoreRun, ...], machine: Machine) -> float | str:
    """Seconds until the last core has ended, or the reason why it has no end."""
    return _reason(cores) or _cycles_of(cores) / machine.clock_hz


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def _with_uncertainty(simulation: Simulation) -> Simulation:
    """The simulation with the uncertainty of its time and of time ratios, which reports and verdicts use."""
    if simulation.seconds is None or not simulation.cycles:
        return simulation
    calls = sum(op.calls for op in simulation.ops)
    relative = relative_uncertainty(simulation.chip, simulation.seconds / max(1, calls))
    off = plus_minus_seconds(
        simulation.seconds,
        relative,
        is_understood=not simulation.unknown,
        link_wait_seconds=simulation.link_wait_cycles / simulation.clock_hz,
    )
    return replace(simulation, plus_minus_seconds=off, relative_uncertainty=relative)


def _possible(simulation: Simulation, chip: Chip) -> Simulation:
    """The simulation, without its latency if the chip cannot do the work in this time: then the simulator is wrong."""
    faults = impossibilities(simulation, chip)
    if not faults:
        return simulation
    reasons = tuple(f"the simulator is wrong: {text}" for text in faults)
    return replace(simulation, seconds=None, plus_minus_seconds=None, cycles=None, unknown=reasons + simulation.unknown)


def impossibilities(simulation: Simulation, chip: Chip) -> tuple[str, ...]:
    """Sentences on work that the chip cannot do in the simulated time, and on parts that do not sum to this time.

    Empty if the simulation is possible.
    """
    seconds, cycles = simulation.seconds, simulation.cycles
    if seconds is None or cycles is None:
        return ()
    faults = []
    if simulation.breakdown is not None:
        totals = {"parts": simulation.breakdown.cycles}
        if simulation.breakdown.lines:
            totals["lines"] = sum(line.cycles for line in simulation.breakdown.lines)
        for what, total in totals.items():
            if total != cycles:
                faults.append(f"the {what} of its time sum to {total:.0f} instead of {cycles:.0f} cycles")
    faults += [
        f"{unit.name} issues {unit.executed_slots} operations in {unit.offered_slots} slots"
        for unit in simulation.units
        if unit.executed_slots > unit.offered_slots
    ]
    faults += [
        f"{unit.name} is busy for {unit.busy_cycles:.0f} of {cycles:.0f} cycles"
        for unit in simulation.units
        if unit.busy_cycles is not None and unit.busy_cycles > cycles
    ]
    # The dtypes of the products are unknown, so the highest peak is the limit. Busy cycles were checked above.
    most = max(chip.peak_flops_per_second(dtype) for dtype in ("bfloat16", "int8", "float8", "int4"))
    if (simulation.mxu_flops or 0) > most * _ROUNDED_PEAK * seconds:
        faults.append(f"{simulation.mxu_flops} FLOPs in {seconds} s are more than the MXUs can do")
    moved = simulation.hbm_read_bytes + simulation.hbm_written_bytes
    if moved > chip.hbm_bytes_per_second * seconds:
        faults.append(f"{moved} bytes in {seconds} s are more than HBM can move")
    faults += [
        f"the link from chip {link.source} to {link.destination} is busy for {link.busy_seconds} of {seconds} s"
        for link in simulation.links
        if link.busy_seconds > seconds
    ]
    return tuple(faults)


def _total(dump: ModuleDump, machine: Machine, cores: tuple[CoreRun, ...], *, with_lines: bool) -> Simulation:
    # The chip finishes when its last core finishes. Usually all cores end together, at a barrier.
    last = max(cores, key=lambda core: core.cycles)
    offences = _merged(offence for core in cores for op in (*core.ops, core.top) for offence in op.offences)
    if dump.module.devices > 1:
        first = cores.index(last) // machine.cores * machine.cores
        cores = cores[first : first + machine.cores]
    reason = last.reason
    parts = breakdown(last, machine, with_lines=with_lines)
    cycles = float(last.cycles)
    seconds = None if reason else cycles / machine.clock_hz
    runs = [op for core in cores for op in core.ops]
    columns = _columns(dump, runs)
    remarks = [remark for op in runs for remark in op.remarks] + list(dump.remarks)
    for schedule, table in zip(dump.schedules, dump.utilisations, strict=True):
        if schedule.name in dump.calls and (table is None or len(table.rows) != len(schedule.bundles)):
            remarks.append(f"{schedule.name}: no table of unit slots fits its schedule, so its slots are not counted")
    offered = 0.0 if reason else cycles * machine.cores
    slots = {name: columns.get(name, _ScheduleColumn(0)) for name in ("VSTORE:SPILL", "VLOAD:FILL")}
    called = {op.schedule.name: op.schedule for op in runs}.values()
    return Simulation(
        chip=machine.chip,
        schedule=dump.digest,
        seconds=seconds,
        plus_minus_seconds=None,
        cycles=None if reason else cycles,
        bundle_cycles=sum(op.bundle_cycles for op in last.ops),
        dma_wait_cycles=_cycles(parts, "operand wait", "fill and drain"),
        unit_stall_cycles=_cycles(parts, "unit stall"),
        launch_cycles=_cycles(parts, "launch", "barrier wait"),
        clock_hz=machine.clock_hz,
        ops=() if reason else tuple(_op_time(op, machine) for op in last.ops),
        units=_units(columns, offered, sum(op.mxu_busy_cycles for op in runs) / machine.cores),
        static_bundles=sum(len(schedule.bundles) for schedule in called),
        empty_bundles=sum(len(schedule.empty) for schedule in called),
        static_spills=slots["VSTORE:SPILL"].static,
        static_fills=slots["VLOAD:FILL"].static,
        executed_spills=slots["VSTORE:SPILL"].executed,
        executed_fills=slots["VLOAD:FILL"].executed,
        hbm_read_bytes=sum(core.read_bytes for core in cores),
        hbm_written_bytes=sum(core.written_bytes for core in cores),
        dma_transfers=sum(core.transfers for core in cores),
        unknown=tuple(dict.fromkeys([*([reason] if reason else []), *remarks])),
        mxu_flops=sum(op.mxu_flops for op in runs),
        executed_steps=None if reason else grid_steps(runs),
        executed_empty_bundles=sum(op.empty_cycles for op in last.ops),
        breakdown=None if reason else parts,
        offences=offences,
        chips=dump.module.devices,
        links=() if reason else last.links,
        link_wait_cycles=sum(part.cycles for part in parts.parts if OTHER_CHIP in part.name),
    )


def _merged(offences: Iterable[Offence]) -> tuple[Offence, ...]:
    """The offences, with equal offences merged into one offence that has their total count."""
    merged: dict[tuple[str, str, str, str], Offence] = {}
    for offence in offences:
        key = offence.kind, offence.op, offence.what, offence.line
        before = merged.get(key)
        merged[key] = offence if before is None else replace(before, count=before.count + offence.count)
    return tuple(merged.values())


def _cycles(breakdown: CycleBreakdown, *kinds: PartKind) -> float:
    return float(sum(part.cycles for part in breakdown.parts if part.kind in kinds))


def _op_time(op: OpRun, machine: Machine) -> OpTime:
    return OpTime(
        name=op.schedule.name,
        bundles=len(op.schedule.bundles),
        executed_bundles=op.bundle_cycles,
        cycles=op.cycles,
        seconds=op.cycles / machine.clock_hz,
        calls=op.calls,
    )


@dataclass(slots=True)
class _ScheduleColumn:
    slots: int
    static: int = 0
    executed: int = 0


def _columns(dump: ModuleDump, runs: list[OpRun]) -> dict[str, _ScheduleColumn]:
    """The issue slots that each unit uses, from the compiler's table: in the schedule, and in all executed bundles."""
    columns: dict[str, _ScheduleColumn] = {}
    for schedule, table in zip(dump.schedules, dump.utilisations, strict=True):
        ran = [run.executions for run in runs if run.schedule is schedule]
        if not ran or table is None or len(table.rows) != len(schedule.bundles):
            continue
        executions = [sum(counts) for counts in zip(*ran, strict=True)]
        for name, slots, used in zip(table.units, table.slots, zip(*table.rows, strict=True), strict=False):
            column = columns.setdefault(name, _ScheduleColumn(slots))
            column.static += sum(used)
            column.executed += sum(map(mul, used, executions))
    return columns


def _units(columns: dict[str, _ScheduleColumn], offered: float, mxu_busy: float) -> tuple[Unit, ...]:
    return tuple(
        Unit(
            name=name,
            slots_per_bundle=column.slots,
            static_slots=column.static,
            executed_slots=column.executed,
            offered_slots=int(offered) * column.slots,
            busy_cycles=mxu_busy if name == "MXU" else None,
        )
        for name, column in columns.items()
        if not re.search(r":(FILL|SPILL)$", name)
    )
