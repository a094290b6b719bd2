"""Probes of attention's gradients: which inputs each gradient depends on."""

from collections.abc import Iterator

import numpy as np

from harness.operators.attention.inputs import COMPOSITE_PERIOD, even_rows
from harness.operators.blocks import BLOCK, drawn_block, shifted_blocks, spans
from harness.operators.probes import Part, Probe, Region, probe

_Q, _K, _V, _O, _LSE, _DO = range(6)
_DQ, _DK, _DV = range(3)
# A change of sign keeps every magnitude; a logarithm of sums is halved, so that weights stay finite.
_TURNED, _HALVED = -1.0, 0.5
# Weights of N(0, 1) inputs are within e^-12 of each other: what is this much larger moves every sum that has it.
_LOUD = 2.0**40
# With so many visible keys, or queries that see a key, what is changed moves them by far more than any rounding.
_ENOUGH = 8


def probes(heads: int, sequence: int, head_dim: int, causal: bool, full: bool, seed: int) -> tuple[Probe, ...]:
    """A block of each input of one head; as lse and o are given, far from everything depends on all of it.

    And all gradients of the output, each block of queries in columns of its own, which shows in dv every block that is
    left out. At the full shape that and keys alone, whose change shows in all three gradients.
    """
    random = np.random.default_rng(np.random.SeedSequence((seed, sequence, heads)))
    rows = drawn_block(sequence, random)
    drawn = _Drawn(heads, sequence, head_dim, causal, int(random.integers(heads)), rows, full, seed)
    size = max(BLOCK // 2, -(-sequence // max(1, head_dim - 1)))
    blocks = shifted_blocks(sequence, -(-sequence // size) + 1, size, random)
    if full:
        return (drawn.of_every_block(blocks), drawn.of_keys("keys", _K))
    return (
        drawn.of_every_block(blocks),
        drawn.of_keys("keys", _K),
        drawn.of_keys("values", _V),
        drawn.of_queries("queries", _Q),
        drawn.of_queries("gradients of the output", _DO),
        drawn.of_queries("outputs of the forward", _O),
        drawn.of_queries("logarithms of sums", _LSE),
    )


class _Drawn:
    """Probes of one block of rows of one head."""

    def __init__(
        self, heads: int, sequence: int, head_dim: int, causal: bool, head: int, rows: range, full: bool, seed: int
    ) -> None:
        self._heads = heads
        self._sequence = sequence
        self._head_dim = head_dim
        self._causal = causal
        self._head = head
        self._rows = rows
        self._family = "composite" if full else "normal"
        # In the composite only some rows weigh all keys alike.
        self._even = even_rows(sequence, seed) if full else ()

    def of_keys(self, name: str, array: int) -> Probe:
        """A block of keys or values: dq of all queries that see it; dk, and dv where it is keys, of the block alone."""
        rows = self._rows
        # A query that sees part of the block may see too little of it; a key that few queries see, too.
        seeing = range(rows.stop - 1 if self._causal else 0, self._sequence)
        moved_rows = range(rows.start, min(rows.stop, self._sequence - _ENOUGH)) if self._causal else rows
        moves = [*self._evenly(_DQ, seeing), self._part(_DK, moved_rows)]
        stays = [*self._others_than(_DK, rows), *self._of_other_heads()]
        if self._causal:
            stays.append(self._part(_DQ, range(rows.start)))
        if array == _K:
            moves.append(self._part(_DV, moved_rows))
            stays += self._others_than(_DV, rows)
        else:
            stays.append(self._part(_DV, range(self._sequence)))
        # A large score, turned, may be so far above the logarithm of sums, which is given, that its weight is inf.
        factor = _TURNED * _HALVED if array == _K and self._family == "composite" else _TURNED
        return self._probe(name, array, factor, moves, stays)

    def of_every_block(self, blocks: tuple[range, ...]) -> Probe:
        """All of do of the head, each block of queries in columns of its own: dv of all keys that it sees, there."""
        start, count, offset = self._head * self._sequence, len(blocks), _DV * self._head_dim
        cuts = [block * self._head_dim // count for block in range(count + 1)]
        regions, moves, stays = [], [], []
        for rows, columns in zip(blocks, spans(cuts), strict=True):
            regions.append(self._region(_DO, rows, columns, _LOUD))
            seen = rows.start + 1 if self._causal else self._sequence
            dv_columns = range(offset + columns.start, offset + columns.stop)
            moves.append(Part(rows=range(start, start + seen), columns=dv_columns))
            if self._causal:
                stays.append(Part(rows=range(start + rows.stop, start + self._sequence), columns=dv_columns))
        name = f"gradients of the output of head {self._head}, each block of queries in columns of its own,"
        return probe(name, self._family, regions, moves, [*stays, *self._of_other_heads()])

    def of_queries(self, name: str, array: int) -> Probe:
        """A block of queries' rows of `array`: dq of the block alone moves, and dk and dv of all keys it sees."""
        rows = self._rows
        dq_rows = range(max(rows.start, _ENOUGH), rows.stop) if self._causal else rows
        seen = range(rows.start + 1 if self._causal else self._sequence)
        moves = [self._part(_DQ, dq_rows), self._part(_DK, seen)]
        stays = [*self._others_than(_DQ, rows), *self._of_other_heads()]
        if array == _O:
            stays.append(self._part(_DV, range(self._sequence)))
        else:
            moves.append(self._part(_DV, seen))
        if self._causal:
            stays += [self._part(output, range(rows.stop, self._sequence)) for output in (_DK, _DV)]
        # What o adds to dq is as large as delta, which of some query is near zero by chance.
        factor = {_LSE: _HALVED, _O: _LOUD}.get(array, _TURNED)
        return self._probe(name, array, factor, moves, stays)

    def _probe(self, name: str, array: int, factor: float, moves: list[Part], stays: list[Part]) -> Probe:
        named = f"{name} {self._rows.start} to {self._rows.stop - 1} of head {self._head}"
        region = self._region(array, self._rows, range(self._head_dim), factor)
        return probe(named, self._family, [region], moves, stays)

    def _region(self, array: int, rows: range, columns: range, factor: float) -> Region:
        """The region of these rows of the head in one input; lse has no columns."""
        ranges = (rows,) if array == _LSE else (rows, columns)
        if self._heads > 1:
            ranges = (range(self._head, self._head + 1), *ranges)
        return Region(array=array, ranges=ranges, factor=factor)

    def _part(self, output: int, positions: range) -> Part:
        """These positions of the head, in one output."""
        start = self._head * self._sequence
        rows = range(start + positions.start, start + positions.stop, positions.step)
        return Part(rows=rows, columns=range(output * self._head_dim, (output + 1) * self._head_dim))

    def _evenly(self, output: int, positions: range) -> Iterator[Part]:
        """The positions among these that weigh all keys alike: all of them except in the composite."""
        if not self._even:
            yield self._part(output, positions)
        for kind in self._even:
            first = positions.start + (kind - positions.start) % COMPOSITE_PERIOD
            yield self._part(output, range(first, positions.stop, COMPOSITE_PERIOD))

    def _others_than(self, output: int, positions: range) -> Iterator[Part]:
        for part in (range(positions.start), range(positions.stop, self._sequence)):
            yield self._part(output, part)

    def _of_other_heads(self) -> Iterator[Part]:
        start, stop = self._head * self._sequence, (self._head + 1) * self._sequence
        for rows in (range(start), range(stop, self._heads * self._sequence)):
            yield Part(rows=rows, columns=range(3 * self._head_dim))
