"""The champions of a repository's contests, checked again: as a page in Markdown, and for a terminal."""

from collections.abc import Sequence

from harness.records import CheckedChampion
from harness.render.grid import grid, widths_of
from harness.render.layout import clean, joined
from harness.units import milliseconds

_TITLES = ("contest", "chip", "time", "x floor", "checks", "checked")
_HEAD = """\
# Champions

Every contest's champion, checked again by `./ratchet.sh champions --page FILE --commit`. Times are simulated
{versions}. `x floor` is the time over the least that the chip needs for the useful work (FLOPs at peak, each array
moved once). Checks are those that passed of those that were run.
"""


def champions_page(found: Sequence[CheckedChampion]) -> str:
    """The page: a table with a row for each champion, and sentences on those that fail or could not be checked."""
    titles = ("contest", "problem", *_TITLES[1:])
    rows = [[f"`{one.folder}`", one.title, *_cells(one)[1:]] for one in found if one.note is not None]
    head = _HEAD.format(versions=_versions(found).strip())
    lines = [head, "", f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    lines += [f"| {' | '.join(clean(cell) for cell in row)} |" for row in rows]
    said = [f"- {sentence}" for one in found if (sentence := _complaint(one))]
    return joined([*lines, *(["", *said] if said else [])]) + "\n"


def champions_text(found: Sequence[CheckedChampion]) -> str:
    """The same table for a terminal."""
    rows = [_cells(one) for one in found if one.note is not None]
    lines = grid(_TITLES, rows, "llrrrl", widths_of(_TITLES, rows, 0)) if rows else []
    said = [sentence for one in found if (sentence := _complaint(one))]
    passing = sum(one.passes for one in found)
    return joined([*lines, "", *said, f"{passing} of {len(found)} champions pass{_versions(found)}"])


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
