"""One compiled module simulated: every HLO op that its top-level program calls, added up."""

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.dumps.llo import ModuleDump, Schedule, read_module
from harness.hardware import Chip
from harness.records import OpTime, Simulation, Unit
from harness.simulate.machine import Machine, machine_of
from harness.simulate.memory import Memory
from harness.simulate.opcodes import not_understood
from harness.simulate.program import compile_program
from harness.simulate.values import Unknowable

# A kernel that has not ended after this long on the chip does not end.
_LONGEST_RUN_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRun:
    """One HLO op, executed once: `executions[i]` is how often bundle i ran; `reason` is why it has no end, else ""."""

    schedule: Schedule
    cycles: int
    executions: tuple[int, ...]
    wait_cycles: int
    mxu_busy_cycles: float
    mxu_flops: int
    read_bytes: int
    written_bytes: int
    transfers: int
    reason: str
    remarks: tuple[str, ...]

    @property
    def bundle_cycles(self) -> int:
        """Bundles issued, one cycle each."""
        return sum(self.executions)


def run(dump_directory: Path, chip: Chip, *, deadline_seconds: float = 60.0) -> Simulation:
    """The module dumped in `dump_directory`, executed on `chip`.

    `seconds` is None, with the reason first in `unknown`, where the control flow depends on
    something that is not known, a wait can never be satisfied, or the run exceeds
    `deadline_seconds` of this machine's time. Raises RatchetError `no-dump` without a schedule.
    """
    dump = read_module(dump_directory)
    machine = machine_of(chip)
    deadline = time.monotonic() + deadline_seconds
    called = [schedule for schedule in dump.schedules if schedule.name in dump.calls]
    runs = {schedule.name: run_op(schedule, machine, deadline) for schedule in called}
    return _total(dump, machine, runs)


def run_op(schedule: Schedule, machine: Machine, deadline: float = float("inf")) -> OpRun:
    """One HLO op's schedule, executed from its first bundle to its last; `deadline` is a time.monotonic() value."""
    program = compile_program(schedule, machine)
    memory = Memory(machine, program.names)
    pipes = program.pipes()
    counts = [0] * len(program.stretches)
    reason = _unfit(schedule)
    cycles = 0
    if not reason:
        try:
            cycles = program.run(memory, pipes, _budget(machine, deadline), counts)
        except Unknowable as error:
            reason = f"{schedule.name}: {error}"
    executions = [0] * len(schedule.bundles)
    busy = 0
    flops = 0
    for stretch, count in zip(program.stretches, counts, strict=True):
        if count:
            for index in range(stretch.first, stretch.last):
                executions[index] += count
            for _, uses in stretch.uses:
                for use in uses:
                    flops += count * use.flops
                    busy += count * use.cycles * (use.flops > 0)
    remarks = [f"{schedule.name}: {text} ({count} times)" for text, count in memory.remarks.items()]
    remarks += [f"{schedule.name}: {text}" for text in not_understood(schedule, executions)]
    if pipes.empty_pops:
        remarks.append(f"{schedule.name}: results were popped that nothing had pushed: unit latencies are incomplete")
    return OpRun(
        schedule=schedule,
        cycles=cycles,
        executions=tuple(executions),
        wait_cycles=memory.wait_cycles,
        mxu_busy_cycles=busy / machine.mxus,
        mxu_flops=flops,
        read_bytes=memory.read_bytes,
        written_bytes=memory.written_bytes,
        transfers=memory.transfers,
        reason=reason,
        remarks=tuple(remarks),
    )


def _unfit(schedule: Schedule) -> str:
    """Why a schedule cannot be executed at all, else ""."""
    if not schedule.bundles:
        return f"{schedule.name}: its schedule holds no bundle that can be read"
    for index, bundle in enumerate(schedule.bundles):
        if bundle.address != index:
            return f"{schedule.name}: bundle {index:#x} is missing from its schedule"
    return ""


def _budget(machine: Machine, deadline: float) -> Callable[[int], None]:
    """Called at every jump; raises Unknowable when the chip's time or this machine's runs out."""
    limit = int(_LONGEST_RUN_SECONDS * machine.clock_hz)
    jumps = 0

    def tick(clock: int) -> None:
        nonlocal jumps
        jumps += 1
        if clock > limit:
            raise Unknowable(f"it has not ended after {_LONGEST_RUN_SECONDS:.0f} s on the chip")
        if not jumps & 1023 and time.monotonic() > deadline:
            raise Unknowable("the time limit of the simulation ran out")

    return tick


def _total(dump: ModuleDump, machine: Machine, runs: dict[str, OpRun]) -> Simulation:
    calls = Counter(dump.calls)
    reasons = [run.reason for run in runs.values() if run.reason]
    looped = [remark for remark in dump.remarks if "loop" in remark or "not in the dump" in remark]
    launch = float(dump.top_level_bundles + machine.launch_cycles)

    def total(value: Callable[[OpRun], float]) -> float:
        return sum(value(runs[name]) * count for name, count in calls.items())

    cycles = total(lambda run: run.cycles) + launch
    bundles = int(total(lambda run: run.bundle_cycles))
    waits = total(lambda run: run.wait_cycles)
    known = not reasons and not looped
    seconds = cycles / machine.clock_hz if known else None
    columns = _columns(dump, runs, calls)
    remarks = [remark for run in runs.values() for remark in run.remarks] + list(dump.remarks)
    for schedule, table in zip(dump.schedules, dump.utilisations, strict=True):
        if schedule.name in runs and (table is None or len(table.rows) != len(schedule.bundles)):
            remarks.append(f"{schedule.name}: no table of unit slots fits its schedule, so its slots are not counted")
    return Simulation(
        chip=machine.chip,
        seconds=seconds,
        plus_minus_seconds=None if seconds is None else seconds * machine.relative_error,
        cycles=cycles if known else None,
        bundle_cycles=bundles,
        dma_wait_cycles=waits,
        unit_stall_cycles=cycles - launch - bundles - waits if known else 0.0,
        launch_cycles=launch,
        clock_hz=machine.clock_hz,
        ops=tuple(
            OpTime(
                name=name,
                bundles=len(runs[name].schedule.bundles),
                executed_bundles=runs[name].bundle_cycles,
                cycles=runs[name].cycles,
                seconds=runs[name].cycles / machine.clock_hz,
            )
            for name in dump.calls
            if not runs[name].reason
        ),
        units=_units(columns, cycles if known else 0.0, total(lambda run: run.mxu_busy_cycles)),
        static_bundles=sum(len(run.schedule.bundles) for run in runs.values()),
        empty_bundles=sum(not bundle.ops for run in runs.values() for bundle in run.schedule.bundles),
        static_spills=columns["VSTORE:SPILL"].static if "VSTORE:SPILL" in columns else 0,
        static_fills=columns["VLOAD:FILL"].static if "VLOAD:FILL" in columns else 0,
        executed_spills=columns["VSTORE:SPILL"].executed if "VSTORE:SPILL" in columns else 0,
        executed_fills=columns["VLOAD:FILL"].executed if "VLOAD:FILL" in columns else 0,
        hbm_read_bytes=int(total(lambda run: run.read_bytes)),
        hbm_written_bytes=int(total(lambda run: run.written_bytes)),
        dma_transfers=int(total(lambda run: run.transfers)),
        unknown=tuple(dict.fromkeys([*reasons, *looped, *remarks])),
        mxu_flops=int(total(lambda run: run.mxu_flops)),
        executed_steps=_steps(runs, calls) if known else None,
        executed_empty_bundles=int(total(_empty_executed)),
    )


def _steps(runs: dict[str, OpRun], calls: Counter[str]) -> int | None:
    """Grid steps of all Pallas kernels together, from how often their grid loops' exit tests ran."""
    kernels = [run for run in runs.values() if run.schedule.grid_exit is not None]
    if not kernels:
        return None
    return sum(
        calls[run.schedule.name] * (run.executions[run.schedule.grid_exit or 0] - run.schedule.pipeline_depth)
        for run in kernels
    )


def _empty_executed(run: OpRun) -> int:
    return sum(n for n, bundle in zip(run.executions, run.schedule.bundles, strict=True) if not bundle.ops)


@dataclass(slots=True)
class _Column:
    slots: int
    static: int = 0
    executed: int = 0


def _columns(dump: ModuleDump, runs: dict[str, OpRun], calls: Counter[str]) -> dict[str, _Column]:
    """Issue slots per unit from the compiler's per-bundle table, weighted by how often each bundle ran."""
    columns: dict[str, _Column] = {}
    for schedule, table in zip(dump.schedules, dump.utilisations, strict=True):
        run = runs.get(schedule.name)
        if run is None or table is None or len(table.rows) != len(schedule.bundles):
            continue
        for i, (name, slots) in enumerate(zip(table.units, table.slots, strict=True)):
            column = columns.setdefault(name, _Column(slots))
            used = [row[i] for row in table.rows]
            column.static += sum(used)
            column.executed += calls[schedule.name] * sum(
                n * count for n, count in zip(used, run.executions, strict=True) if n
            )
    return columns


def _units(columns: dict[str, _Column], cycles: float, mxu_busy: float) -> tuple[Unit, ...]:
    return tuple(
        Unit(
            name=name,
            slots_per_bundle=column.slots,
            static_slots=column.static,
            executed_slots=column.executed,
            offered_slots=int(cycles) * column.slots,
            busy_cycles=mxu_busy if name == "MXU" else None,
        )
        for name, column in columns.items()
        if not re.search(r":(FILL|SPILL)$", name)
    )
