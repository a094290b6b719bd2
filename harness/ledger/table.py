"""The table of a ledger: its rows on the champion's scale, its lines, and selections of lines."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Literal

from harness.ledger import history
from harness.ledger import notes as note_files
from harness.ledger.ledger import Ledger
from harness.ledger.scale import on_scale, scale_of
from harness.records import Attempt, Key, Losses, Note, Recheck, Row, Scale, ScaledRow
from harness.records.titles import Title, is_check, taken_back, titles

Line = ScaledRow | Recheck | Losses | Note
Changed = Literal["judge", "compiler", "machine"]
# The cause of checking a champion again, by the field of the key that changed. Source and chip are missing here,
# because a change of either of them ends a run of checks.
_PARTS: dict[str, Changed] = {
    "judge": "judge",
    "timing": "judge",
    "checks": "judge",
    "problem": "judge",
    "jax": "compiler",
    "jaxlib": "compiler",
    "libtpu": "compiler",
    "machine": "machine",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledTable:
    """Every attempt of a ledger on the champion's scale, oldest first, with the notes about their kernels.

    Without an accepted attempt there is no scale, and every row is as it was recorded. `skipped` are sentences on lines
    that could not be read.
    """

    rows: tuple[ScaledRow, ...]
    notes: tuple[Note, ...]
    scale: Scale | None
    champion: Attempt | None
    skipped: tuple[str, ...]

    @property
    def number(self) -> int | None:
        """The champion's number."""
        return self.champion.number if self.champion else None

    @property
    def champion_row(self) -> ScaledRow | None:
        """The champion's row, or None if there is no champion."""
        return next((row for row in self.rows if row.row.number == self.number), None)

    @property
    def drawn(self) -> tuple[ScaledRow, ...]:
        """The rows for charts: on the scale, or as recorded if at most one of several accepts has a time on it."""
        if self.scale is None or self.scale.timed > 1 or self.scale.accepted == 1:
            return self.rows
        return self.recorded

    @property
    def recorded(self) -> tuple[ScaledRow, ...]:
        """All rows with their recorded times instead of the times on the scale."""
        return tuple(replace(row, row=row.then, why_unknown="") for row in self.rows)

    def is_on_scale(self, scaled_row: ScaledRow) -> bool:
        """True if the row has the scale's source and chip."""
        return self.scale is not None and (scaled_row.row.source, scaled_row.row.chip) == (
            self.scale.source,
            self.scale.chip,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A selection of a table's lines: all lines that no field excludes."""

    is_accepted: bool = False
    is_best: bool = False
    since: int | None = None
    text: str = ""

    @property
    def is_narrow(self) -> bool:
        """True if some field may exclude a line."""
        return self != Filter()


def scaled(ledger: Ledger) -> ScaledTable:
    """The table of a ledger, from which every reader takes the times, so that all are on one scale."""
    rows, skipped = history.rows(ledger.place)
    notes, unread = note_files.read(ledger.place)
    return table_of(rows, notes, ledger.champion(), (*skipped, *unread))


def table_of(
    rows: Sequence[Row], notes: Sequence[Note], champion: Attempt | None, skipped: tuple[str, ...] = ()
) -> ScaledTable:
    """The table of these rows and notes."""
    scale = scale_of(rows, notes, champion.number if champion else None)
    scaled_rows = on_scale(rows, notes, scale) if scale else tuple(ScaledRow(row=row, then=row) for row in rows)
    marked = tuple(replace(row, taken_back=how) for row, how in zip(scaled_rows, taken_back(rows), strict=True))
    return ScaledTable(rows=marked, notes=tuple(notes), scale=scale, champion=champion, skipped=skipped)


def lines(table: ScaledTable, *, unfolded: bool = False) -> tuple[Line, ...]:
    """The lines of a table: one for each attempt, and one for each run of checks of the champion's unchanged program.

    With `unfolded`, each of these checks has its own line, whether it is an attempt or a note of kind `checked`.
    """
    folded: list[Line] = []
    run: list[ScaledRow | Note] = []
    before: Row | None = None
    holder: Title | None = None
    for entry, is_checked, title in _in_order(table):
        if is_checked and not unfolded:
            holder = holder if run else title
            run.append(entry)
            continue
        if run:
            folded.append(_recheck(run, before, holder))
            before = next((row.then for row in reversed(run) if isinstance(row, ScaledRow)), before)
            run = []
        folded.append(entry)
        before = entry.then if isinstance(entry, ScaledRow) else before
    return (*folded, _recheck(run, before, holder)) if run else tuple(folded)


def chosen(table: ScaledTable, among: Sequence[Line], wanted: Filter) -> tuple[Line, ...]:
    """The lines that `wanted` selects; a folded line is selected if one of its attempts is."""
    best = bests(table) if wanted.is_best else ()
    return tuple(line for line in among if _is_wanted(line, wanted, best))


def newest(among: Sequence[Line], limit: int | None) -> tuple[Line, ...]:
    """The last `limit` lines of attempts (None: all), and the notes between them, which are not counted."""
    attempts = [place for place, line in enumerate(among) if not isinstance(line, Note)]
    first = attempts[-limit] if limit is not None and limit < len(attempts) else 0
    return tuple(among[first:])


def shortened(among: Sequence[Line], most: int) -> tuple[Line, ...]:
    """The same lines, with runs of attempts that were not accepted folded into one line each, until `most` are left.

    The oldest runs are folded first. More lines are left if there is nothing more to fold.
    """
    kept: list[Line] = []
    surplus = len(among) - most
    for run in _runs(among):
        if surplus > 0 and isinstance(run, Losses):
            surplus -= len(run.lines) - 1
            kept.append(run)
        else:
            kept += run.lines if isinstance(run, Losses) else (run,)
    return tuple(kept)


def _runs(among: Sequence[Line]) -> Iterator[Line]:
    """The lines, with consecutive attempts that were not accepted and the checks between them joined."""
    run: list[ScaledRow | Recheck] = []
    for line in among:
        is_lost = isinstance(line, ScaledRow) and line.row.outcome != "accept"
        if is_lost or (run and isinstance(line, Recheck) and line.rows):
            assert isinstance(line, ScaledRow | Recheck)
            run.append(line)
            continue
        yield from _joined(run)
        run = []
        yield line
    yield from _joined(run)


def _joined(run: Sequence[ScaledRow | Recheck]) -> Iterator[Line]:
    last = max((place for place, line in enumerate(run) if isinstance(line, ScaledRow)), default=-1)
    yield from (Losses(lines=tuple(run[: last + 1])),) if last > 0 else run[: last + 1]
    yield from run[last + 1 :]


def bests(table: ScaledTable) -> tuple[int, ...]:
    """The accepted attempts, by number, that set a new best time on the scale."""
    least: float | None = None
    numbers = []
    for scaled_row in table.rows:
        seconds = scaled_row.row.seconds
        if (
            scaled_row.is_accepted
            and table.is_on_scale(scaled_row)
            and seconds is not None
            and (least is None or seconds < least)
        ):
            least = seconds
            numbers.append(scaled_row.row.number)
    return tuple(numbers)


def _is_wanted(line: Line, wanted: Filter, best: Container[int]) -> bool:
    if isinstance(line, Recheck):
        # None of the attempts in the line brought a change that could be accepted.
        parts: tuple[Line, ...] = (*line.rows, *line.notes)
        return not wanted.is_accepted and any(_is_wanted(part, wanted, best) for part in parts)
    if isinstance(line, Losses):
        return any(_is_wanted(part, wanted, best) for part in line.lines)
    if isinstance(line, Note):
        return not (wanted.is_accepted or wanted.is_best or wanted.text) and line.after >= (wanted.since or 0)
    row = line.row
    return (
        (not wanted.is_accepted or line.is_accepted)
        and (not wanted.is_best or row.number in best)
        and row.number >= (wanted.since or 0)
        and wanted.text.casefold() in row.hypothesis.casefold()
    )


def _in_order(table: ScaledTable) -> Iterator[tuple[ScaledRow | Note, bool, Title | None]]:
    """Attempts and checks in order, each with True if it checks an unchanged champion, and with that champion."""
    checked = [note for note in table.notes if note.kind == "checked"]
    rows = [row.then for row in table.rows]
    last = {row.number: place for place, row in enumerate(rows)}
    title, *after = titles(rows)
    for place, (scaled_row, row) in enumerate(zip(table.rows, rows, strict=True)):
        yield scaled_row, is_check(row, title), title
        title = after[place]
        if last[row.number] == place:
            yield from ((note, True, title) for note in checked if note.after == row.number)
    yield from ((note, True, title) for note in checked if note.after not in last)


def _recheck(run: Sequence[ScaledRow | Note], before: Row | None, title: Title | None) -> Recheck:
    rows = tuple(row for row in run if isinstance(row, ScaledRow))
    notes = tuple(note for note in run if isinstance(note, Note))
    keys = [(row.key_digest, row.key) for row in ((before,) if before else ())]
    keys += [(row.then.key_digest, row.then.key) for row in rows]
    pairs = [(old, new) for (was, old), (now, new) in pairwise(keys) if was != now]
    changed = dict.fromkeys(part for old, new in pairs for part in _changed(old, new))
    if notes:
        changed["judge"] = None
    return Recheck(
        rows=rows,
        notes=notes,
        changed=tuple(changed),
        champion=title.holder if title else notes[0].attempt if notes else None,
        before_seconds=title.row.seconds if title else None,
    )


def _changed(before: Key | None, after: Key | None) -> Iterator[Changed]:
    if before is None or after is None:
        yield "judge"
        return
    for field in fields(Key):
        if getattr(before, field.name) != getattr(after, field.name) and field.name in _PARTS:
            yield _PARTS[field.name]
