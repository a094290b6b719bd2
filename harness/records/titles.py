"""The champion before and after each attempt, the undos and revokes with the titles that they took, and rechecks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.records import Kind, Row
from harness.records.note import TakenBack


@dataclass(frozen=True, slots=True, kw_only=True)
class TitleMove:
    """An undo or a revoke, the accepts that lost the title, and the next holder: indices of rows.

    `again` is None if there is no next holder, or if the holder is unknown.
    """

    place: int
    took: tuple[int, ...]
    again: int | None
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Title:
    """The champion at some time: the attempt that holds the title, and the newest accepted row of its program."""

    holder: int
    row: Row


def title_moves(rows: Sequence[Row]) -> tuple[TitleMove, ...]:
    """Every undo and revoke among `rows`, oldest first.

    An undo takes back the newest accept on this branch that still counts; a revoke takes back the attempts it names.
    """
    moves: list[TitleMove] = []
    accepts: list[int] = []
    for place, row in enumerate(rows):
        if row.is_on_branch is False:
            continue
        if row.is_title:
            accepts.append(place)
        elif row.kind == "revoke":
            took = tuple(at for at in accepts if rows[at].number in row.revokes)
            accepts = [at for at in accepts if at not in took]
            again = next((at for at in reversed(accepts) if rows[at].number == row.holder), None)
            moves.append(TitleMove(place=place, took=took, again=again, kind=row.kind))
        elif row.kind == "undo" and row.outcome == "accept" and accepts:
            undone = accepts.pop()
            again = accepts[-1] if accepts else None
            moves.append(TitleMove(place=place, took=(undone,), again=again, kind=row.kind))
    return tuple(moves)


def taken_back(rows: Sequence[Row]) -> tuple[TakenBack | None, ...]:
    """`undone` or `revoked` for each row whose title a later undo or revoke took, else None."""
    fates: list[TakenBack | None] = [None] * len(rows)
    for move in title_moves(rows):
        for place in move.took:
            fates[place] = "undone" if move.kind == "undo" else "revoked"
    return tuple(fates)


def titles(rows: Sequence[Row]) -> Iterator[Title | None]:
    """The champion before each of `rows`, and then the champion after the last row."""
    moves = {move.place: move for move in title_moves(rows)}
    title: Title | None = None
    yield title
    for place, row in enumerate(rows):
        if row.outcome == "accept" and row.is_on_branch is not False:
            again = moves[place].again if place in moves else None
            holder = row.number if again is None else rows[again].number
            title = Title(holder=title.holder if title and is_check(row, title) else holder, row=row)
        yield title


def is_check(row: Row, title: Title | None) -> bool:
    """True if `row` is a rebaseline of the champion's text or program, with the champion's source and chip."""
    if title is None:
        return False
    champion = title.row
    is_same = row.kernel_sha256 == champion.kernel_sha256 or (
        row.fingerprint != "" and row.fingerprint == champion.fingerprint
    )
    is_comparable = (row.source, row.chip) == (champion.source, champion.chip)
    return row.kind == "rebaseline" and row.is_on_branch is not False and is_same and is_comparable
