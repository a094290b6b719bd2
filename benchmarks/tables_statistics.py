"""The statistics of TABLES.md: the predictions of each problem's candidates, and the rank of the published one."""

import dataclasses
from itertools import groupby
from pathlib import Path
from typing import Any

from fidelity_rows import table
from fidelity_statistics import kind_of

PREDICTIONS = Path(__file__).parent / "data" / "tables_predictions.tsv"
_HEAD = (
    "# Simulated seconds of candidates, committed before the published times of their problems were read, but for rows",
    "# for fitting and those that fidelity_predictions.tsv had before. Never changed.",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """One candidate: its simulated seconds, or None with the reason; `waits_...` are shares of the time."""

    chip: str
    operation: str
    role: str
    row: str
    seconds: float | None
    waits_for_transfers: float
    waits_for_units: float
    config: str
    reason: str

    @property
    def is_published(self) -> bool:
        """True if a time is published for the row."""
        return self.role in ("published", "rival")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published time of a row, the spread of its samples as a fraction of it, and a short text of the problem."""

    seconds: float
    spread: float
    problem: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The candidates of one problem; the published one is the first."""

    rows: tuple[Predicted, ...]

    @property
    def is_rivalry(self) -> bool:
        """True if all candidates have published times."""
        return self.rows[0].role == "rival"

    @property
    def kind(self) -> str:
        """The kind of the problem's operation."""
        return kind_of(self.rows[0].operation)

    @property
    def chip(self) -> str:
        """The chip of the problem."""
        return self.rows[0].chip

    @property
    def pick(self) -> Predicted | None:
        """The fastest candidate; None if none has a time."""
        timed = [candidate for candidate in self.rows if candidate.seconds is not None]
        return min(timed, key=lambda candidate: candidate.seconds or 0.0, default=None)

    @property
    def gap(self) -> float | None:
        """The excess of the published configuration's time over the pick's, relative to it; None if it has no time."""
        return self.over_pick("published")

    def over_pick(self, role: str) -> float | None:
        """The relative excess of the time of the role's first candidate over the pick's; None if either is unknown."""
        seconds = next((candidate.seconds for candidate in self.rows if candidate.role == role), None)
        pick = self.pick
        return None if seconds is None or pick is None or pick.seconds is None else seconds / pick.seconds - 1

    @property
    def margin(self) -> float | None:
        """The relative excess of the time of the best other candidate over the published one's; negative if less."""
        mine = self.rows[0].seconds
        other = [candidate.seconds for candidate in self.rows[1:] if candidate.seconds is not None]
        return min(other) / mine - 1 if other and mine else None

    def loss(self, published: dict[str, Published]) -> float | None:
        """The relative excess of the pick's published time over the best one; None if a published time is not known."""
        times = [published[candidate.row].seconds for candidate in self.rows if candidate.row in published]
        pick = self.pick
        if (
            pick is None
            or pick.row not in published
            or any(o.row not in published for o in self.rows if o.is_published)
        ):
            return None
        return published[pick.row].seconds / min(times) - 1


def problems() -> list[Problem]:
    """The predictions, problem by problem."""
    groups = groupby(table(PREDICTIONS), key=lambda line: line["problem"])
    return [Problem(rows=tuple(_read(line) for line in lines)) for _, lines in groups]


def _read(line: dict[str, str]) -> Predicted:
    cells: dict[str, Any] = {name: text for name, text in line.items() if name != "problem"}
    for name in ("seconds", "waits_for_transfers", "waits_for_units"):
        cells[name] = float(line[name]) if line[name] else None
    return Predicted(**cells)


def write(groups: list[tuple[Predicted, ...] | list[Predicted]]) -> None:
    """Writes the predictions, numbered by problem."""
    names = [field.name for field in dataclasses.fields(Predicted)]
    lines = [*_HEAD, "\t".join(("problem", *names))]
    for number, group in enumerate(groups, 1):
        for candidate in group:
            values = (getattr(candidate, name) for name in names)
            cells = ("" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v) for v in values)
            lines.append("\t".join((str(number), *cells)))
    PREDICTIONS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def share(gaps: list[float], most: float) -> float:
    """The fraction of the values that are at most `most`."""
    return sum(gap <= most for gap in gaps) / len(gaps)
