"""A simulated run to look at: all of it step by step, some of its steps bundle by bundle."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from harness.dumps.llo import ModuleDump
from harness.errors import RatchetError
from harness.hardware import Chip
from harness.hlo.evaluation import Values
from harness.hlo.tables import Tables
from harness.judge.simulate.core import run_cores
from harness.judge.simulate.cycle_breakdown import breakdown
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.runs import CoreRun
from harness.judge.simulate.timeline_spans import SpanRecorder, SpanWindow
from harness.records import CycleBreakdown, Span, Timeline

# In an op without a grid there are no steps to show; of its middle this many cycles are.
_SHOWN_WITHOUT_GRID = 2_000


def timeline(
    dump: ModuleDump,
    chip: Chip,
    *,
    steps_shown: int = 2,
    deadline_seconds: float = 60.0,
    operands: Mapping[str, Values] | None = None,
) -> Timeline:
    """What happens when in the module on `chip`: HLO ops, grid steps, transfers and waits of every core.

    `steps_shown` steps from the middle of the longest op's grid are shown bundle by bundle, on
    core 0: what each unit issues, and what a bundle stalls for. Rows are cut where they get long.
    `operands` are contents of arguments by their names. Raises RatchetError `no-simulation` where the run has no end
    that is known.
    """
    return timeline_with_parts(dump, chip, steps_shown, deadline_seconds, operands)[0]


def timeline_with_parts(
    dump: ModuleDump, chip: Chip, steps_shown: int, deadline_seconds: float, operands: Mapping[str, Values] | None
) -> tuple[Timeline, tuple[CycleBreakdown, ...]]:
    """Likewise, and where all cycles of each core went, without source lines."""
    machine = machine_of(chip)
    tables = Tables(dump.module, operands or dump.arguments)
    deadline = time.monotonic() + deadline_seconds
    plain = run_cores(dump, machine, tables, deadline)
    last = max(plain, key=lambda core: core.cycles)
    if last.reason:
        raise RatchetError("no-simulation", f"the run has no timeline, because its end is not known: {last.reason}")
    window = _window(plain[0], steps_shown)
    traces = tuple(SpanRecorder(core, window if core == 0 else None) for core in range(machine.cores))
    run_cores(dump, machine, tables, deadline, traces)
    flops = {op.schedule.name: op.mxu_flops // op.calls for op in last.ops}
    found = Timeline(
        chip=chip.name,
        clock_hz=machine.clock_hz,
        cycles=last.cycles,
        spans=tuple(_with_flops(span, flops) for trace in traces for span in trace.spans),
        window=traces[0].shown_cycles,
        left_out=tuple(sum((trace.left_out for trace in traces), Counter[str]()).items()),
    )
    return found, tuple(breakdown(core, machine, with_lines=False) for core in plain)


def _window(core: CoreRun, steps_shown: int) -> SpanWindow | None:
    """The middle of the op that takes longest."""
    if not core.ops or steps_shown < 1:
        return None
    op = max(core.ops, key=lambda op: op.cycles)
    if op.steps is None:
        middle, length = op.cycles // op.calls // 2, _SHOWN_WITHOUT_GRID
    else:
        steps = op.steps // op.calls
        length = min(steps_shown, steps)
        # Where the steps are few, one more before the middle than after it.
        middle = (steps - length) // 2 + max(0, op.schedule.pipeline_depth - 1)
    return SpanWindow(op=op.schedule.name, first=middle, last=middle + length)


def _with_flops(span: Span, flops: dict[str, int]) -> Span:
    return replace(span, flops=flops.get(span.name, 0)) if span.kind == "op" else span
