"""What the rules of the diagnosis look at: one run, with the few questions that several of them ask."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from harness.records import Evidence, Hint, PallasCall, Report, Row, Simulation, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the rules look at; `call` is the only Pallas call, None where there are none or several."""

    evidence: Evidence
    report: Report
    seconds: float
    call: PallasCall | None
    run: Simulation | None
    previous: tuple[Row, ...]

    @property
    def is_attention(self) -> bool:
        """True where the blocks of the first and second input are known to be those of queries and keys."""
        # The shapes are the candidate's: whatever is odd about them must not break the judge.
        regular = all(len(w.block_shape) == len(w.array.shape) >= 2 and min(w.block_shape) > 0 for w in self.inputs)
        return self.evidence.problem.operation == "attention" and len(self.inputs) >= 3 and regular

    @property
    def step_seconds(self) -> float | None:
        """The time of one grid step, or None where the call has no steps."""
        return self.seconds / self.call.steps if self.call and self.call.steps else None

    @property
    def inputs(self) -> tuple[Window, ...]:
        """The input windows of the call, in order."""
        return tuple(window for window in self.call.windows if window.role == "input") if self.call else ()

    def share(self, cycles: float) -> float:
        """`cycles` as a share of the simulated time; 0 where that is unknown."""
        return cycles / self.run.cycles if self.run and self.run.cycles else 0.0

    def slots(self, name: str) -> float:
        """The share of the issue slots of unit `name` that was used; 0 where unknown."""
        return next((unit.slot_fraction for unit in self.report.units if unit.name == name), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A hint with the share of the time (0 to 1) that following it could save, a rough upper bound for ranking."""

    saves: float
    hint: Hint


def times_read(window: Window) -> float | None:
    """How often the whole array of `window` is read: fetches over the blocks that it has; None if moved by hand."""
    if window.fetches is None:
        return None
    blocks = math.prod(
        math.ceil(size / block) for size, block in zip(window.array.shape, window.block_shape, strict=True) if block
    )
    return window.fetches / blocks


def fits(seen: Observed, rows: int, factor: int) -> bool:
    """True where every buffer with `rows` rows may grow `factor` times within the VMEM limit, an estimate.

    For attention the float32 tile of scores (query block x key/value block) counts too: the
    compiler keeps it in VMEM, though no window and no scratch shows it.
    """
    grown = grown_vmem(seen, lambda window: factor if rows in window.block_shape[-2:-1] else 1)
    if seen.call is not None:
        grown += sum(s.vmem_bytes * (factor - 1) for s in seen.call.scratch if rows in s.shape[-2:-1])
    if seen.is_attention:
        grown += 4 * factor * seen.inputs[0].block_shape[-2] * seen.inputs[1].block_shape[-2]
    return grown <= seen.report.vmem_limit_bytes


def grown_vmem(seen: Observed, factor: Callable[[Window], float]) -> float:
    """VMEM of the call if every window grew by its `factor`."""
    if seen.call is None:
        return math.inf
    return sum(window.vmem_bytes * factor(window) for window in seen.call.windows) + sum(
        scratch.vmem_bytes for scratch in seen.call.scratch
    )
