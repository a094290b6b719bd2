"""Rows of cells under titles: every table that is printed is laid out here, with widths as a terminal shows them."""

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from harness.render.layout import cut, pad


def widths_of(titles: Sequence[str], rows: Sequence[Sequence[str]], title_room: int = 2) -> list[int]:
    """The widest cell of each column; a title may have several lines, and has `title_room` blanks beside it."""
    widths = [title_room + max(map(_length, title.split("\n"))) for title in titles]
    columns = zip(*rows, strict=True) if rows else [()] * len(widths)
    return [max((width, *map(_length, column))) for width, column in zip(widths, columns, strict=True)]


def shrunk(widths: Sequence[int], least: Mapping[int, int], width: int, gap: int = 2) -> list[int]:
    """What does not fit into `width` is taken from whichever column of `least` is the widest, down to its least."""
    found = list(widths)
    while sum(found) + gap * (len(found) - 1) > width:
        free = [place for place in least if found[place] > least[place]]
        if not free:
            break
        found[max(free, key=lambda place: found[place])] -= 1
    return found


def grid(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    sides: str,
    widths: Sequence[int] | None = None,
    gap: int = 2,
) -> list[str]:
    """Lines of titles, a ruler, then a line for each row; `sides` has an `l` or an `r` for each column.

    Cells wider than their column of `widths` (by default the widest cell's) are cut.
    """
    widths = widths_of(titles, rows) if widths is None else widths
    height = max(title.count("\n") for title in titles) + 1
    # A title of one line stands on the ruler, whatever its neighbours have.
    heads = zip(*(("\n" * (height - 1 - title.count("\n")) + title).split("\n") for title in titles), strict=True)
    every = [*heads, ["-" * room for room in widths], *rows]
    # tabulate would look for numbers in every cell, and knows display widths only with a package that may be absent.
    return [(" " * gap).join(_placed(*cell) for cell in zip(row, widths, sides, strict=True)).rstrip() for row in every]


def _length(text: str) -> int:
    """Its width on a terminal."""
    return len(text) if text.isascii() and text.isprintable() else cell_len(text)


def _placed(text: str, width: int, side: str) -> str:
    if text.isascii() and len(text) <= width:
        return text.ljust(width) if side == "l" else text.rjust(width)
    shown = cut(text, width)
    return pad(shown, width) if side == "l" else " " * (width - cell_len(shown)) + shown
