"""Probes of paged attention: which slots of the cache and which queries each output depends on."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.operators.attention.inputs import COMPOSITE_PERIOD, even_rows
from harness.operators.attention.probes import DRAWN_TO, ENOUGH_KEYS, LOUD, LOUDNESSES, middle_of
from harness.operators.blocks import around, drawn_block, spans
from harness.operators.paged.cache import Cache, CacheSlots
from harness.operators.paged.tables import Sequence as Paged
from harness.operators.probes import Part, Probe, Region, probe

_Q = 0


def probes(
    cache: Cache, rows: int, heads: int, sequences: Sequence[Paged], seeds: Sequence[int], family: str, seed: int
) -> tuple[Probe, ...]:
    """The probes of a shape.

    The full shape (the composite family) has one probe, of all values of a head. A reduced shape also has probes of
    queries, keys and slots. `seeds` are the seeds of the sequences' values; no two sequences may have a page in common.
    """
    random = np.random.default_rng(np.random.SeedSequence((seed, rows, cache.pages)))
    drawn = _Drawn(cache, rows, heads, sequences, family, random)
    if family == "composite":
        return (drawn.values(seeds),)
    drawn_probes = (drawn.values(seeds), drawn.one_sequence(), drawn.queries(), drawn.future())
    return tuple(drawn_probe for drawn_probe in drawn_probes if drawn_probe.moves)


class _Drawn:
    """Probes of some sequences, with heads, blocks and sequences drawn at random."""

    def __init__(
        self, cache: Cache, rows: int, heads: int, sequences: Sequence[Paged], family: str, random: np.random.Generator
    ) -> None:
        self._cache = cache
        self._tokens = rows
        self._heads = heads
        self._sequences = sequences
        self._family = family
        self._random = random

    def values(self, seeds: Sequence[int]) -> Probe:
        """A probe of all values of one key/value head, each block of keys of a sequence in different columns."""
        cache, random = self._cache, self._random
        kv_head = int(random.integers(cache.kv_heads))
        group = self._heads // cache.kv_heads
        readers = range(kv_head * group, (kv_head + 1) * group)
        regions: list[Region] = []
        moves: list[Part] = []
        stays = [self._part(range(self._tokens), head) for head in range(self._heads) if head not in readers]
        for sequence, own_seed in zip(self._sequences, seeds, strict=False):
            # Blocks of half a page, so that a page that is left out contains a whole block; their borders are drawn.
            size = max(-(-cache.page_size // 2), -(-sequence.length // (cache.head_dim - 1)))
            edges = [0, *range(int(random.integers(1, size + 1)), sequence.length, size), sequence.length]
            blocks = [block for block in spans(edges) if block]
            cuts = [place * cache.head_dim // len(blocks) for place in range(len(blocks) + 1)]
            for keys, columns in zip(blocks, spans(cuts), strict=True):
                for place in cache.parts(sequence, keys):
                    for turn, factor in enumerate(LOUDNESSES[: len(place.ranges[-1])]):
                        some = place.some(turn, len(LOUDNESSES))
                        regions.append(cache.region(True, range(kv_head, kv_head + 1), some, factor, columns))
                first = sequence.tokens.start + max(0, keys.start - sequence.history)
                seeing = range(first, sequence.tokens.stop)
                for head in readers:
                    moves += [self._part(tokens, head, columns) for tokens in self._even(sequence, seeing, own_seed)]
                    stays.append(self._part(range(sequence.tokens.start, first), head, columns))
        name = f"values of key/value head {kv_head}, each half page of each sequence in columns of its own,"
        return probe(name, self._family, regions, moves, stays)

    def one_sequence(self) -> Probe:
        """A probe of all keys and values of one sequence, and of slots and rows that belong to no sequence."""
        cache = self._cache
        number = int(self._random.integers(len(self._sequences)))
        sequence = self._sequences[number]
        regions = [
            region
            for place in cache.parts(sequence, range(sequence.length))
            for region in cache.everywhere(place, -1.0, LOUD)
        ]
        for page, used in enumerate(self._used().tolist()):
            if used < cache.page_size:
                slots = CacheSlots(ranges=(range(page, page + 1), range(used, cache.page_size)))
                regions += cache.everywhere(slots, DRAWN_TO, LOUD)
        end = self._sequences[-1].tokens.stop
        if end < self._tokens:
            ranges = (range(end, self._tokens), range(self._heads), range(cache.head_dim))
            regions.append(Region(array=_Q, ranges=ranges, factor=DRAWN_TO))
            if cache.has_newest:
                regions += cache.everywhere(CacheSlots(ranges=ranges[:1], is_newest=True), DRAWN_TO, LOUD)
        name, tokens = f"keys and values of sequence {number}, and what no sequence has,", sequence.tokens
        return probe(name, self._family, regions, [self._all_heads(tokens)], self._other_tokens(tokens))

    def queries(self) -> Probe:
        """A probe of one block of queries."""
        block = drawn_block(self._tokens, self._random)
        moves = []
        for sequence in self._sequences:
            # With enough keys, a change of the query moves the output by far more than any rounding.
            first = sequence.tokens.start + max(0, ENOUGH_KEYS - 1 - sequence.history)
            moves.append(self._all_heads(range(max(block.start, first), min(block.stop, sequence.tokens.stop))))
        ranges = (block, range(self._heads), range(self._cache.head_dim))
        name, region = f"queries {block.start} to {block.stop - 1}", Region(array=_Q, ranges=ranges, factor=-1.0)
        return probe(name, self._family, [region], moves, self._other_tokens(block))

    def future(self) -> Probe:
        """A probe of all keys and values of every sequence that its first queries must not see."""
        regions: list[Region] = []
        moves: list[Part] = []
        stays: list[Part] = []
        for sequence in self._sequences:
            tokens = sequence.tokens
            middle = middle_of(len(tokens), self._random)
            stays.append(self._all_heads(tokens[:middle] if middle else tokens))
            if middle:
                for place in self._cache.parts(sequence, range(sequence.history + middle, sequence.length)):
                    regions += self._cache.everywhere(place, DRAWN_TO, LOUD)
                # A row that sees only one or two changed keys may give them hardly any weight, before and after.
                moves.append(self._all_heads(tokens[middle + ENOUGH_KEYS :]))
        return probe("keys and values of each sequence's later queries", self._family, regions, moves, stays)

    def _used(self) -> NDArray[np.int64]:
        """`[pages]`: the number of slots of each page that a sequence reads."""
        used = np.zeros(self._cache.pages, np.int64)
        for sequence in self._sequences:
            for place in self._cache.parts(sequence, range(self._cache.in_pages(sequence))):
                page, slots = place.ranges
                used[page.start] = slots.stop
        return used

    def _even(self, sequence: Paged, tokens: range, seed: int) -> Iterator[range]:
        """The tokens among these that weigh all keys nearly equally; outside the composite, all."""
        if self._family != "composite":
            yield tokens
            return
        for kind in even_rows(len(sequence.tokens), seed):
            first = tokens.start + (kind - (tokens.start - sequence.tokens.start)) % COMPOSITE_PERIOD
            yield range(first, tokens.stop, COMPOSITE_PERIOD)

    def _part(self, tokens: range, head: int, columns: range | None = None) -> Part:
        """The rows of one head at these tokens."""
        heads = self._heads
        rows = range(tokens.start * heads + head, tokens.stop * heads, tokens.step * heads)
        return Part(rows=rows, columns=columns or range(self._cache.head_dim))

    def _all_heads(self, tokens: range) -> Part:
        rows = range(tokens.start * self._heads, tokens.stop * self._heads)
        return Part(rows=rows, columns=range(self._cache.head_dim))

    def _other_tokens(self, tokens: range) -> list[Part]:
        """All rows of all tokens except these."""
        return [self._all_heads(part) for part in around(tokens, self._tokens)]
