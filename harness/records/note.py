"""Later findings about recorded kernels, and rows of the table on one scale."""

from dataclasses import dataclass
from typing import Literal

from harness.records.evidence import Source
from harness.records.report import Row
from harness.records.verdict import Key

# The reason for a row without a time: its kernel was not timed under the scale's key.
NOT_YET = "not timed on this scale"
TakenBack = Literal["undone", "revoked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The time of a recorded kernel under another key (`timed`), or the outcome of checking a champion (`checked`).

    - `kernel_sha256`: the hash of the kernel.py that the note is about, which attempt `attempt` recorded.
    - `after`: the newest attempt when the note was taken. `when`: the UTC time.
    - `key_digest`: a hash of the timing key. `checks_digest`: a hash of the checks key; if it is empty, nothing was
      checked. `checks_passed` of `checks` checks passed.
    - `failure_kind`, `reason`: the reason why there is no time, or why a champion fails; otherwise both are empty.
    - The other figures are those of a Row, in the same units.
    """

    kind: Literal["timed", "checked"]
    attempt: int
    kernel_sha256: str
    after: int
    when: str
    key: Key
    key_digest: str
    checks_digest: str = ""
    checks: int = 0
    checks_passed: int = 0
    failure_kind: str = ""
    reason: str = ""
    score: float | None = None
    seconds: float | None = None
    util: float | None = None
    regime: str | None = None
    gap_fraction: float | None = None
    copies: int | None = None
    spills: int | None = None
    members: tuple[tuple[str, float | None], ...] = ()

    @property
    def passes(self) -> bool:
        """True if a champion was checked, nothing failed, and every check that ran passed."""
        is_whole = bool(self.checks_digest) and 0 < self.checks == self.checks_passed
        return self.kind == "checked" and is_whole and not self.failure_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The key under which every row of a table has its time; `key` is None if the record holds only its digest.

    `accepted` counts the accepted kernels, `timed` those among them that have a time under the key.
    """

    key_digest: str
    key: Key | None
    source: Source
    chip: str
    accepted: int
    timed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledRow:
    """One attempt on a scale: `row` has the times of the scale, `then` is the row as it was recorded.

    - Without a time on the scale, the figures of `row` that depend on a time are None, for the reason in `why_unknown`.
    - `time_ratio` of `row` compares with the champion at the time of the attempt. It is computed from times on the
      scale if both are known; otherwise it is the recorded ratio.
    - An attempt whose chip or source is not that of the scale keeps its own figures and key.
    - `taken_back`: set if a later undo or revoke took the title of an accepted attempt.
    """

    row: Row
    then: Row
    why_unknown: str = ""
    taken_back: TakenBack | None = None

    @property
    def is_accepted(self) -> bool:
        """True if the attempt became the champion and, as far as known here, its title was not taken back."""
        return self.row.is_title and self.row.is_on_branch is not False and self.taken_back is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedChampion:
    """The champion of the contest in `folder` (relative to the repository's top), checked.

    `floor_seconds` is the least time that the chip needs for the problem. `why_not` is the reason if there is no
    result; `is_due` is False if no result is expected, because there is no champion or no simulator.
    """

    folder: str
    is_due: bool = True
    title: str = ""
    chip: str = ""
    attempt: int | None = None
    note: Note | None = None
    floor_seconds: float | None = None
    timed: int = 0
    why_not: str = ""

    @property
    def passes(self) -> bool:
        """True if the champion was checked and nothing failed."""
        return self.note is not None and self.note.passes
