"""What a machine with a device showed of everything that needs one: the record of `validate`."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Source

# held: what the step shows was there. not held: it was not, and `found` says what was instead. timed out: it was ended
# at its limit. not run: the time that was given was over.
StepOutcome = Literal["held", "not held", "timed out", "not run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationStep:
    """One thing that a device is needed for: what it shows, the command, how it ended after how many seconds."""

    name: str
    shows: str
    command: str
    outcome: StepOutcome
    seconds: float
    limit_seconds: float
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """A kernel's latency on the device beside its simulated one, in seconds; None is what is not known."""

    name: str
    problem: str
    measured_seconds: float | None
    plus_minus_seconds: float | None
    simulated_seconds: float | None

    @property
    def simulators_error(self) -> float | None:
        """By what share of the measured time the simulated one is more (positive) or less; None without both."""
        if not self.measured_seconds or self.simulated_seconds is None:
            return None
        return self.simulated_seconds / self.measured_seconds - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """All steps on one machine; `source` is what its latencies are: of the chip, or of a CPU in its place."""

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
