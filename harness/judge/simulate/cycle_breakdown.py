"""The breakdown of a core's run: the parts of its time, and the cost of register spills."""

from collections import Counter
from itertools import chain

from harness.judge.simulate.line_times import line_times
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.runs import CoreRun, grid_steps
from harness.judge.simulate.structure import REGISTER_BYTES, spilling_bundles
from harness.records import CycleBreakdown, Part, PartKind


def breakdown(core: CoreRun, machine: Machine, *, with_lines: bool) -> CycleBreakdown:
    """The cycles of one core's run by cause. The parts sum to all cycles, and so do the lines if `with_lines`."""
    parts: Counter[tuple[PartKind, str]] = Counter()
    moved: Counter[str] = Counter()
    spill_cycles = 0
    for op in core.ops:
        for idle in op.idle:
            parts[idle.kind, idle.name] += idle.cycles
        parts["issuing", ""] += op.bundle_cycles - op.empty_cycles
        parts["empty bundles", ""] += op.empty_cycles
        spills = spilling_bundles(op.schedule)
        for kind, indices in spills.items():
            moved[kind] += sum(map(op.executions.__getitem__, indices))
        bundles = op.schedule.bundles
        for index, count in Counter(chain.from_iterable(spills.values())).items():
            spill_cycles += op.executions[index] * (count == len(bundles[index].ops))
    for idle in core.top.top_level_waits:
        parts[idle.kind, idle.name] += idle.cycles
    parts["launch", ""] += core.top.launch_cycles
    return CycleBreakdown(
        parts=tuple(
            Part(kind=kind, name=name, cycles=cycles) for (kind, name), cycles in parts.most_common() if cycles
        ),
        lines=line_times(core, machine) if with_lines else (),
        steps=grid_steps(core.ops),
        spilled_bytes=moved["spill"] * REGISTER_BYTES,
        filled_bytes=moved["fill"] * REGISTER_BYTES,
        spill_cycles=spill_cycles,
    )
