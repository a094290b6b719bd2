"""Edits of a constant that give a block the size that the diagnosis advises, and the simulated time after each."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.advice.operands import with_callers_names
from harness.records import Edit, Evidence
from harness.units import change, quantity

# A change that saves a smaller share of the time is not worth an experiment.
NOTABLE_GAIN = 0.005


def is_made_by(edit: Edit, evidence: Evidence) -> bool:
    """True if an input block in the program of `evidence` has the size that `edit` advises."""
    trace = with_callers_names(evidence).trace
    calls = trace.pallas_calls if trace else ()
    return any(
        window.name == edit.window
        and len(window.block_shape) >= -edit.axis
        and window.block_shape[edit.axis] == edit.new
        for call in calls
        for window in call.windows
        if window.role == "input"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEdits:
    """One constant of kernel.py set to another value, with the simulated time; the kernel's results are not checked.

    `edits` are the advised block sizes that result from this change. `time_ratio` is new/old. If it is None, `why` is
    the reason why there is no time.
    """

    constant: str
    old: str
    new: str
    edits: tuple[Edit, ...]
    time_ratio: float | None
    why: str = ""

    @property
    def words(self) -> str:
        """The edit in words, such as `BKV 256 -> 1024`."""
        return f"{self.constant} {self.old} -> {self.new}"

    @property
    def saves(self) -> bool:
        """True if the simulated edit saves a notable share of the time; False if it has no time."""
        return self.time_ratio is not None and 1 - self.time_ratio >= NOTABLE_GAIN


def saving_nothing(simulated: Sequence[SimulatedEdits]) -> str:
    """A sentence that counts and names the edits whose simulated times save next to nothing; "" if there are none."""
    useless = [
        f"{edit.words} ({change(edit.time_ratio)})"
        for edit in simulated
        if edit.time_ratio is not None and not edit.saves
    ]
    if not useless:
        return ""
    verb = "was simulated and saves" if len(useless) == 1 else "were simulated and save"
    return f"{quantity(len(useless), 'suggested edit')} {verb} nothing worth an attempt: {', '.join(useless)}"
