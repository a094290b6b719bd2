"""The timeline of a simulated run: all grid steps, of which some are shown bundle by bundle."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.dumps.llo import ModuleDump
from harness.errors import RatchetError
from harness.hardware import Chip
from harness.hlo.evaluation import Values
from harness.hlo.tables import Tables
from harness.judge.simulate.core import run_cores
from harness.judge.simulate.cycle_breakdown import breakdown
from harness.judge.simulate.machine import Machine, machine_of
from harness.judge.simulate.runs import CoreRun
from harness.judge.simulate.timeline_spans import MOST_SPANS, SpanRecorder, SpanWindow
from harness.records import Timeline, TransferCycles

# An op without a grid has no steps to show. Instead, this many cycles are shown, beginning in the middle of its run.
_SHOWN_WITHOUT_GRID = 2_000
# The limits of the timeline that every attempt saves: shown cycles of each op, and spans in each row. With these
# limits, a file takes 100 to 250 KB.
_SMALL_CYCLES, _SMALL_SPANS = 1_000, 1_000
_NO_END = 1 << 62


def timeline(
    dump: ModuleDump,
    chip: Chip,
    *,
    steps_shown: int = 2,
    deadline_seconds: float = 60.0,
    operands: Mapping[str, Values] | None = None,
) -> Timeline:
    """The timeline of the module on `chip`: HLO ops, grid steps, transfers and waits of every core.

    - `steps_shown`: the number of steps that are shown bundle by bundle, with the operations that each unit issues and
      the causes of stalls. These steps are in the middle of the longest op's grid, on core or chip 0.
    - `operands`: contents of arguments by their names.

    For a program on several chips, the timeline has every chip, and the transfers over each link. Long rows are cut.
    Raises RatchetError `no-simulation` if the run has no known end.
    """
    machine = machine_of(chip)
    tables = Tables(dump.module, operands or dump.arguments)
    deadline = time.monotonic() + deadline_seconds
    plain = run_cores(dump, machine, tables, deadline)
    last = max(plain, key=lambda core: core.cycles)
    if last.reason:
        raise RatchetError("no-simulation", f"the run has no timeline, because its end is not known: {last.reason}")
    traces = _recorders(dump, machine, _window(plain[0], steps_shown), MOST_SPANS)
    run_cores(dump, machine, tables, deadline, traces)
    return _recorded(dump, machine, plain, traces)


@dataclass(slots=True)
class Recording:
    """The recorder of a small timeline, which shows some cycles of each op's first steps bundle by bundle.

    `cores` is empty until the run has ended; then it is the outcome of the run.
    """

    dump: ModuleDump
    machine: Machine
    traces: tuple[SpanRecorder, ...] = ()
    cores: tuple[CoreRun, ...] = ()

    def __post_init__(self) -> None:
        windows = []
        for schedule in self.dump.schedules:
            first = 0 if schedule.grid_exit is None else max(0, schedule.pipeline_depth - 1)
            windows.append(SpanWindow(op=schedule.name, first=first, last=_NO_END, cycles=_SMALL_CYCLES))
        self.traces = _recorders(self.dump, self.machine, windows, _SMALL_SPANS)

    @property
    def timeline(self) -> Timeline:
        """The timeline of the run that has ended."""
        return _recorded(self.dump, self.machine, self.cores, self.traces)


def _recorders(
    dump: ModuleDump, machine: Machine, windows: Sequence[SpanWindow], most: int
) -> tuple[SpanRecorder, ...]:
    """One recorder for each core. Only the first recorder has windows. All chips share the `most` spans of a row."""
    chips = dump.module.devices
    places = [f"core {core}" for core in range(machine.cores)]
    if chips > 1:
        places = [f"chip {chip} {core}" for chip in range(chips) for core in ("", *places[1:])]
        places = [place.strip() for place in places]
    return tuple(SpanRecorder(place, windows if place == places[0] else (), most=most // chips) for place in places)


def _recorded(dump: ModuleDump, machine: Machine, cores: Sequence[CoreRun], traces: Sequence[SpanRecorder]) -> Timeline:
    """The timeline of the run with the outcome `cores`, from the recorders `traces` of that run."""
    last = max(cores, key=lambda core: core.cycles)
    # For each of several chips, only the core that ends last is drawn.
    several = dump.module.devices > 1
    each = machine.cores if several else 1
    drawn = [max(cores[at : at + each], key=lambda core: core.cycles) for at in range(0, len(cores), each)]
    flops = {op.schedule.name: op.mxu_flops // op.calls for op in last.ops}
    spans = tuple(
        replace(span, flops=flops.get(span.name, 0)) if span.kind == "op" else span
        for trace in traces
        for span in trace.spans
    )
    ops = dict.fromkeys(span.name for span in spans if span.kind == "op")
    return Timeline(
        chip=machine.chip,
        clock_hz=machine.clock_hz,
        cycles=last.cycles,
        spans=spans,
        window=traces[0].shown_cycles,
        left_out=tuple(sum((trace.left_out for trace in traces), Counter[str]()).items()),
        instructions={name: str(dump.module.instructions[name]) for name in ops if name in dump.module.instructions},
        parts=tuple(breakdown(core, machine, with_lines=False) for core in drawn),
        transfers=tuple(
            TransferCycles(in_flight=trace.flight_cycles, waited=trace.waited_cycles) for trace in traces[::each]
        ),
    )


def _window(core: CoreRun, steps_shown: int) -> tuple[SpanWindow, ...]:
    """A window in the middle of the longest op; empty if there is no op, or if `steps_shown` is less than 1."""
    if not core.ops or steps_shown < 1:
        return ()
    op = max(core.ops, key=lambda op: op.cycles)
    if op.steps is None:
        middle, length = op.cycles // op.calls // 2, _SHOWN_WITHOUT_GRID
    else:
        steps = op.steps // op.calls
        length = min(steps_shown, steps)
        # `middle` counts turns of the loop: step 0 runs in turn `pipeline_depth` - 1.
        middle = (steps - length) // 2 + max(0, op.schedule.pipeline_depth - 1)
    return (SpanWindow(op=op.schedule.name, first=middle, last=middle + length),)
