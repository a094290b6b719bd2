"""The rows of a ledger as lines of a story, and how far the accepted attempts came on one scale."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Source
from harness.records.note import Note, ScaledRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """Consecutive checks of the champion's unchanged program: rebaselines, and notes of kind `checked`.

    `champion` is the attempt that holds the title, `before_seconds` the time that its record had before them;
    `changed` names what changed in the key between them.
    """

    rows: tuple[ScaledRow, ...]
    notes: tuple[Note, ...]
    changed: tuple[Literal["judge", "compiler", "machine"], ...]
    champion: int | None
    before_seconds: float | None

    @property
    def first(self) -> int:
        """The first attempt of them; of notes alone, the attempt that they came after."""
        return self.rows[0].row.number if self.rows else self.notes[0].after

    @property
    def last(self) -> int:
        """The last attempt of them, or the one that the last note came after."""
        return self.rows[-1].row.number if self.rows else self.notes[-1].after


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Consecutive attempts that were not accepted, with the checks of the champion between them.

    Stands for their lines where a table would be long; the first and the last of them are attempts.
    """

    lines: tuple[ScaledRow | Recheck, ...]

    @property
    def attempts(self) -> tuple[ScaledRow, ...]:
        """Those of its lines that are attempts."""
        return tuple(line for line in self.lines if isinstance(line, ScaledRow))

    @property
    def rechecks(self) -> tuple[Recheck, ...]:
        """Those of its lines that check the champion."""
        return tuple(line for line in self.lines if isinstance(line, Recheck))

    @property
    def rows(self) -> tuple[ScaledRow, ...]:
        """Every row of its lines, in their order."""
        parts = ((line,) if isinstance(line, ScaledRow) else line.rows for line in self.lines)
        return tuple(row for rows in parts for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The way from the first accepted kernel to the champion's on one scale.

    `attempts` counts neither rebaselines nor undos and revokes; `accepted` of them were accepted and still count,
    `revoked` were accepted and do not: they were undone or revoked, or are not on the branch. `first` is the oldest
    accepted attempt with a time on the scale, and `is_whole` is True if no accepted one came before it. `peak_share`
    is the champion's share of the matrix units' peak if it is bound by compute, of the HBM bandwidth if by memory; None
    where no record tells it.
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
        """The first one's time over the champion's, None where one of the two is unknown or they are the same."""
        if not self.first_seconds or not self.champion_seconds or self.first == self.champion:
            return None
        return self.first_seconds / self.champion_seconds
