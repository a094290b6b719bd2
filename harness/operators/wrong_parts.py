"""Texts that name the wrong parts of an output, and the shape at which they were found."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.operators.outputs import by_itself, element, spans
from harness.records import Array, Statement

# The tile of the chip's memory. A block covers whole tiles or the whole axis, and so does the part of the output that a
# wrong block spoils.
_TILE_ROWS, _TILE_COLUMNS = 8, 128
_MOST_NAMED = 3


def wrong_parts(outputs: Sequence[Array], wrong: NDArray[np.bool_], rows: NDArray[np.int64] | None = None) -> str:
    """The parts of the outputs that hold wrong elements, as text such as `c[256..511, 0..255]`.

    `wrong`: `[len(rows), columns]`, of the outputs side by side; without `rows` it has all rows.
    """
    rows = np.arange(len(wrong)) if rows is None else rows
    parts: list[str] = []
    for _, output, columns in spans(outputs):
        parts += _parts(output, *by_itself(output, rows, wrong[:, columns]))
    if len(parts) <= _MOST_NAMED:
        return " and ".join(parts)
    return f"{', '.join(parts[:_MOST_NAMED])} and {len(parts) - _MOST_NAMED} more parts, up to {parts[-1]}"


def _parts(output: Array, rows: NDArray[np.int64], wrong: NDArray[np.bool_]) -> Iterator[str]:
    """Rectangles of neighbouring tiles that contain wrong elements, each narrowed to these elements."""
    length = output.shape[-2] if len(output.shape) > 1 else 1
    # The first compared row of each tile: no tile reaches beyond the end of a matrix.
    starts = np.flatnonzero(np.diff(rows // length * length + rows % length // _TILE_ROWS, prepend=-1))
    ends = [*starts[1:], len(rows)]
    tiles = np.logical_or.reduceat(wrong, np.arange(0, wrong.shape[1], _TILE_COLUMNS), axis=1)
    tiles = np.logical_or.reduceat(tiles, starts, axis=0)
    top = 0
    while top < len(tiles):
        bottom = top + 1
        while bottom < len(tiles) and np.array_equal(tiles[bottom], tiles[top]):
            bottom += 1
        for run in runs(tiles[top]):
            columns = slice(run.start * _TILE_COLUMNS, run.stop * _TILE_COLUMNS)
            down, across = np.nonzero(wrong[starts[top] : ends[bottom - 1], columns])
            first, last = (int(rows[starts[top] + edge]) for edge in (down.min(), down.max()))
            yield _named(output, first, last, columns.start + int(across.min()), columns.start + int(across.max()))
        top = bottom


def runs(marked: NDArray[np.bool_]) -> Iterator[range]:
    """The unbroken ranges of positions that are marked."""
    edges = np.flatnonzero(np.diff(marked, prepend=False, append=False)).tolist()
    return map(range, edges[::2], edges[1::2])


def _named(output: Array, first: int, last: int, left: int, right: int) -> str:
    above, below = (np.unravel_index(row, output.shape[:-1]) for row in (first, last))
    if above[:-1] != below[:-1]:
        return f"{element(output, first, left)} to {element(output, last, right)}"
    edges = [*zip(above, below, strict=True), (left, right)]
    return f"{output.name}[{', '.join(f'{low}' if low == high else f'{low}..{high}' for low, high in edges)}]"


def at_smaller_shape(stated: Statement, full: Statement) -> str:
    """A text such as `at a smaller shape, sequence 512: `, which names the shape; "" for the contest's own shape."""
    return "" if stated.title == full.title else f"at a smaller shape, {its_shape(stated, full)}: "


def its_shape(stated: Statement, full: Statement) -> str:
    """The parts of the title of `stated` that the contest's title lacks, such as `sequence 512`; if none, all parts."""
    full_words = full.title.split(", ")
    return ", ".join(words for words in stated.title.split(", ") if words not in full_words) or stated.title
