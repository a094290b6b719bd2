"""The rows of a ledger grouped for display, and the gain of the accepted attempts on one scale."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Source
from harness.records.note import Note, ScaledRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Consecutive checks of the champion's unchanged program: rebaselines, and notes of kind `checked`.

    `champion` is the attempt that holds the title, `before_seconds` its recorded time before these checks; `changed`
    names the parts of the key that changed between the checks.
    """

    rows: tuple[ScaledRow, ...]
    notes: tuple[Note, ...]
    changed: tuple[Literal["judge", "compiler", "machine"], ...]
    champion: int | None
    before_seconds: float | None

    @property
    def first(self) -> int:
        """The first attempt among the checks; if all are notes, the attempt after which the first note came."""
        return self.rows[0].row.number if self.rows else self.notes[0].after

    @property
    def last(self) -> int:
        """The last attempt among the checks; if all are notes, the attempt after which the last note came."""
        return self.rows[-1].row.number if self.rows else self.notes[-1].after


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Consecutive attempts that were not accepted, with the checks of the champion between them.

    A long table replaces these lines with a single line. The first and the last of these lines are attempts.
    """

    lines: tuple[ScaledRow | Recheck, ...]

    @property
    def attempts(self) -> tuple[ScaledRow, ...]:
        """The lines that are attempts."""
        return tuple(line for line in self.lines if isinstance(line, ScaledRow))

    @property
    def rechecks(self) -> tuple[Recheck, ...]:
        """The lines that check the champion."""
        return tuple(line for line in self.lines if isinstance(line, Recheck))

    @property
    def rows(self) -> tuple[ScaledRow, ...]:
        """The rows of all lines, in order."""
        parts = ((line,) if isinstance(line, ScaledRow) else line.rows for line in self.lines)
        return tuple(row for rows in parts for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gain from the first accepted kernel to the champion on one scale.

    Rebaselines, undos and revokes are not in `attempts`. `accepted` counts attempts that were accepted and still count.
    `revoked` counts attempts that were accepted but were undone or revoked, or are not on the branch. `first` is the
    oldest accepted attempt with a time on the scale, and `is_whole` is True if no earlier attempt was accepted.
    `peak_share` is the fraction that the champion reaches of the matrix units' peak if it is compute-bound, or of the
    HBM bandwidth if it is memory-bound; None if no record has it.
    """

    source: Source
    chip: str
    attempts: int
    accepted: int
    revoked: int = 0
    champion: int | None = None
    champion_seconds: float | None = None
    first: int | None = None
    first_seconds: float | None = None
    is_whole: bool = False
    bound_by: Literal["compute", "memory"] | None = None
    peak_share: float | None = None

    @property
    def factor(self) -> float | None:
        """First time / champion's time; None if one is unknown, or the champion is the first."""
        if not self.first_seconds or not self.champion_seconds or self.first == self.champion:
            return None
        return self.first_seconds / self.champion_seconds
