"""The champions of a repository's contests, checked again: as a page in Markdown, and for a terminal."""

from collections.abc import Iterator, Sequence

from harness.records import CheckedChampion
from harness.render.layout import clean, joined
from harness.render.sections import GAP, Block, Column, Grid, Line, markdown
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
{versions}. `x floor` is the time divided by the shortest possible time for the useful work
(FLOPs at peak, each array moved once, on several chips the bytes over the links). The column `checks` has the number of
checks that passed, of all that ran.
"""


def champions_page(champions: Sequence[CheckedChampion]) -> str:
    """The page: a table with a row for each champion, and sentences on those that fail or could not be checked."""
    columns = [Column(title) for title in ("contest", "problem", *(column.title for column in _COLUMNS[1:]))]
    rows = [
        [f"`{champion.folder}`", clean(champion.title), *_cells(champion)[1:]]
        for champion in champions
        if champion.note is not None
    ]
    head = _HEAD.format(versions=_versions(champions).strip())
    complaints = [f"- {sentence}" for champion in champions if (sentence := _complaint(champion))]
    return joined([head, "", *markdown(columns, rows), *(["", *complaints] if complaints else [])]) + "\n"


def champions_blocks(champions: Sequence[CheckedChampion]) -> Iterator[Block]:
    """The table and sentences of `champions_page`, for a terminal."""
    rows = [_cells(champion) for champion in champions if champion.note is not None]
    if rows:
        yield Grid(_COLUMNS, rows, title_room=0, is_cut=False)
    yield GAP
    yield from (Line(sentence, is_whole=True) for champion in champions if (sentence := _complaint(champion)))
    passing = sum(champion.passes for champion in champions)
    yield Line(f"{passing} of {len(champions)} champions pass{_versions(champions)}", is_whole=True)


def _cells(champion: CheckedChampion) -> list[str]:
    note = champion.note
    assert note is not None
    return [
        champion.folder,
        champion.chip,
        milliseconds(note.seconds, " ") if note.seconds is not None else "unknown",
        f"{note.seconds / champion.floor_seconds:.2f}" if note.seconds and champion.floor_seconds else "unknown",
        f"{note.checks_passed} of {note.checks}",
        note.when[:10],
    ]


def _complaint(champion: CheckedChampion) -> str:
    """The reason why a champion fails or was not checked; "" if it passes."""
    if champion.note is None:
        return f"{champion.folder}: not checked: {clean(champion.why_not)}"
    fails = f"{champion.folder}: FAILS: {champion.note.failure_kind}: {clean(champion.note.reason)}"
    return "" if champion.passes else fails


def _versions(champions: Sequence[CheckedChampion]) -> str:
    """The compilers of the times, in parentheses; "" if no champion has a note."""
    keys = (champion.note.key for champion in champions if champion.note is not None)
    versions = dict.fromkeys(f"jax {key.jax}, libtpu {key.libtpu or 'none'}" for key in keys)
    return f" ({'; '.join(versions)})" if versions else ""
