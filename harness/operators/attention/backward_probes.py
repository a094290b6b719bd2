"""Probes of attention's gradients: which inputs each gradient depends on."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from harness.operators.attention.inputs import COMPOSITE_PERIOD, empty_rows, even_rows
from harness.operators.blocks import BLOCK, around, drawn_block, shifted_blocks, spans
from harness.operators.probes import Part, Probe, Region, parts_of_rows, probe

_Q, _K, _V, _O, _LSE, _DO = range(6)
_DQ, _DK, _DV = range(3)
# The factors of changed inputs: -1 keeps every magnitude. lse, a logarithm, is halved instead, so that weights stay
# finite.
_TURNED, _HALVED = -1.0, 0.5
# Weights of N(0, 1) inputs are within a factor of e^12 of each other: a term this much larger moves every sum that
# contains it.
_LOUD = 2.0**40
# If this many keys are visible, or this many queries see a key, a change moves a gradient far more than rounding.
_ENOUGH = 8


def probes(
    heads: int, kv_heads: int, sequence: int, head_dim: int, causal: bool, full: bool, seed: int
) -> tuple[Probe, ...]:
    """Probes of a block of each input of one head.

    One more probe changes all of one head's do, in different columns for each block of queries, so that a missing block
    shows in dv. The full shape has only this probe and the probe of keys, which moves all three gradients.
    """
    random = np.random.default_rng(np.random.SeedSequence((seed, sequence, heads)))
    rows = drawn_block(sequence, random)
    drawn = _Drawn(heads, kv_heads, sequence, head_dim, causal, int(random.integers(heads)), rows, full, seed)
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
    """Probes of one block of rows of one head, or of the key/value head that it reads."""

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        sequence: int,
        head_dim: int,
        causal: bool,
        head: int,
        rows: range,
        full: bool,
        seed: int,
    ) -> None:
        self._heads = heads
        self._group = heads // kv_heads
        self._sequence = sequence
        self._head_dim = head_dim
        self._causal = causal
        self._head = head
        self._kv_head = head // self._group
        # The heads that read the same keys.
        self._readers = range(self._kv_head * self._group, (self._kv_head + 1) * self._group)
        self._rows = rows
        self._family = "composite" if full else "normal"
        # In the composite only some rows weigh all keys equally.
        self._even = even_rows(sequence, seed) if full else ()
        # Queries with zero output gradients move nothing.
        self._empty = empty_rows(sequence, seed) if full else range(0)

    def of_keys(self, name: str, array: int) -> Probe:
        """A probe of a block of keys or values.

        It moves dq of all queries that see the block, dk of the block and, for keys, dv of the block.
        """
        rows = self._rows
        # Some gradients may hardly move: of queries that see only part of the block, and of keys that few queries see.
        seeing = range(rows.stop - 1 if self._causal else 0, self._sequence)
        moved_rows = range(rows.start, min(rows.stop, self._sequence - _ENOUGH)) if self._causal else rows
        moves = [*self._of_readers(seeing), *self._parts(_DK, moved_rows)]
        stays = [*self._others_than(_DK, rows), *self._of_other_heads(self._readers)]
        if self._causal:
            for head in self._readers:
                stays += self._parts(_DQ, range(rows.start), head)
        if array == _K:
            moves += self._parts(_DV, moved_rows)
            stays += self._others_than(_DV, rows)
        else:
            stays += self._parts(_DV, range(self._sequence))
        # lse is an input and does not change. A large score that changes its sign may exceed lse so far that its weight
        # is inf.
        factor = _TURNED * _HALVED if array == _K and self._family == "composite" else _TURNED
        return self._probe(name, array, factor, moves, stays)

    def of_every_block(self, blocks: tuple[range, ...]) -> Probe:
        """A probe of all of the head's `do`, in different columns for each block of queries.

        In the columns of a block, the probe moves dv of all keys that the block sees.
        """
        count = len(blocks)
        cuts = [block * self._head_dim // count for block in range(count + 1)]
        regions: list[Region] = []
        moves: list[Part] = []
        stays = [*self._of_other_heads()]
        for rows, columns in zip(blocks, spans(cuts), strict=True):
            regions.append(self._region(_DO, rows, columns, _LOUD))
            overlap = range(max(rows.start, self._empty.start), min(rows.stop, self._empty.stop))
            # With fewer rows outside the empty block, perhaps none of them weighs all keys equally.
            if overlap and len(rows) - len(overlap) < 2 * COMPOSITE_PERIOD:
                continue
            seen = rows.start + 1 if self._causal else self._sequence
            moves += self._parts(_DV, range(seen), columns=columns)
            if self._causal:
                stays += self._parts(_DV, range(rows.stop, self._sequence), columns=columns)
        name = f"gradients of the output of head {self._head}, each block of queries in columns of its own,"
        return probe(name, self._family, regions, moves, stays)

    def of_queries(self, name: str, array: int) -> Probe:
        """A probe of the rows of `array` that belong to one block of queries.

        It moves dq of this block only, and dk and (except for o) dv of all keys that the block sees.
        """
        rows = self._rows
        dq_rows = range(max(rows.start, _ENOUGH), rows.stop) if self._causal else rows
        seen = range(rows.start + 1 if self._causal else self._sequence)
        moves = [*self._parts(_DQ, dq_rows), *self._parts(_DK, seen)]
        stays = [*self._others_than(_DQ, rows), *self._of_other_heads()]
        if array == _O:
            stays += self._parts(_DV, range(self._sequence))
        else:
            moves += self._parts(_DV, seen)
        if self._causal:
            for output in (_DK, _DV):
                stays += self._parts(output, range(rows.stop, self._sequence))
        # o acts on dq through delta alone, which is near zero by chance for some queries.
        factor = {_LSE: _HALVED, _O: _LOUD}.get(array, _TURNED)
        return self._probe(name, array, factor, moves, stays)

    def _probe(self, name: str, array: int, factor: float, moves: list[Part], stays: list[Part]) -> Probe:
        head = f"head {self._head}"
        if self._group > 1 and array in (_K, _V):
            head = f"key/value head {self._kv_head}"
        named = f"{name} {self._rows.start} to {self._rows.stop - 1} of {head}"
        region = self._region(array, self._rows, range(self._head_dim), factor)
        return probe(named, self._family, [region], moves, stays)

    def _region(self, array: int, rows: range, columns: range, factor: float) -> Region:
        """The region of these rows of the head in one input; lse has no columns."""
        ranges = (rows,) if array == _LSE else (rows, columns)
        head = self._kv_head if array in (_K, _V) else self._head
        if self._heads > 1:
            ranges = (range(head, head + 1), *ranges)
        return Region(array=array, ranges=ranges, factor=factor)

    def _parts(
        self, output: int, positions: range, head: int | None = None, columns: range | None = None
    ) -> Iterator[Part]:
        """The parts of one output at these positions and columns (None: all); dq is of `head` (None: the probe's)."""
        count, offset = self._place(output)
        columns = range(self._head_dim) if columns is None else columns
        number = self._kv_head if output != _DQ else self._head if head is None else head
        start = number * self._sequence
        rows = range(start + positions.start, start + positions.stop, positions.step)
        return parts_of_rows(rows, range(offset + columns.start, offset + columns.stop), count)

    def _of_readers(self, positions: range) -> Iterator[Part]:
        """dq of all heads that read the keys, for queries with equal weights and nonzero output gradients.

        Except in the composite, all `positions` are such queries.
        """
        for head in self._readers:
            if not self._even:
                yield from self._parts(_DQ, positions, head)
            before = range(positions.start, min(positions.stop, self._empty.start))
            after = range(max(positions.start, self._empty.stop), positions.stop)
            for kind, some in product(self._even, (before, after)):
                first = some.start + (kind - some.start) % COMPOSITE_PERIOD
                yield from self._parts(_DQ, range(first, some.stop, COMPOSITE_PERIOD), head)

    def _others_than(self, output: int, positions: range) -> Iterator[Part]:
        for part in around(positions, self._sequence):
            yield from self._parts(output, part)

    def _of_other_heads(self, heads: range | None = None) -> Iterator[Part]:
        """dq of all heads but `heads` (None: the probe's); dk and dv of keys that the probe's head does not read."""
        queries = range(self._head, self._head + 1) if heads is None else heads
        keys = range(self._kv_head, self._kv_head + 1)
        for output, exempt in ((_DQ, queries), (_DK, keys), (_DV, keys)):
            count, offset = self._place(output)
            for some in around(exempt, self._heads if output == _DQ else self._heads // self._group):
                rows = range(some.start * self._sequence, some.stop * self._sequence)
                yield from parts_of_rows(rows, range(offset, offset + self._head_dim), count)

    def _place(self, output: int) -> tuple[int, int]:
        """The number of an output's rows in one row of all outputs side by side, and the first column of these rows."""
        return (self._group, 0) if output == _DQ else (1, (self._group + output - 1) * self._head_dim)
