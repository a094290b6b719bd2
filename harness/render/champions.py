"""The champions of a repository's contests, checked again: as a page in Markdown, and for a terminal."""

from collections.abc import Iterator, Sequence

from harness.records import CheckedChampion
from harness.render.layout import clean, joined, terminal_width
from harness.render.sections import GAP, Block, Column, Grid, Line, markdown, screen
from harness.units import milliseconds

_COLUMNS = (
    Column("contest"),
    Column("chip"),
    Column("time", side="r"),
    Column("x floor", side="r"),
    Column("checks", side="r"),
    Column("checked"),
)
_HEAD = """\
# Champions

Every contest's champion, checked again by `./ratchet.sh champions --page FILE --commit`. Times are simulated
{versions}. `x floor` is the time over the least that the chip needs for the useful work (FLOPs at peak, each array
moved once). Checks are those that passed of those that were run.
"""


def champions_page(found: Sequence[CheckedChampion]) -> str:
    """The page: a table with a row for each champion, and sentences on those that fail or could not be checked."""
    columns = [Column(title) for title in ("contest", "problem", *(column.title for column in _COLUMNS[1:]))]
    rows = [[f"`{one.folder}`", clean(one.title), *_cells(one)[1:]] for one in found if one.note is not None]
    head = _HEAD.format(versions=_versions(found).strip())
    said = [f"- {sentence}" for one in found if (sentence := _complaint(one))]
    return joined([head, "", *markdown(columns, rows), *(["", *said] if said else [])]) + "\n"


def champions_text(found: Sequence[CheckedChampion]) -> str:
    """The same table for a terminal."""
    return screen(_blocks(found), terminal_width())


def _blocks(found: Sequence[CheckedChampion]) -> Iterator[Block]:
    rows = [_cells(one) for one in found if one.note is not None]
    if rows:
        yield Grid(_COLUMNS, rows, title_room=0, is_cut=False)
    yield GAP
    yield from (Line(sentence, is_whole=True) for one in found if (sentence := _complaint(one)))
    passing = sum(one.passes for one in found)
    yield Line(f"{passing} of {len(found)} champions pass{_versions(found)}", is_whole=True)


def _cells(one: CheckedChampion) -> list[str]:
    note = one.note
    assert note is not None
    is_timed = note.seconds is not None and one.floor_seconds
    return [
        one.folder,
        one.chip,
        milliseconds(note.seconds, " ") if note.seconds is not None else "unknown",
        f"{note.seconds / one.floor_seconds:.2f}" if is_timed and note.seconds and one.floor_seconds else "unknown",
        f"{note.checks_passed} of {note.checks}",
        note.when[:10],
    ]


def _complaint(one: CheckedChampion) -> str:
    """Why a champion fails or was not checked; "" for one that passes."""
    if one.note is None:
        return f"{one.folder}: not checked: {clean(one.why_not)}"
    return "" if one.passes else f"{one.folder}: FAILS: {one.note.failure_kind}: {clean(one.note.reason)}"


def _versions(found: Sequence[CheckedChampion]) -> str:
    """The compilers behind the times, in brackets; "" where none was taken."""
    keys = (one.note.key for one in found if one.note is not None)
    versions = dict.fromkeys(f"jax {key.jax}, libtpu {key.libtpu or 'none'}" for key in keys)
    return f" ({'; '.join(versions)})" if versions else ""
