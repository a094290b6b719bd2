"""Probes of a product, or of outputs that are computed from products: which inputs each output depends on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.operators.blocks import BLOCK, around, blocks, drawn_block, shifted_blocks, spans
from harness.operators.probes import Part, Probe, Region, probe

# A change of sign keeps every magnitude: kernels may branch on magnitudes.
_TURNED = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Probes of an output [rows, columns] whose rows depend on rows of one input, at places drawn from the seed."""

    rows: int
    columns: int
    seed: int

    def inner(
        self,
        name: str,
        array: int,
        length: int,
        family: str = "normal",
        *,
        kinds: Sequence[bool] = (True,),
        columns: int | None = None,
    ) -> Probe:
        """A probe of every part of the axis that is summed over, each in different rows: one run tests every part.

        Every changed row must move in each block of columns: if a part is left out for some rows or columns, nothing
        moves there. This is required only of elements that weigh all terms evenly enough: rows `r` for which
        `kinds[r % len(kinds)]` is true, and the first `columns` columns (None: all). `len(kinds)` is a power of two.
        """
        # Parts have half the size of a kernel's smallest block, so that a block that is left out contains a whole part.
        # Their borders are drawn, so that they differ from the kernel's.
        parts = shifted_blocks(length, max(2, self.rows // 8), BLOCK // 2, self._random(array, length, 1))
        # An odd period, so that every part is changed in rows of every kind; rows without a part stay unchanged.
        period = len(parts) | 1
        places = [int(place) for place in self._random(array, length).permutation(period)]
        regions = tuple(
            Region(array=array, ranges=(range(place, self.rows, period), part), factor=_TURNED)
            for place, part in zip(places, parts, strict=False)
        )
        step = period * len(kinds)
        changed = set(places[: len(parts)])
        even = [row for row in range(min(step, self.rows)) if kinds[row % len(kinds)] and row % period in changed]
        still = [range(place, self.rows, period) for place in places[len(parts) :]]
        return probe(
            f"columns of {name}, each of {len(parts)} blocks in rows of its own,",
            family,
            regions,
            [part for row in even for part in self._everywhere(range(row, self.rows, step), columns)],
            [Part(rows=rows, columns=range(self.columns)) for rows in still],
        )

    def some_rows(self, name: str, array: int, length: int) -> Probe:
        """A probe of a block of rows of the input: exactly these rows of the output move."""
        rows = drawn_block(self.rows, self._random(array, self.rows))
        region = Region(array=array, ranges=(rows, range(length)), factor=_TURNED)
        stays = [Part(rows=other, columns=range(self.columns)) for other in around(rows, self.rows)]
        named = f"rows {rows.start} to {rows.stop - 1} of {name}"
        return probe(named, "normal", [region], self._everywhere(rows), stays)

    def some_columns(self, name: str, array: int, length: int) -> Probe:
        """A probe of a block of columns of the input: exactly these columns of the output move."""
        columns = drawn_block(self.columns, self._random(array, self.columns))
        region = Region(array=array, ranges=(range(length), columns), factor=_TURNED)
        moves = [Part(rows=range(self.rows), columns=columns)]
        stays = [Part(rows=range(self.rows), columns=other) for other in around(columns, self.columns)]
        return probe(f"columns {columns.start} to {columns.stop - 1} of {name}", "normal", [region], moves, stays)

    def parts(self, name: str, array: int, length: int) -> Probe:
        """A probe of every part of the axis that the last product sums over, each in different columns."""
        parts = shifted_blocks(length, max(2, self.columns // 8), BLOCK // 2, self._random(array, length, 1))
        edges = [part * self.columns // len(parts) for part in range(len(parts) + 1)]
        columns = tuple(spans(edges))
        pairs = zip(parts, columns, strict=True)
        regions = [Region(array=array, ranges=(part, some), factor=_TURNED) for part, some in pairs]
        moves = [Part(rows=range(self.rows), columns=some) for some in columns]
        return probe(f"rows of {name}, each of {len(parts)} blocks in columns of its own,", "normal", regions, moves)

    def _everywhere(self, rows: range, columns: int | None = None) -> tuple[Part, ...]:
        """A part for each block of the first `columns` columns (None: all), at these rows."""
        length = columns or self.columns
        return tuple(Part(rows=rows, columns=part) for part in blocks(length, length))

    def _random(self, *what: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence((self.seed, *what)))
