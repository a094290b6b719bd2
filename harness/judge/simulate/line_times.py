"""The cost of every source line of a kernel in one core's run; computing it takes about as long as the run itself."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from harness.dumps.llo import Op
from harness.judge.simulate.functional_units import uses_of, waited_for
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.runs import CoreRun, OpRun
from harness.judge.simulate.source_lines import ascribed
from harness.judge.simulate.structure import REGISTER_BYTES, unit_of, vector_spill, vector_spills
from harness.records import LineTime
from harness.records.cycle_breakdown import TRANSPOSED_PUSH

_EXPONENTIALS = ("vexp", "vpow")


def line_times(core: CoreRun, machine: Machine) -> tuple[LineTime, ...]:
    """The times of all source lines, the most expensive first; they sum to the run's cycles."""
    lines: defaultdict[str, _Line] = defaultdict(_Line)
    for op in core.ops:
        _add(op, machine, lines)
    lines[""].issue += core.top.launch_cycles
    lines[""].wait += sum(idle.cycles for idle in core.top.top_level_waits)
    most_first = sorted(lines.items(), key=lambda item: (-item[1].cycles, item[0]))
    return tuple(line.record(source) for source, line in most_first)


@dataclass(slots=True)
class _Line:
    issue: int = 0
    stall: int = 0
    wait: int = 0
    spilled: int = 0
    filled: int = 0
    operations: Counter[str] = field(default_factory=Counter)

    @property
    def cycles(self) -> int:
        return self.issue + self.stall + self.wait

    def record(self, source: str) -> LineTime:
        file, _, line = source.rpartition(":")
        return LineTime(
            file=file,
            line=int(line or 0),
            issue_cycles=self.issue,
            stall_cycles=self.stall,
            wait_cycles=self.wait,
            operations=tuple(sorted(self.operations.items())),
            spilled_bytes=self.spilled * REGISTER_BYTES,
            filled_bytes=self.filled * REGISTER_BYTES,
        )


def _add(run: OpRun, machine: Machine, lines: "defaultdict[str, _Line]") -> None:
    sources, bundles = ascribed(run.schedule), run.schedule.bundles
    alike: defaultdict[int, list[int]] = defaultdict(list)
    for index, executed in enumerate(run.executions):
        alike[executed].append(index)
    alike.pop(0, None)
    # Many bundles run equally often and belong to the same lines, so each group of such bundles is computed once.
    for executed, places in alike.items():
        for shared, times in Counter(sources[index].shared for index in places).items():
            # Each line that shares the bundle gets an equal part of the bundle's executions, in whole numbers.
            each, left = divmod(executed, len(shared))
            for place, name in enumerate(shared):
                lines[name].issue += times * (each + (place < left))
        names = chain.from_iterable(sources[index].operations for index in places)
        opcodes = map(attrgetter("opcode"), chain.from_iterable(bundles[index].ops for index in places))
        for (name, opcode), times in Counter(zip(names, opcodes, strict=True)).items():
            if unit := unit_of(opcode):
                lines[name].operations[unit] += times * executed
                if unit == "EUP" and not opcode.startswith(_EXPONENTIALS):
                    lines[name].operations[f"EUP {opcode.partition('.')[0].removeprefix('v')}"] += times * executed
                if opcode.startswith("vmatpush") and ".xpose" in opcode:
                    lines[name].operations[TRANSPOSED_PUSH] += times * executed
    for index in dict.fromkeys(index for index, _ in vector_spills(run.schedule)):
        for op, name in zip(bundles[index].ops, sources[index].operations, strict=True):
            if kind := vector_spill(op):
                lines[name].spilled += run.executions[index] * (kind == "spill")
                lines[name].filled += run.executions[index] * (kind == "fill")
    for idle in run.idle:
        source, ops = sources[idle.bundle], bundles[idle.bundle].ops
        if idle.kind == "unit stall":
            waiting = [name for op, name in zip(ops, source.operations, strict=True) if _waits(op, idle.name, machine)]
            lines[waiting[0] if waiting else ""].stall += idle.cycles
        else:
            waiting = [name for op, name in zip(ops, source.operations, strict=True) if "wait" in op.opcode]
            lines[waiting[0] if waiting else ""].wait += idle.cycles


def _waits(op: Op, name: str, machine: Machine) -> bool:
    return any(waited_for(use) == name for use in uses_of(op, machine))
