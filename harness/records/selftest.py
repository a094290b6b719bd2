"""Planted candidates and the judge's verdict on each: the record of `selftest`."""

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["accept", "reject", "inconclusive", "failed", "refused", "bug"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The stage and kind of the Failure with which a candidate is refused.

    Stages in addition to those of a Failure:
    - `ratchet`: a RatchetError of this `kind` ends the attempt.
    - `verdict`: no check fails, but the outcome is `kind` and not accept.
    - `warning`: the candidate is not refused, but a warning begins with `kind`. This is used for false claims, on which
      the judge does not rely.
    """

    stage: str
    kind: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A candidate whose right verdict is known.

    `row` is its row in the list of ways in which benchmarks get fooled, `-` if it is not in the list. `expected` is
    empty for a good candidate. For a bad candidate it begins with the refusal that should catch it, followed by
    refusals that may come earlier.
    """

    name: str
    what: str
    row: str
    expected: tuple[Refusal, ...]
    contest: str = "plain"
    attempts: int = 1

    @property
    def is_good(self) -> bool:
        """True if the candidate has to be accepted."""
        return not self.expected

    @property
    def kind(self) -> str:
        """The candidate's class: the guard that should catch it, or the contest in which it has to be accepted."""
        return str(self.expected[0]) if self.expected else f"accepted: {self.contest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedVerdict:
    """The result of one attempt. `bug`: the ratchet itself crashed. `refusal` is None if the candidate passed."""

    outcome: Outcome
    refusal: Refusal | None
    message: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedResult:
    """A planted candidate and its judgement, which took `seconds` of wall clock."""

    planted: Planted
    judgement: PlantedVerdict
    seconds: float

    @property
    def caught_by(self) -> Refusal | None:
        """The candidate's refusal, or the expected warning that it got; None if it passed."""
        if self.judgement.refusal is not None:
            return self.judgement.refusal
        for refusal in self.planted.expected:
            if refusal.stage == "warning" and any(text.startswith(refusal.kind) for text in self.judgement.warnings):
                return refusal
        return None

    @property
    def is_right(self) -> bool:
        """True if a good candidate was accepted, or a bad one caught by a guard that may catch it."""
        if self.planted.is_good:
            return self.judgement.outcome == "accept"
        return self.caught_by in self.planted.expected
