"""Probes of a norm over rows: which columns, rows and weights each output depends on."""

from dataclasses import dataclass

import numpy as np

from harness.operators.blocks import around, blocks, drawn_block
from harness.operators.probes import Part, Probe, Region, probe
from harness.operators.problem import Rows, Values

_TURNED = -1.0
# Multiplied by this, a number drawn from N(0, 1) outweighs all others of 2^17 columns in a row's sum of squares, except
# with a chance of 2^-30. The product's square, about 2^84 (2^112 for large inputs), is far below float32's maximum.
_LOUD = 2.0**40
# The most rows that one probe changes: each costs about 50 us.
_MOST_PROBED = 8192
# The limit on rows x columns, summed over the calls of a full probe (a few seconds); at least one call is made. It
# suffices for every column of matrices with up to 8192 columns, even if an eighth of the rows is zero.
_PROBED = 1 << 27
_MOST_CALLS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Probes of y [rows, columns] and, with `residual`, of h next to it; the seed determines the probed places."""

    rows: int
    columns: int
    residual: bool
    seed: int

    def energy(self, family: str, rows: Rows, *, full: bool) -> list[Probe]:
        """Probes that make single columns much larger, each in a different row.

        `rows` are the rows that may be used, none of them zero in inputs of `family`. With `full` all columns are
        changed, as far as the calls are affordable; otherwise as many columns as there are rows.

        A larger element changes its row's scale, and so y in every quarter of the columns; h changes in its column
        alone. If a kernel leaves a column out of the sum, the rest of the row in which this column was changed does not
        change.
        """
        random = self._random(0)
        each = min(_MOST_PROBED, len(rows), self.columns)
        order = random.permutation(self.columns)
        calls = min(-(-self.columns // each), max(1, _PROBED // (self.rows * self.columns)), _MOST_CALLS) if full else 1
        name = f"columns of x, {min(self.columns, calls * each)} of {self.columns}, each in a row of its own,"
        dealt = [order[call * each : (call + 1) * each] for call in range(calls)]
        return [self._loud(name, family, columns, random.permutation(rows)[: len(columns)]) for columns in dealt]

    def _loud(self, name: str, family: str, columns: Values, rows: Rows) -> Probe:
        size = max(1, -(-self.columns // 4))
        quarters = [range(start, min(start + size, self.columns)) for start in range(0, self.columns, size)]
        regions, moves, stays = [], [], []
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            here = range(row, row + 1)
            regions.append(Region(array=0, ranges=(here, range(column, column + 1)), factor=_LOUD))
            # A quarter that contains the column would move in any case.
            moves += [Part(rows=here, columns=quarter) for quarter in quarters if column not in quarter]
            moves += self._of_h(here, range(column, column + 1))
            stays += self._of_h(here, range(column)) + self._of_h(here, range(column + 1, self.columns))
        return probe(name, family, regions, moves, stays)

    def some_rows(self, name: str, array: int) -> Probe:
        """A probe of a block of rows of x or of the residual: exactly these rows of all outputs move."""
        rows = drawn_block(self.rows, self._random(1, array))
        moves = [Part(rows=rows, columns=block) for block in blocks(self._width, self._width)]
        stays = [Part(rows=other, columns=range(self._width)) for other in around(rows, self.rows)]
        region = Region(array=array, ranges=(rows, range(self.columns)), factor=_TURNED)
        return probe(f"rows {rows.start} to {rows.stop - 1} of {name}", "normal", [region], moves, stays)

    def weights(self) -> Probe:
        """A probe of a block of weights: exactly these columns of y move, and h does not."""
        columns = drawn_block(self.columns, self._random(2))
        rows, name = range(self.rows), f"weights {columns.start} to {columns.stop - 1}"
        region = Region(array=2 if self.residual else 1, ranges=(columns,), factor=_TURNED)
        stays = [Part(rows=rows, columns=other) for other in around(columns, self._width)]
        return probe(name, "normal", [region], [Part(rows=rows, columns=columns)], stays)

    @property
    def _width(self) -> int:
        """The number of columns of all outputs side by side."""
        return self.columns * (2 if self.residual else 1)

    def _of_h(self, rows: range, columns: range) -> list[Part]:
        """The part of the output h with these rows and columns; empty if h is not an output."""
        if not self.residual:
            return []
        return [Part(rows=rows, columns=range(self.columns + columns.start, self.columns + columns.stop))]

    def _random(self, *what: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence((self.seed, *what)))
