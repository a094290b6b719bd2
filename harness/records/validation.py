"""Results of the steps that need a device, on one machine: the record of `validate`."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Source

# held: the step gave the expected result. not held: it gave another result, which `found` states. timed out: the step
# was ended at its limit. not run: no time was left.
StepOutcome = Literal["held", "not held", "timed out", "not run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationStep:
    """One step that needs a device: its purpose, its command, its outcome and its seconds."""

    name: str
    shows: str
    command: str
    outcome: StepOutcome
    seconds: float
    limit_seconds: float
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """A kernel's measured and simulated latency in seconds; None: not known."""

    name: str
    problem: str
    measured_seconds: float | None
    plus_minus_seconds: float | None
    simulated_seconds: float | None

    @property
    def simulators_error(self) -> float | None:
        """Relative error of the simulated time, positive if it is too long; None if either time is unknown."""
        if not self.measured_seconds or self.simulated_seconds is None:
            return None
        return self.simulated_seconds / self.measured_seconds - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All steps on one machine; `source` is the source of the latencies: the chip, or a CPU in place of the chip."""

    chip: str
    source: Source
    device: str
    versions: str
    started: str
    seconds: float
    minutes: float
    steps: tuple[ValidationStep, ...]
    kernels: tuple[MeasuredKernel, ...]
    archive: str
