"""The run of one compiled module on a chip's cores: its top-level program, and every HLO op that the program calls."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from harness.dumps.llo import ModuleDump, called_name, called_operands
from harness.hlo.tables import Tables
from harness.judge.simulate.channel import Channel, GrantedBound
from harness.judge.simulate.compiled import Program, Steps
from harness.judge.simulate.compiled_module import CompiledModule, compile_module
from harness.judge.simulate.contents import OperandContents, Words
from harness.judge.simulate.functional_units import Pipes
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.runs import CoreRun, OpRun, StallCycles
from harness.judge.simulate.scalar import result_places
from harness.judge.simulate.scalar_memory import Arrival, Memory
from harness.judge.simulate.several_chips import ChipPort, in_order_of_time, left_over, ports
from harness.judge.simulate.stalls import Account
from harness.judge.simulate.timeline_spans import SpanRecorder
from harness.judge.simulate.unknown_operations import not_understood
from harness.judge.simulate.values import Unknowable, Unknown
from harness.records import Offence, OffenceKind, PartKind

# A kernel that runs longer than this on the chip is assumed never to end.
_LONGEST_RUN_SECONDS = 10.0


def run_cores(
    dump: ModuleDump,
    machine: Machine,
    tables: Tables,
    deadline: float = float("inf"),
    traces: tuple[SpanRecorder, ...] = (),
    bound: GrantedBound | None = None,
) -> tuple[CoreRun, ...]:
    """The runs of the module on all cores of its chips. The cores wait for each other at the program's barriers.

    `deadline` is a time.monotonic() value. `traces`, one for each core of each chip, record a timeline. With a `bound`,
    decisions on unknown values have the outcomes that the bound assumes, so the time is only a bound on the latency.
    """
    return run_compiled(compile_module(dump, machine, traced=bool(traces)), machine, tables, deadline, traces, bound)


def run_compiled(
    module: CompiledModule,
    machine: Machine,
    tables: Tables,
    deadline: float = float("inf"),
    traces: tuple[SpanRecorder, ...] = (),
    bound: GrantedBound | None = None,
) -> tuple[CoreRun, ...]:
    """The result of `run_cores` for a module compiled for a machine with the same branch slots as `machine`."""
    execution = _ModuleExecution(
        module=module, machine=machine, tables=tables, deadline=deadline, bound=bound, is_watching=bound is None
    )
    cores, reason = _run_to_end(execution, traces)
    return tuple(core.finished(reason) for core in cores)


def cycles_of(module: CompiledModule, machine: Machine, tables: Tables, deadline: float) -> int | None:
    """The cycles that the compiled module takes; None if its end is not known."""
    cores, reason = _run_to_end(_ModuleExecution(module=module, machine=machine, tables=tables, deadline=deadline))
    return None if reason else max(core.clock for core in cores)


def _run_to_end(execution: "_ModuleExecution", traces: tuple[SpanRecorder, ...] = ()) -> "tuple[list[_Core], str]":
    """All cores after their run, grouped by chip; and the reason why the run has no end, or ""."""
    if execution.module.chips > 1 and not execution.module.unfit:
        top = execution.module.schedules[execution.module.top]
        names = execution.module.programs[top.name].names
        several = ports(execution.module.chips, execution.machine, top, names, execution.module.constants)
        cores = [
            _Core(execution, port.core, traces[place] if traces else None, port) for place, port in enumerate(several)
        ]
        for core, port in zip(cores, several, strict=True):
            core.channel.others = [
                other.channel
                for other, its in zip(cores, several, strict=True)
                if its.number == port.number and other is not core
            ]
        reason = in_order_of_time(several, [core.steps() for core in cores])
        if not reason:
            for core, port in zip(cores, several, strict=True):
                core.tallies[top.name].offences.update(
                    {("transfer-pending", what, ""): count for what, count in left_over(port, names).items()}
                )
        return cores, reason
    cores = [_Core(execution, number, traces[number] if traces else None) for number in range(execution.machine.cores)]
    for core in cores:
        core.channel.others = [other.channel for other in cores if other is not core]
    return cores, execution.module.unfit or _run_in_step([core.steps() for core in cores])


def _run_in_step(cores: list[Steps]) -> str:
    """Runs all cores to their end, from barrier to barrier. Returns the reason if the run has no end, otherwise ""."""
    clock = 0
    started = False
    try:
        while True:
            arrived = []
            for steps in cores:
                try:
                    arrived.append(steps.send(clock) if started else next(steps))
                except StopIteration:
                    continue
            if not arrived:
                return ""
            if len(arrived) < len(cores):
                return "one core has ended while the other waits for it"
            clock = max(arrived)
            started = True
    except Unknowable as error:
        return str(error)


@dataclass(slots=True, kw_only=True)
class _ModuleExecution:
    """The state shared by the cores that run a module."""

    module: CompiledModule
    machine: Machine
    tables: Tables
    deadline: float
    bound: GrantedBound | None = None
    is_watching: bool = False
    # Transfers that one core has started for both cores, by op and call.
    for_others: dict[tuple[str, int], dict[int, list[Arrival]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Tally:
    """The totals over all calls of one op so far."""

    pipes: Pipes
    calls: int = 0
    cycles: int = 0
    idle: Counter[tuple[int, PartKind, str]] = field(default_factory=Counter)
    traffic: tuple[int, int, int] = (0, 0, 0)
    remarks: Counter[str] = field(default_factory=Counter)
    offences: dict[tuple[OffenceKind, str, str], int] = field(default_factory=dict)


class _Core:
    """One core while it runs."""

    def __init__(
        self, execution: _ModuleExecution, number: int, trace: SpanRecorder | None, port: ChipPort | None = None
    ) -> None:
        self.trace = trace
        self.port = port
        self.execution = execution
        self.module = execution.module
        self.number = number
        self.channel = Channel(execution.machine, execution.bound)
        self.tallies: dict[str, _Tally] = {}
        self.clock = 0
        self.tick = _budget(execution.machine, execution.deadline)

    def steps(self) -> Steps:
        """A generator that runs the top-level program from its start."""
        self.clock = yield from self._run(self.module.top, (), self.module.parameters, 0, runtime=True)
        return self.clock

    def _run(
        self,
        name: str,
        arguments: "tuple[int | Unknown, ...]",
        operands: tuple[str, ...],
        clock: int,
        *,
        runtime: bool = False,
        handed: Mapping[int, Words] | None = None,
        results: dict[int, Words] | None = None,
    ) -> Steps:
        module, machine, tables = self.module, self.execution.machine, self.execution.tables
        if name not in module.programs:
            twin = tables.same_code(name, module.programs)
            if twin is None:
                raise Unknowable(f"{name}: neither its schedule nor that of an equal instruction is in the dump")
            name = twin
        program = module.programs[name]
        tally = self.tallies.get(name) or self.tallies.setdefault(name, _Tally(program.pipes(machine)))
        tally.calls += 1
        account = Account(module.schedules[name])
        if self.trace is not None:
            self.trace.enter(module.schedules[name], program.stretches, account, clock)
        results_at = {
            result: program.operands[parameter][1]
            for result, parameter in module.in_place.items()
            if runtime and parameter in program.operands
        }
        memory = Memory(
            self.channel,
            program.names,
            core=self.number,
            for_others=self.execution.for_others.setdefault((name, tally.calls), {}),
            arguments=_arguments(tables, arguments, operands),
            operands=[
                *_operands(tables, program, operands, name, handed or {}),
                *(_constants(module.constants) if runtime else ()),
            ],
            account=account,
            trace=self.trace,
            runtime=runtime,
            alone=program.for_first_core,
            runtime_words={
                **dict.fromkeys(module.prefetched, 0),
                **(dict.fromkeys(module.result_words, results_at[0]) if 0 in results_at else {}),
            },
            results_at={**(dict(enumerate(result_places(module.results))) if runtime else {}), **results_at},
            touches=program.touches if self.execution.is_watching and self.port is None else None,
            port=self.port,
            identity=program.identity,
        )

        if runtime:
            memory.contents.hold(module.constants)

        def call(number: int, values: "tuple[int | Unknown, ...]", at: int) -> Steps:
            op = program.calls[number]
            operands = called_operands(op)
            handed_words = memory.contents.handed(values)
            # After the results come the addresses of the constants and scratch memory that the compiler adds.
            count = tables.result_count(called_name(op))
            ends_at = None if count is None else len(operands) + count
            memory.contents.written_by_call(values[len(operands) : ends_at], partial(tables.words, called_name(op)))
            if self.port is not None:
                self.port.share(memory.words, program.identity)
            made: dict[int, Words] = {}
            end = yield from self._run(called_name(op), values, operands, at, handed=handed_words, results=made)
            memory.contents.returned(values, made)
            return end

        end = clock
        before = self.channel.traffic
        try:
            end = yield from program.run(memory, tally.pipes, self.tick, clock, call)
            end = memory.end(end, len(module.schedules[name].bundles) - 1)
            if results is not None:
                results.update(memory.results({index: program.operands[index] for index in program.outputs}))
        except Unknowable as error:
            if error.unwritten:
                memory.offend("memory-nobody-wrote", str(error))
            raise Unknowable(str(error) if ": " in str(error) else f"{name}: {error}") from error
        finally:
            tally.cycles += end - clock
            account.close()
            tally.idle.update(account.cycles)
            moved = zip(tally.traffic, self.channel.traffic, before, strict=True)
            read, written, transfers = (old + now - then for old, now, then in moved)
            tally.traffic = read, written, transfers
            tally.remarks.update(memory.remarks)
            for offence, count in memory.offences.items():
                tally.offences[offence] = tally.offences.get(offence, 0) + count
        if self.trace is not None:
            self.trace.leave(end)
        return end

    def finished(self, reason: str) -> CoreRun:
        """The record of this core's run; `reason` states why the run has no end, or is ""."""
        names = [name for name in self.tallies if name != self.module.top]
        if not names and reason:
            names = [name for name in self.module.schedules if name != self.module.top]
        return CoreRun(
            cycles=self.clock,
            top=self._op(self.module.top, reason),
            ops=tuple(self._op(name, reason) for name in names),
            read_bytes=self.channel.traffic[0],
            written_bytes=self.channel.traffic[1],
            transfers=self.channel.traffic[2],
            reason=reason,
            links=self.port.network.traffic if self.port is not None else (),
        )

    def _op(self, name: str, reason: str) -> OpRun:
        program, schedule = self.module.programs[name], self.module.schedules[name]
        machine = self.execution.machine
        tally = self.tallies.get(name) or _Tally(program.pipes(machine))
        executions = [0] * len(schedule.bundles)
        busy, flops = tally.pipes.matmuls
        for stretch, count in zip(program.stretches, tally.pipes.counts, strict=True):
            if count:
                for index in range(stretch.first, stretch.last):
                    executions[index] += count
        idle = Counter(tally.idle)
        for number, offset, waited, cycles in tally.pipes.stalls():
            idle[program.stretches[number].first + offset, "unit stall", waited] += cycles
        remarks = [f"{name}: {text} ({count} times)" for text, count in tally.remarks.items()]
        remarks += [f"{name}: {text}" for text in not_understood(schedule, executions)]
        if tally.pipes.empty_pops:
            remarks.append(f"{name}: the program pops results that nothing has pushed: unit latencies are incomplete")
        return OpRun(
            schedule=schedule,
            calls=tally.calls,
            cycles=tally.cycles,
            executions=tuple(executions),
            idle=tuple(StallCycles(*key, cycles) for key, cycles in sorted(idle.items())),
            mxu_busy_cycles=busy / machine.mxus,
            mxu_flops=flops,
            read_bytes=tally.traffic[0],
            written_bytes=tally.traffic[1],
            transfers=tally.traffic[2],
            reason=reason,
            remarks=tuple(remarks),
            offences=tuple(
                Offence(kind=kind, op=name, what=what, line=line, count=count)
                for (kind, what, line), count in tally.offences.items()
            ),
        )


def _arguments(
    tables: Tables, arguments: "tuple[int | Unknown, ...]", operands: tuple[str, ...]
) -> "list[int | Unknown]":
    """The values that an op receives in registers.

    A value that the caller does not know is taken from the HLO module, if the module determines it.
    """
    registers: list[int | Unknown] = [*arguments]
    registers += [Unknown("an argument that the caller did not pass") for _ in operands[len(registers) :]]
    for index, name in enumerate(operands):
        if isinstance(registers[index], Unknown):
            values = tables.values(name)
            if values is not None and values.size == 1:
                registers[index] = int(values.ravel()[0])
    return registers


def _operands(
    tables: Tables, program: Program, names: tuple[str, ...], op: str, handed: Mapping[int, Words]
) -> list[OperandContents]:
    """The places of the op's operands and outputs, with the contents that transfers may read.

    By operand, `handed` has the words that the caller knows at the operand's address. The words of an output are
    unknown. If an operand's memory is that of a result, its words are unknown too, because the op may write them first.
    """
    contents = []
    written = tables.written_operands(op)
    for index, (space, address) in program.operands.items():
        name = names[index] if 0 <= index < len(names) else f"{op} operand {index}"
        words: Words = partial(_words, tables, name, handed.get(index))
        if index in program.outputs:
            name = f"{op} output"
        if index in program.outputs or index in written:
            words = _nothing
        contents.append(OperandContents(name=name, space=space, address=address, words=words))
    return contents


def _constants(constants: Mapping[int, tuple[int, ...]]) -> list[OperandContents]:
    """Constants of the module as operands of the top-level program, which may read any part of them."""
    return [
        OperandContents(name="a constant", space="hbm", address=address, words=partial(tuple, words))
        for address, words in constants.items()
    ]


def _words(tables: Tables, name: str, handed: Words | None) -> "tuple[int | Unknown, ...] | None":
    return tables.words(name) or (handed() if handed is not None else None)


def _nothing() -> None:
    """No words, because the former contents of an op's outputs are not known."""


def _budget(machine: Machine, deadline: float) -> Callable[[int], None]:
    """A function to call before every block of a program. It raises Unknowable if the run has taken too long.

    The simulated time is limited, and so is the time on this computer (by `deadline`).
    """
    limit = int(_LONGEST_RUN_SECONDS * machine.clock_hz)
    jumps = 0

    def tick(clock: int) -> None:
        nonlocal jumps
        jumps += 1
        if clock > limit:
            raise Unknowable(f"it has not ended after {_LONGEST_RUN_SECONDS:.0f} s of chip time")
        if not jumps & 1023 and time.monotonic() > deadline:
            raise Unknowable("the time limit of the simulation ran out")

    return tick
