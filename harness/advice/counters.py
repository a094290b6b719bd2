"""The counters at three levels, each beside what an honest kernel shows and a word on what more means."""

from dataclasses import dataclass
from typing import Literal

from harness.advice.score_block import score_block
from harness.hardware import chip
from harness.judge.verdict.roofline import finished_run
from harness.records import CounterLine, Evidence, UnitUse

Level = Literal["hlo", "mosaic", "schedule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The counts `low` to `high` that are expected, and what a count above or below them means."""

    low: int
    high: int
    more: str
    fewer: str = ""

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"

    def remark(self, count: int) -> str:
        """A word on `count` if it is not the expected one, else nothing."""
        if count > self.high:
            return self.more
        return self.fewer if count < self.low else ""


def _none(more: str) -> Expectation:
    return Expectation(low=0, high=0, more=more)


# Around the kernel nothing should be left to XLA: the protocol expects no copies, and the judge
# lets no dot and no exponential stand outside the Pallas call.
_AROUND = {
    "copy": _none("whole buffers copied in HBM: a layout change, or an output ref that is read before its last write"),
    "transpose": _none("whole buffers rearranged in HBM: ask for the layout in the kernel's block specs instead"),
    "dot": _none("matmul work outside the kernel"),
    "exponential": _none("exponentials outside the kernel"),
    "reduce": _none("reductions outside the kernel, each one more pass over HBM"),
}

_SPILL = _none("vector registers do not suffice: values go to VMEM and back in every step")


def counter_lines(evidence: Evidence) -> tuple[CounterLine, ...]:
    """One line per counter, HLO first, then Mosaic, then the schedule; levels that are not known have no lines."""
    return (*_hlo(evidence), *_mosaic(evidence), *_schedule(evidence))


def unit_uses(evidence: Evidence) -> tuple[UnitUse, ...]:
    """Every functional unit with the share of its issue slots and of its time that the simulated run used."""
    simulation = finished_run(evidence)
    if simulation is None:
        return ()
    uses = []
    for unit in simulation.units:
        if unit.offered_slots <= 0:
            continue
        busy = None
        if unit.busy_cycles is not None and simulation.cycles:
            busy = unit.busy_cycles / simulation.cycles
        uses.append(UnitUse(name=unit.name, slot_fraction=unit.executed_slots / unit.offered_slots, busy_fraction=busy))
    return tuple(uses)


def _line(level: Level, name: str, count: int, expectation: Expectation | None = None) -> CounterLine:
    expected, remark = (str(expectation), expectation.remark(count)) if expectation else ("", "")
    return CounterLine(level=level, name=name, count=count, expected=expected, remark=remark)


def _hlo(evidence: Evidence) -> list[CounterLine]:
    hlo = evidence.hlo
    if hlo is None:
        return []
    calls = len(evidence.trace.pallas_calls) if evidence.trace else None
    kernels = Expectation(low=calls, high=calls, more="more custom calls than Pallas calls") if calls else None
    return [
        _line("hlo", "copy", hlo.copy, _AROUND["copy"]),
        _line("hlo", "transpose", hlo.transpose, _AROUND["transpose"]),
        _line("hlo", "fusion", hlo.fusion),
        _line("hlo", "dot", hlo.dot, _AROUND["dot"]),
        _line("hlo", "exponential", hlo.exponential, _AROUND["exponential"]),
        _line("hlo", "reduce", hlo.reduce, _AROUND["reduce"]),
        _line("hlo", "custom call", hlo.custom_call, kernels),
        _line("hlo", "text lines", hlo.text_lines),
    ]


def _mosaic(evidence: Evidence) -> list[CounterLine]:
    mosaic = evidence.mosaic
    if mosaic is None:
        return []
    # What an honest body of this problem shows is the problem's to say; records from before it did say nothing.
    inside = {
        said.counter: Expectation(low=said.low, high=said.high, more=said.more, fewer=said.fewer)
        for said in evidence.problem.expected
    }
    return [
        _line("mosaic", "matmul", mosaic.matmul, inside.get("matmul")),
        _line("mosaic", "exp", mosaic.exp, inside.get("exp")),
        _line("mosaic", "reduction", mosaic.reduction, inside.get("reduction")),
        _line("mosaic", "load", mosaic.load),
        _line("mosaic", "store", mosaic.store),
        _line("mosaic", "dma", mosaic.dma),
        _line("mosaic", "operations", mosaic.operations),
        *([scores] if (scores := score_block(evidence)) else []),
        *_not_understood(mosaic.not_understood),
    ]


def _not_understood(names: tuple[str, ...]) -> list[CounterLine]:
    if not names:
        return []
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return [CounterLine(level="mosaic", name="not understood", count=len(names), expected="0", remark=shown)]


def _schedule(evidence: Evidence) -> list[CounterLine]:
    run = evidence.simulation
    if run is None:
        return []
    # Where the executed counts are known, what stands in the text is no concern by itself.
    in_text = None if finished_run(evidence) else _SPILL
    lines = [
        _line("schedule", "bundles", run.static_bundles),
        _line("schedule", "empty bundles", run.empty_bundles),
        _line("schedule", "spills", run.static_spills, in_text),
        _line("schedule", "fills", run.static_fills, in_text),
    ]
    if finished_run(evidence) is None:
        return lines
    lines += [
        _line("schedule", "bundles executed", run.bundle_cycles),
        _line("schedule", "spills executed", run.executed_spills, _SPILL),
        _line("schedule", "fills executed", run.executed_fills, _SPILL),
        *(_line("schedule", f"{unit.name} slots executed", unit.executed_slots) for unit in run.units),
        _line("schedule", "DMA transfers", run.dma_transfers),
    ]
    steps = sum(call.steps for call in evidence.trace.pallas_calls) if evidence.trace else 0
    if run.executed_steps is not None and steps:
        # The compiler may peel one step of each core's loop.
        is_near = abs(run.executed_steps - steps) <= chip(evidence.chip).cores
        more, fewer = ("", "") if is_near else ("more steps than the grid has", "fewer steps than the grid has")
        grid = Expectation(low=steps, high=steps, more=more, fewer=fewer)
        lines.append(_line("schedule", "grid steps executed", run.executed_steps, grid))
    return lines
