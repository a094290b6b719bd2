"""The ruling on two times: one of three outcomes, the reason for it, and the ratio with its interval."""

from dataclasses import dataclass

from harness.records import Outcome

# A gain of exactly the minimum effect counts, although 1 - 0.01 and 0.99 * t / t differ in the last bits of a double.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The state of a comparison. `is_final`: more samples would not change the outcome, or would not be reliable."""

    outcome: Outcome
    reason: str
    is_final: bool
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
