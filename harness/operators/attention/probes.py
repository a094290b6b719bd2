"""Probes of attention: which keys, values and queries each output depends on."""

from collections.abc import Iterator

import numpy as np

from harness.operators.attention.inputs import COMPOSITE_PERIOD, InputSizes, even_rows
from harness.operators.blocks import BLOCK, around, drawn_block, drawn_border, spans
from harness.operators.probes import Part, Probe, Region, probe
from harness.operators.wrong_parts import runs

# Weights of N(0, 1) inputs are within a factor of e^12 of each other, so a value this much larger moves every output
# that reads it. A masked value moves nothing only if its weight is exactly 0. Sums over 2^40 such values are still
# finite.
LOUD = 2.0**40
# One factor for each key in turn. Equal keys have equal weights, and their values have so few digits that some sums of
# values are exactly 0. With one factor for all keys such sums would stay 0.
LOUDNESSES = (2.0**64, 2.0**56, 2.0**48, LOUD)
# A kernel need not subtract a maximum from capped scores: its weights may be e^50, and their sums must be finite too.
_CAPPED_LOUDNESSES = (LOUD, 2.0**32, 2.0**24)
# With this factor, logits of N(0, 1) inputs are about 4096 N(0, 1). Some of them exceed 10000, the number that some
# kernels subtract from a masked score instead of replacing the score.
DRAWN_TO = 2.0**12
# With two visible keys or more the weights depend on the query. With eight visible keys, a changed query moves the
# output by far more than any rounding does.
ENOUGH_KEYS = 8

_Q, _K, _V = range(3)


def probes(shape: InputSizes, full: bool, seed: int) -> tuple[Probe, ...]:
    """The probes of a shape.

    The full shape has one probe, which changes the values of every block of keys at once. A reduced shape also has
    probes of keys, queries and a whole head, and of keys that the mask hides. Blocks and heads follow from the seed. A
    probe of a block of queries or keys changes only signs. So the running maximum, on which kernels may branch for
    whole blocks of rows, hardly changes.
    """
    random = np.random.default_rng(np.random.SeedSequence((seed, shape.kv_sequence)))
    drawn = _Drawn(shape, random, even_rows(shape.sequence, seed))
    if full:
        return (drawn.values("composite"),)
    drawn_probes = [drawn.values("normal"), drawn.keys(), drawn.queries()]
    if shape.batch * shape.heads > 1:
        drawn_probes.append(drawn.head())
    if shape.causal:
        drawn_probes.append(drawn.future())
    if shape.window is not None:
        drawn_probes.append(drawn.past(shape.window))
    return tuple(drawn_probes)


class _Drawn:
    """Probes of one shape, with blocks and heads drawn at random."""

    def __init__(self, shape: InputSizes, random: np.random.Generator, even_rows: tuple[int, ...]) -> None:
        self._shape = shape
        self._random = random
        self._even_rows = even_rows
        self._group = shape.heads // shape.kv_heads
        # Query i sees the keys up to i + offset.
        self._offset = shape.kv_sequence - shape.sequence

    def values(self, family: str) -> Probe:
        """A probe of all values of one key/value head: each key block has its own columns, so one run tests all."""
        shape, kv_head = self._shape, self._kv_head()
        # The probe's blocks have half the size of a kernel's smallest block, so that any block that a kernel leaves out
        # contains a whole block of the probe. Long sequences need larger blocks. Fixed borders show a dropped block of
        # 128, drawn borders show keys that are dropped within a block. Under a causal mask borders are always drawn.
        is_shifted = shape.causal or bool(self._random.integers(2))
        size = max(BLOCK // 2, -(-shape.kv_sequence // max(1, shape.head_dim - is_shifted)))
        shift = int(self._random.integers(1, size)) if is_shifted else 0
        edges = [0, *range(size - shift, shape.kv_sequence, size), shape.kv_sequence]
        blocks = len(edges) - 1
        cuts = [block * shape.head_dim // blocks for block in range(blocks + 1)]
        loudnesses = LOUDNESSES if shape.soft_cap is None else _CAPPED_LOUDNESSES
        regions, moves, stays = [], [], []
        for keys, columns in zip(spans(edges), spans(cuts), strict=True):
            for turn, factor in enumerate(loudnesses[: len(keys)]):
                regions.append(self._region(_V, kv_head, keys[turn :: len(loudnesses)], columns, factor))
            for head in self._readers(kv_head):
                seeing = self._seeing(kv_head, keys.start, keys.stop - 1)
                moves += [Part(rows=rows, columns=columns) for rows in self._even(head, seeing, family)]
                blind = around(seeing, shape.sequence)
                stays += [Part(rows=self._rows(head, positions), columns=columns) for positions in blind]
        name = f"values of key/value head {kv_head}, each block of {size} keys in columns of its own,"
        return probe(name, family, regions, moves, [*stays, *self._other_heads(self._readers(kv_head))])

    def keys(self) -> Probe:
        """A probe of one block of keys of one key/value head."""
        kv_head = self._kv_head()
        keys = drawn_block(self._shape.kv_sequence, self._random)
        moves, stays = [], []
        for head in self._readers(kv_head):
            # A row that sees only a few of these keys may hardly move.
            well = self._seeing(kv_head, keys.stop - 1, (keys.start + keys.stop) // 2)
            moves.append(self._all_columns(self._rows(head, well)))
            blind = around(self._seeing(kv_head, keys.start, keys.stop - 1), self._shape.sequence)
            stays += [self._all_columns(self._rows(head, positions)) for positions in blind]
        name = f"keys {keys.start} to {keys.stop - 1} of key/value head {kv_head}"
        region = self._region(_K, kv_head, keys, self._columns, -1.0)
        return probe(name, "normal", [region], moves, [*stays, *self._other_heads(self._readers(kv_head))])

    def queries(self) -> Probe:
        """A probe of one block of queries of one head."""
        head, rows = self._head(), drawn_block(self._shape.sequence, self._random)
        return self._of_queries(head, rows, f"queries {rows.start} to {rows.stop - 1} of head {head}")

    def head(self) -> Probe:
        """A probe of all queries of one head."""
        head = self._head()
        return self._of_queries(head, range(self._shape.sequence), f"all queries of head {head}")

    def future(self) -> Probe:
        """A probe of all keys and values that the first queries must not see."""
        shape = self._shape
        middle = middle_of(shape.sequence, self._random)
        keys = range(middle + self._offset, shape.kv_sequence)
        # A row that sees only one or two changed keys may give them hardly any weight, before and after.
        seeing = range(middle + ENOUGH_KEYS, shape.sequence)
        return self._of_all_heads(f"keys and values from {keys.start} on", keys, seeing, range(middle))

    def past(self, window: int) -> Probe:
        """A probe of all keys and values that have left the window of the last queries."""
        shape = self._shape
        # The changed keys end within a block, so that keys that have left the window share a block with keys inside it.
        last = max(1, shape.kv_sequence - window)
        borders = range(max(last // 4, self._offset + ENOUGH_KEYS), 3 * last // 4 + 1)
        keys = range(drawn_border(last, self._random, borders) if last > 1 else 1)
        # These queries see only changed keys.
        inside = range(max(0, ENOUGH_KEYS - self._offset), keys.stop - self._offset)
        behind = range(keys.stop - 1 - self._offset + window, shape.sequence)
        return self._of_all_heads(f"keys and values before {keys.stop}", keys, inside, behind)

    def _of_all_heads(self, name: str, keys: range, moving: range, staying: range) -> Probe:
        """A probe of these keys and values of all heads: queries at `moving` must move, those at `staying` must not."""
        regions = [
            self._region(array, head, keys, self._columns, factor)
            for head in range(self._shape.batch * self._shape.kv_heads)
            for array, factor in ((_K, DRAWN_TO), (_V, LOUD))
        ]
        heads = range(self._shape.batch * self._shape.heads)
        moves, stays = ([self._all_columns(self._rows(head, places)) for head in heads] for places in (moving, staying))
        return probe(name, "normal", regions, moves, stays)

    def _of_queries(self, head: int, rows: range, name: str) -> Probe:
        moves = [self._all_columns(self._rows(head, part)) for part in self._queries_with_keys(head, rows)]
        stays = [self._all_columns(self._rows(head, part)) for part in around(rows, self._shape.sequence)]
        region = self._region(_Q, head, rows, self._columns, -1.0)
        return probe(name, "normal", [region], moves, [*stays, *self._other_heads(range(head, head + 1))])

    @property
    def _columns(self) -> range:
        return range(self._shape.head_dim)

    def _kv_head(self) -> int:
        return int(self._random.integers(self._shape.batch * self._shape.kv_heads))

    def _head(self) -> int:
        return int(self._random.integers(self._shape.batch * self._shape.heads))

    def _seeing(self, kv_head: int, first: int, last: int) -> range:
        """The positions of the queries from the first that sees key `first` to the last that sees key `last`."""
        shape = self._shape
        start = max(0, first - self._offset) if shape.causal else 0
        stop = shape.sequence if shape.window is None else min(shape.sequence, last - self._offset + shape.window)
        if shape.ids is not None:
            begin, end = shape.segment(kv_head // shape.kv_heads, np.array([first, last]))
            start, stop = max(start, int(begin[0])), min(stop, int(end[1]))
        return range(start, max(start, stop))

    def _queries_with_keys(self, head: int, rows: range) -> Iterator[range]:
        """The ranges of these queries of a head that see enough keys for the output to depend on the query."""
        first, end = self._shape.seen(np.arange(rows.start, rows.stop))
        entry = head // self._shape.heads
        for run in runs((end - first)[entry] >= ENOUGH_KEYS):
            yield range(rows.start + run.start, rows.start + run.stop)

    def _readers(self, kv_head: int) -> range:
        """The heads that read this key/value head, numbered through all batch entries."""
        return range(kv_head * self._group, (kv_head + 1) * self._group)

    def _other_heads(self, heads: range) -> Iterator[Part]:
        """All rows of the heads that are not in `heads`."""
        sequence, total = self._shape.sequence, self._shape.batch * self._shape.heads
        for some in around(heads, total):
            yield self._all_columns(range(some.start * sequence, some.stop * sequence))

    def _rows(self, head: int, positions: range) -> range:
        start = head * self._shape.sequence
        return range(start + positions.start, start + positions.stop)

    def _all_columns(self, rows: range) -> Part:
        return Part(rows=rows, columns=self._columns)

    def _even(self, head: int, positions: range, family: str) -> Iterator[range]:
        """The rows among these that weigh all keys nearly equally; outside the composite, all rows."""
        rows = self._rows(head, positions)
        if family != "composite":
            yield rows
            return
        start = head * self._shape.sequence
        for kind in self._even_rows:
            first = rows.start + (kind - (rows.start - start)) % COMPOSITE_PERIOD
            yield range(first, rows.stop, COMPOSITE_PERIOD)

    def _region(self, array: int, head: int, positions: range, columns: range, factor: float) -> Region:
        """The part of one head of q, k or v in the array's own axes; axes of size one are absent, as in Attention."""
        shape = self._shape
        heads = shape.heads if array == _Q else shape.kv_heads
        entry, head_index = divmod(head, heads)
        ranges: tuple[range, ...] = (positions, columns)
        if shape.batch > 1 or shape.heads > 1:
            ranges = (range(head_index, head_index + 1), *ranges)
        if shape.batch > 1:
            ranges = (range(entry, entry + 1), *ranges)
        return Region(array=array, ranges=ranges, factor=factor)


def middle_of(sequence: int, random: np.random.Generator) -> int:
    """The number of queries that count as first: a quarter to a half of all, ending within a block; 0 for one query."""
    return drawn_border(sequence, random, range(sequence // 4, sequence // 2 + 1)) if sequence > 1 else 0
