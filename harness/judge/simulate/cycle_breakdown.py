"""A core's run taken apart: the parts of its time, and what every source line of the kernel costs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from harness.dumps.llo import Op
from harness.judge.simulate.functional_units import uses_of, waited_for
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.runs import CoreRun, OpRun
from harness.judge.simulate.source_lines import ascribed
from harness.judge.simulate.structure import unit_of, vector_spill, vector_spills
from harness.records import CycleBreakdown, LineTime, Part, PartKind

# A vector register: 8 x 128 values of 32 bits.
_REGISTER_BYTES = 4096
_EXPONENTIALS = ("vexp", "vpow")


def breakdown(core: CoreRun, machine: Machine) -> CycleBreakdown:
    """Where the cycles of one core's run went; its parts and its lines sum to them."""
    parts: Counter[tuple[PartKind, str]] = Counter()
    lines: defaultdict[str, _Line] = defaultdict(_Line)
    spill_cycles = 0
    for op in core.ops:
        for idle in op.idle:
            parts[idle.kind, idle.name] += idle.cycles
        parts["issuing", ""] += op.bundle_cycles - op.empty_cycles
        parts["empty bundles", ""] += op.empty_cycles
        spills = Counter(index for index, _ in vector_spills(op.schedule))
        bundles = op.schedule.bundles
        spill_cycles += sum(op.executions[i] for i, count in spills.items() if count == len(bundles[i].ops))
        _add_lines(op, machine, spills, lines)
    _add_top(core, parts, lines[""])
    steps = [op.steps for op in core.ops if op.steps is not None]
    return CycleBreakdown(
        parts=tuple(
            Part(kind=kind, name=name, cycles=cycles) for (kind, name), cycles in parts.most_common() if cycles
        ),
        lines=tuple(line.record(source) for source, line in sorted(lines.items(), key=_most_first)),
        steps=sum(steps) if steps else None,
        spilled_bytes=sum(line.spilled for line in lines.values()) * _REGISTER_BYTES,
        filled_bytes=sum(line.filled for line in lines.values()) * _REGISTER_BYTES,
        spill_cycles=spill_cycles,
    )


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
            spilled_bytes=self.spilled * _REGISTER_BYTES,
            filled_bytes=self.filled * _REGISTER_BYTES,
        )


def _most_first(item: tuple[str, _Line]) -> tuple[int, str]:
    return -item[1].cycles, item[0]


def _add_top(core: CoreRun, parts: "Counter[tuple[PartKind, str]]", line: _Line) -> None:
    """The top-level program: its waits are waits, everything else it does is the launch."""
    launch = 0
    if core.top is not None:
        launch += core.top.bundle_cycles
        for idle in core.top.idle:
            if idle.kind in ("operand wait", "barrier wait"):
                parts[idle.kind, idle.name] += idle.cycles
                line.wait += idle.cycles
            else:
                launch += idle.cycles
    parts["launch", ""] += launch
    line.issue += launch


def _add_lines(run: OpRun, machine: Machine, spills: Iterable[int], lines: "defaultdict[str, _Line]") -> None:
    """Adds what the op's lines cost; `spills` are the bundles in which registers are saved and restored."""
    sources, bundles = ascribed(run.schedule), run.schedule.bundles
    ran = [place for place in zip(run.executions, bundles, sources, strict=True) if place[0]]
    # Most bundles run as often as their neighbours and serve the same lines: each kind is worked out once.
    for (executed, shared), times in Counter((executed, source.shared) for executed, _, source in ran).items():
        for name, cycles in _shares(executed, shared):
            lines[name].issue += times * cycles
    issued = Counter(
        (executed, name, op.opcode)
        for executed, bundle, source in ran
        for op, name in zip(bundle.ops, source.operations, strict=True)
    )
    for (executed, name, opcode), times in issued.items():
        if unit := unit_of(opcode):
            lines[name].operations[unit] += times * executed
            if unit == "EUP" and not opcode.startswith(_EXPONENTIALS):
                lines[name].operations[f"EUP {opcode.partition('.')[0].removeprefix('v')}"] += times * executed
    for index in spills:
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


def _shares(executed: int, shared: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """The executions of a bundle shared by its operations, in whole cycles so that nothing gets lost."""
    each, left = divmod(executed, len(shared))
    for place, name in enumerate(shared):
        yield name, each + (place < left)


def _waits(op: Op, name: str, machine: Machine) -> bool:
    return any(waited_for(use) == name for use in uses_of(op, machine))
