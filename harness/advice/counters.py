"""The counters of three levels as rows: each with the count that is expected, and a remark on any other count."""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Literal, TypeAlias

from harness.advice.score_block import SCORE_BLOCK, score_block
from harness.hardware import chip
from harness.judge.verdict.roofline import finished_run
from harness.records import CounterLine, Evidence, UnitUse

Level: TypeAlias = Literal["hlo", "mosaic", "schedule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expected range of a count, and the remarks on a count above it (`more`) or below it (`fewer`)."""

    low: int
    high: int
    more: str
    fewer: str = ""

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"

    def remark(self, count: int) -> str:
        """The remark on `count` if it is not expected, else ""."""
        if count > self.high:
            return self.more
        return self.fewer if count < self.low else ""


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter: its count is a field of the record at its level, or a function of the evidence (None: not known).

    - `expected`: gives the expected range, which is the count of a kernel without waste.
    - `is_at_a_glance`: the short report always shows this counter. Any other counter is shown only if it has a remark.
    - `is_of_cycles`: a report that breaks down the cycles leaves out this counter, because the breakdown says more.
    """

    level: Level
    name: str
    count: str | Callable[[Evidence], int | None]
    _: KW_ONLY
    expected: Callable[[Evidence], Expectation | None] = lambda _: None
    is_at_a_glance: bool = False
    is_of_cycles: bool = False

    def lines(self, evidence: Evidence) -> Iterator[CounterLine]:
        """The counter's line in the report, if the count is known."""
        count, expected = self._count(evidence), self.expected(evidence)
        if count is not None:
            remark = expected.remark(count) if expected else ""
            words = str(expected or "")
            yield CounterLine(level=self.level, name=self.name, count=count, expected=words, remark=remark)

    def _count(self, evidence: Evidence) -> int | None:
        if not isinstance(self.count, str):
            return self.count(evidence)
        record = {"hlo": evidence.hlo, "mosaic": evidence.mosaic, "schedule": evidence.simulation}[self.level]
        return None if record is None else getattr(record, self.count)


def _none(more: str) -> Callable[[Evidence], Expectation]:
    return lambda _: Expectation(low=0, high=0, more=more)


def _run_field(field: str) -> Callable[[Evidence], int | None]:
    return lambda evidence: getattr(finished_run(evidence), field, None)


def _calls(evidence: Evidence) -> Expectation | None:
    calls = len(evidence.trace.pallas_calls) if evidence.trace else None
    return Expectation(low=calls, high=calls, more="more custom calls than Pallas calls") if calls else None


def _inside(name: str) -> Callable[[Evidence], Expectation | None]:
    """The problem's expectation for the counter `name`; records of older versions state none."""

    def expected(evidence: Evidence) -> Expectation | None:
        stated = next(
            (expectation for expectation in reversed(evidence.problem.expected) if expectation.counter == name), None
        )
        return Expectation(low=stated.low, high=stated.high, more=stated.more, fewer=stated.fewer) if stated else None

    return expected


_COPIED = "whole buffers copied in HBM: a layout change, or an output ref that is read before its last write"
_REARRANGED = "whole buffers rearranged in HBM: ask for the layout in the kernel's block specs instead"
# Without a finished run, the operations of the schedule are not known.
_IN_TEXT = "counted in the module's text, also inside fusions and on the SparseCore: `hlo` lists those that take time"
_BROUGHT = "operands brought into another memory, such as VMEM; no operation of the schedule copies within HBM"


def _copies(evidence: Evidence) -> Expectation:
    """The expectation of no copies; its remark depends on the memory that the copies go to.

    A copy within HBM is an operation of the schedule; a copy between memories is a transfer outside the operations.
    """
    names = _names_of_ops(evidence)
    is_brought = bool(names) and not any("copy" in name or "fusion" in name for name in names)
    more = _IN_TEXT if _is_unfinished(evidence) else _BROUGHT if is_brought else _COPIED
    return Expectation(low=0, high=0, more=more)


def _transposes(evidence: Evidence) -> Expectation:
    """The expectation of no transposes. For an unfinished run, the remark only states where transposes are counted."""
    return Expectation(low=0, high=0, more=_IN_TEXT if _is_unfinished(evidence) else _REARRANGED)


def _is_unfinished(evidence: Evidence) -> bool:
    """True if the program was simulated, but the run has no end: its operations are not known."""
    return evidence.simulation is not None and finished_run(evidence) is None


def _names_of_ops(evidence: Evidence) -> tuple[str, ...]:
    """The names of the operations of the finished run; () if none is known."""
    run = finished_run(evidence)
    return tuple(op.name for op in run.ops) if run else ()


_SPILL = _none("vector registers do not suffice: values go to VMEM and back")


def _spill_in_text(evidence: Evidence) -> Expectation | None:
    """The expectation of no spills in the text; None if the executed spills are known, because only these cost time."""
    return None if finished_run(evidence) else _SPILL(evidence)


def _steps_of_the_grid(evidence: Evidence) -> int:
    return sum(call.steps for call in evidence.trace.pallas_calls) if evidence.trace else 0


def _steps(evidence: Evidence) -> int | None:
    run = finished_run(evidence)
    return run.executed_steps if run and _steps_of_the_grid(evidence) else None


def _as_the_grid(evidence: Evidence) -> Expectation:
    steps, ran = _steps_of_the_grid(evidence), _steps(evidence) or 0
    # The compiler may peel one step of each core's loop.
    is_near = abs(ran - steps) <= chip(evidence.chip).cores
    more, fewer = ("", "") if is_near else ("more steps than the grid has", "fewer steps than the grid has")
    return Expectation(low=steps, high=steps, more=more, fewer=fewer)


# The functions below make the lines of rows that are not a single count.
def _score_block(evidence: Evidence) -> Iterator[CounterLine]:
    line = score_block(evidence) if evidence.mosaic else None
    yield from [line] if line else []


def _not_understood(evidence: Evidence) -> Iterator[CounterLine]:
    names = evidence.mosaic.not_understood if evidence.mosaic else ()
    if names:
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        yield CounterLine(level="mosaic", name="not understood", count=len(names), expected="0", remark=shown)


def _slots(evidence: Evidence) -> Iterator[CounterLine]:
    run = finished_run(evidence)
    for unit in run.units if run else ():
        name, count = f"{unit.name} slots executed", unit.executed_slots
        yield CounterLine(level="schedule", name=name, count=count, expected="", remark="")


_executed = partial(Counter, "schedule", is_at_a_glance=True, is_of_cycles=True)
# In the order of the report. Nothing around the kernel should be left to XLA: the protocol expects no copies, and the
# judge accepts no dot and no exponential outside the Pallas call.
COUNTERS: tuple[Counter | Callable[[Evidence], Iterator[CounterLine]], ...] = (
    Counter("hlo", "copy", "copy", is_at_a_glance=True, expected=_copies),
    Counter("hlo", "transpose", "transpose", expected=_transposes),
    Counter("hlo", "fusion", "fusion"),
    Counter("hlo", "dot", "dot", expected=_none("matmul work outside the kernel")),
    Counter("hlo", "exponential", "exponential", expected=_none("exponentials outside the kernel")),
    Counter("hlo", "reduce", "reduce", expected=_none("reductions outside the kernel, each one more pass over HBM")),
    Counter("hlo", "custom call", "custom_call", expected=_calls),
    Counter("hlo", "text lines", "text_lines"),
    Counter("mosaic", "matmul", "matmul", expected=_inside("matmul"), is_at_a_glance=True),
    Counter("mosaic", "exp", "exp", expected=_inside("exp"), is_at_a_glance=True),
    Counter("mosaic", "reduction", "reduction", expected=_inside("reduction"), is_at_a_glance=True),
    Counter("mosaic", "load", "load"),
    Counter("mosaic", "store", "store"),
    Counter("mosaic", "dma", "dma"),
    Counter("mosaic", "operations", "operations"),
    _score_block,
    _not_understood,
    Counter("schedule", "bundles", "static_bundles"),
    Counter("schedule", "empty bundles", "empty_bundles"),
    Counter("schedule", "spills", "static_spills", expected=_spill_in_text),
    Counter("schedule", "fills", "static_fills", expected=_spill_in_text),
    _executed("bundles executed", _run_field("bundle_cycles")),
    _executed("spills executed", _run_field("executed_spills"), expected=_SPILL),
    _executed("fills executed", _run_field("executed_fills"), expected=_SPILL),
    _slots,
    Counter("schedule", "DMA transfers", _run_field("dma_transfers")),
    Counter("schedule", "grid steps executed", _steps, expected=_as_the_grid),
)
_ROWS = tuple(row for row in COUNTERS if isinstance(row, Counter))
AT_A_GLANCE = frozenset((row.level, row.name) for row in _ROWS if row.is_at_a_glance)
OF_CYCLES = frozenset((SCORE_BLOCK, *(row.name for row in _ROWS if row.is_of_cycles)))


def counter_lines(evidence: Evidence) -> tuple[CounterLine, ...]:
    """The lines of all counters, HLO first, then Mosaic, then the schedule; an unknown count has no line."""
    lines_of_rows = (row.lines(evidence) if isinstance(row, Counter) else row(evidence) for row in COUNTERS)
    return tuple(line for lines in lines_of_rows for line in lines)


def unit_uses(evidence: Evidence) -> tuple[UnitUse, ...]:
    """Each functional unit with the share of its issue slots that was used and, if known, of the cycles it was busy.

    Empty without a finished run.
    """
    simulation = finished_run(evidence)
    if simulation is None:
        return ()
    cycles = simulation.cycles
    return tuple(
        UnitUse(
            name=unit.name,
            slot_fraction=unit.executed_slots / unit.offered_slots,
            busy_fraction=unit.busy_cycles / cycles if unit.busy_cycles is not None and cycles else None,
        )
        for unit in simulation.units
        if unit.offered_slots > 0
    )
