"""Planted candidates, and what the judge made of each: what the selftest finds out."""

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["accept", "reject", "inconclusive", "failed", "refused", "bug"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Where a candidate is refused: the stage and kind of a Failure.

    Stages beyond those of a Failure: `ratchet` (a known error ends the attempt), `verdict` (the
    kind is the outcome that was given instead of accept), `warning` (nothing is refused, but a
    warning begins with the kind: for false claims, which are never believed).
    """

    stage: str
    kind: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A candidate whose right verdict is known.

    `row` is its row of the list of ways in which benchmarks get fooled, `-` for one beside it.
    `expected` is empty for a good one; else the refusal that should catch it comes first, and
    others that may come before it follow.
    """

    name: str
    what: str
    row: str
    expected: tuple[Refusal, ...]
    contest: str = "plain"
    attempts: int = 1

    @property
    def is_good(self) -> bool:
        """Whether it has to be accepted."""
        return not self.expected

    @property
    def kind(self) -> str:
        """Its class: the guard that should catch it, or the contest in which it has to be accepted."""
        return str(self.expected[0]) if self.expected else f"accepted: {self.contest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one attempt came to. `bug`: the ratchet itself did not survive it. `refusal` is None where it passed."""

    outcome: Outcome
    refusal: Refusal | None
    message: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A planted candidate and its judgement, which took `seconds` of wall clock."""

    planted: Planted
    judgement: Judgement
    seconds: float

    @property
    def caught_by(self) -> Refusal | None:
        """The refusal that ended it, or the warning that was expected and given; None where it got through."""
        if self.judgement.refusal is not None:
            return self.judgement.refusal
        for refusal in self.planted.expected:
            if refusal.stage == "warning" and any(text.startswith(refusal.kind) for text in self.judgement.warnings):
                return refusal
        return None

    @property
    def is_right(self) -> bool:
        """Whether a good candidate was accepted, or a bad one caught by a guard that it may be caught by."""
        if self.planted.is_good:
            return self.judgement.outcome == "accept"
        return self.caught_by in self.planted.expected
