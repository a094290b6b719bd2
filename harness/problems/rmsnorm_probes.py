"""Which outputs of a norm over rows depend on which columns, rows and weights, stated as probes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.problems.blocks import BLOCK, blocks, drawn_block
from harness.problems.probes import Part, Probe, Region

_TURNED = -1.0
# So much larger, half a block of 128 has more of a row's sum of squares than all the rest of 2^17 columns.
_LOUD = 2.0**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Probes of y [rows, columns], and with `residual` of h beside it; places follow from the seed."""

    rows: int
    columns: int
    residual: bool
    seed: int

    def energy(self, family: str, kinds: Sequence[bool]) -> Probe:
        """Every part of the columns made loud, each in rows of its own: one run shows every part.

        A row's scale then changes, and with it y in every block of columns; h changes in the part alone. A part
        that is left out of the sum leaves the rest of the row as it was. `kinds` says which rows, by their position
        modulo its length (a power of two), are large enough for that.
        """
        parts = blocks(self.columns, max(1, self.rows // 8), BLOCK // 2)
        # An odd period, so that every part is changed in rows of every kind; rows beyond the parts stay as they were.
        period = len(parts) | 1
        places = [int(place) for place in self._random(0).permutation(period)]
        by_place = dict(zip(places, parts, strict=False))
        regions, moves, stays = [], [], []
        for place in places:
            rows = range(place, self.rows, period)
            part = by_place.get(place)
            if part is None:
                stays.append(Part(rows=rows, columns=range(self._width)))
                continue
            regions.append(Region(array=0, ranges=(rows, part), factor=_LOUD))
            stays += self._of_h(rows, range(part.start)) + self._of_h(rows, range(part.stop, self.columns))
        step = period * len(kinds)
        for row in range(min(step, self.rows)):
            part = by_place.get(row % period)
            if part is None or not kinds[row % len(kinds)]:
                continue
            rows = range(row, self.rows, step)
            moves += [Part(rows=rows, columns=block) for block in blocks(self.columns, self.columns)]
            moves += self._of_h(rows, part)
        name = f"columns of x, each block of {len(parts[0])} in rows of its own,"
        return self._probe(name, family, regions, moves, stays)

    def some_rows(self, name: str, array: int) -> Probe:
        """A block of rows of x or of the residual: exactly these rows of all outputs move."""
        rows = drawn_block(self.rows, self._random(1, array))
        others = (range(rows.start), range(rows.stop, self.rows))
        moves = [Part(rows=rows, columns=block) for block in blocks(self._width, self._width)]
        stays = [Part(rows=other, columns=range(self._width)) for other in others]
        region = Region(array=array, ranges=(rows, range(self.columns)), factor=_TURNED)
        return self._probe(f"rows {rows.start} to {rows.stop - 1} of {name}", "normal", [region], moves, stays)

    def weights(self) -> Probe:
        """A block of weights: exactly these columns of y move, and nothing of h."""
        columns = drawn_block(self.columns, self._random(2))
        others = (range(columns.start), range(columns.stop, self._width))
        rows = range(self.rows)
        region = Region(array=2 if self.residual else 1, ranges=(columns,), factor=_TURNED)
        return self._probe(
            f"weights {columns.start} to {columns.stop - 1}", "normal", [region], [Part(rows=rows, columns=columns)],
            [Part(rows=rows, columns=other) for other in others],
        )  # fmt: skip

    @property
    def _width(self) -> int:
        """Columns of all outputs beside each other."""
        return self.columns * (2 if self.residual else 1)

    def _of_h(self, rows: range, columns: range) -> list[Part]:
        """These columns of h, where it is an output."""
        if not self.residual:
            return []
        return [Part(rows=rows, columns=range(self.columns + columns.start, self.columns + columns.stop))]

    def _probe(self, name: str, family: str, regions: list[Region], moves: list[Part], stays: list[Part]) -> Probe:
        filled = [tuple(part for part in parts if part.rows and part.columns) for parts in (moves, stays)]
        return Probe(name=name, family=family, regions=tuple(regions), moves=filled[0], stays=filled[1])

    def _random(self, *what: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence((self.seed, *what)))
