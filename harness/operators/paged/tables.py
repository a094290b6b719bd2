"""The page tables of paged attention: the sequences of a batch, their lengths, and the pages of their keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.records import Array

Ints = NDArray[np.int32]

# Kinds of contents that kernels mishandle, described in `draw`.
KINDS = (
    "any",
    "page-borders",
    "fresh",
    "full-table",
    "few-sequences",
    "whole-blocks",
    "shared-pages",
    "equal-lengths",
    "in-order",
)
# Kinds of batches that are not decode batches.
RAGGED = ("few-sequences", "whole-blocks")
# Kinds that the full shape gets besides the timed ones: the longest sequences, and the most regular lengths.
AT_FULL_SHAPE = ("full-table", "equal-lengths")
# The contents with the most work come first, because executed programs are checked against the first run's counts.
TIMED = ("mixed", "decode")
# Share of the sequences in a timed mixed batch that have one query; the last ones share the other queries.
_DECODING = 7 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The most that the arrays can hold; `is_decode`: every sequence has exactly one query, and none is left out."""

    tokens: int
    sequences: int
    pages: int
    page_size: int
    pages_per_sequence: int
    is_decode: bool

    @property
    def longest(self) -> int:
        """The number of keys that fit in the most pages that a sequence can have."""
        return self.pages_per_sequence * self.page_size

    @property
    def most_sequences(self) -> int:
        """The most sequences that a batch can have, each with at least one query."""
        return min(self.sequences, self.tokens)

    def arrays(self) -> tuple[Array, ...]:
        """The tables as inputs, with the range of their contents."""
        shapes: dict[str, tuple[tuple[int, ...], int, int]] = {
            "lengths" if self.is_decode else "kv_lens": ((self.sequences,), int(self.is_decode), self.longest)
        }
        shapes["page_indices"] = ((self.sequences, self.pages_per_sequence), 0, self.pages - 1)
        if not self.is_decode:
            shapes |= {"cu_q_lens": ((self.sequences + 1,), 0, self.tokens), "num_seqs": ((1,), 1, self.most_sequences)}
        return tuple(
            Array(name=name, shape=shape, dtype="int32", low=low, high=high)
            for name, (shape, low, high) in shapes.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """A sequence: `length` keys in `pages`, in order; its queries are rows `tokens` of q, and their keys come last."""

    tokens: range
    length: int
    pages: Ints

    @property
    def history(self) -> int:
        """The number of keys before the first query's key."""
        return self.length - len(self.tokens)

    def slots(self, page_size: int) -> tuple[Ints, NDArray[np.int64]]:
        """The page and the slot of each key of the sequence."""
        key = np.arange(self.length)
        return self.pages[key // page_size], key % page_size


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTables:
    """The tables as kernels get them: int32 [sequences], [sequences, pages_per_sequence], [sequences + 1], and a count.

    Only the first `count` rows of the first two tables, and the first `count` + 1 starts, have a meaning.
    """

    kv_lens: Ints
    page_indices: Ints
    cu_q_lens: Ints
    count: int

    def sequences(self, page_size: int) -> Iterator[Sequence]:
        """The sequences of the batch, in order."""
        for number in range(self.count):
            length = int(self.kv_lens[number])
            start, stop = self.cu_q_lens[number : number + 2].tolist()
            pages = self.page_indices[number, : -(-length // page_size)]
            yield Sequence(tokens=range(start, stop), length=length, pages=pages)


def timed(room: Room, kind: str) -> PageTables:
    """The tables of a timed batch; every call gives the same tables.

    decode: one query for each sequence. mixed: each of the last eighth of the sequences has many queries. Lengths are
    drawn uniformly from an eighth of the longest length to the longest length.
    """
    random = np.random.default_rng((room.sequences, room.longest, room.tokens))
    count = room.most_sequences
    queries = np.ones(count, np.int64)
    if kind == "mixed":
        prefilling = slice(min(count - 1, int(_DECODING * count)), None)
        queries[prefilling] += _split(room.tokens - count, count - prefilling.start)
        np.minimum(queries, room.longest, out=queries)
    lengths = random.integers(room.longest // 8, room.longest, count, endpoint=True)
    return _placed(room, queries, lengths, random)


def draw(room: Room, kind: str, random: np.random.Generator) -> PageTables:
    """Random tables of this kind. Pages are in random order, except in-order; unused entries hold any number in range.

    In half of the draws, runs of pages have successive numbers, which may be all pages of a sequence. Some
    neighbouring sequences are equally long in shared-pages and in half of the draws of any.

    - any: any lengths and numbers of queries.
    - page-borders: sequences, or their history, end at a border of a page or next to it.
    - fresh: no keys except those of the queries themselves, so that a single query has one key.
    - full-table: some sequences use every page that a sequence may use.
    - few-sequences: one or two sequences, with room for more.
    - whole-blocks: the first sequence has one query, so that the others begin inside a block; their numbers of queries
      are powers of two. The keys before their queries, or all their keys, fill whole pages.
    - shared-pages: sequences begin with the same pages.
    - equal-lengths: as many sequences as there can be, all with the same number of queries and of keys, about as many
      keys as fit in the pages.
    - in-order: the pages of all sequences, one sequence after another, have successive numbers.
    """
    most = room.most_sequences
    if kind == "equal-lengths":
        queries = np.full(most, 1 if room.is_decode else min(room.tokens // most, room.longest))
        longest = min(room.longest, room.pages // most * room.page_size)
        # The length is not a whole number of pages; otherwise a missing mask would go unnoticed.
        length = longest - int(random.integers(1, max(room.page_size, 2)))
        return _placed(room, queries, np.full(most, length), random, kind)
    few = min(most, 2) if kind == "few-sequences" else most
    count = most if room.is_decode else int(random.integers(1, few, endpoint=True))
    if kind == "whole-blocks":
        count = most
        queries = _whole_blocks(room, count, random)
    else:
        queries = _queries(room, count, random)
    lengths = random.integers(queries, room.longest, endpoint=True)
    if kind == "page-borders":
        near = random.integers(1, room.pages_per_sequence, count, endpoint=True) * room.page_size
        lengths = near + random.integers(-1, 2, count) + queries * random.integers(2, size=count)
    elif kind == "whole-blocks":
        whole = random.integers(room.pages_per_sequence, size=count, endpoint=True) * room.page_size
        lengths = whole + queries * random.integers(2, size=count)
    elif kind == "fresh":
        lengths = queries
    elif kind == "shared-pages" or (kind == "any" and random.random() < 0.5):
        make_pairs_equal(lengths, random)
    elif kind == "full-table":
        lengths[random.permutation(count)[: max(1, count // 3)]] = room.longest
    return _placed(room, queries, lengths, random, kind)


def _queries(room: Room, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The number of queries of each sequence: one for some, more for others; their sum is at most the rows of q."""
    queries = np.ones(count, np.int64)
    if room.is_decode:
        return queries
    left = room.tokens - count
    shares = random.random(count) * random.integers(2, size=count)
    if shares.any():
        more = left if random.random() < 0.5 else random.integers(left + 1)
        queries += random.multinomial(more, shares / shares.sum())
    return np.minimum(queries, room.longest)


def _whole_blocks(room: Room, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """One query for the first sequence; for each other, in random order, the largest power of two that still fits."""
    queries = np.ones(count, np.int64)
    left = room.tokens - count
    for place in 1 + random.permutation(count - 1):
        most = min(left + 1, room.longest)
        queries[place] = 1 << (most.bit_length() - 1)
        left -= int(queries[place]) - 1
    return queries


def _placed(
    room: Room,
    queries: NDArray[np.int64],
    lengths: NDArray[np.int64],
    random: np.random.Generator,
    kind: str | None = None,
) -> PageTables:
    """The tables of sequences with these numbers of queries and keys; with fewer keys if the pages do not suffice."""
    lengths = np.clip(lengths, queries, room.longest)
    needed = -(-lengths // room.page_size)
    while needed.sum() > room.pages:
        # Lengths shrink by whole pages, so that a sequence that ends at a border of a page still does.
        longest = int(np.argmax(np.where(lengths > queries, needed, 0)))
        lengths[longest] = max(queries[longest], lengths[longest] - room.page_size * max(1, needed[longest] // 2))
        needed = -(-lengths // room.page_size)
    count = len(lengths)
    starts = random.integers(room.tokens, size=room.sequences + 1, endpoint=True)
    starts[: count + 1] = [0, *np.cumsum(queries)]
    kv_lens = random.integers(room.longest, size=room.sequences, endpoint=True)
    kv_lens[:count] = lengths
    indices = random.integers(room.pages, size=(room.sequences, room.pages_per_sequence))
    if kind == "in-order":
        numbers = np.arange(room.pages) + random.integers(room.pages - needed.sum(), endpoint=True)
    elif kind is not None and random.random() < 0.5:
        numbers = shuffled_runs(room.pages, random)
    else:
        numbers = random.permutation(room.pages)
    pages = np.split(numbers[: needed.sum()], np.cumsum(needed)[:-1])
    for sequence_pages, row in zip(pages, indices[:count], strict=True):
        row[: len(sequence_pages)] = sequence_pages
    if kind == "shared-pages":
        share_pages(indices[:count], (lengths - queries) // room.page_size, random)
    return PageTables(
        kv_lens=kv_lens.astype(np.int32),
        page_indices=indices.astype(np.int32),
        cu_q_lens=starts.astype(np.int32),
        count=count,
    )


def make_pairs_equal(lengths: NDArray[Any], random: np.random.Generator) -> None:
    """Makes each second length equal to the one before it, in most pairs; the first pair is always equal."""
    is_equal = random.random(len(lengths) // 2) < 0.75
    is_equal[:1] = True
    lengths[1::2] = np.where(is_equal, lengths[: len(lengths) // 2 * 2 : 2], lengths[1::2])


def shuffled_runs(count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The numbers below `count` in runs of successive numbers; their mean length is drawn, and is often long."""
    runs = np.split(np.arange(count), np.flatnonzero(random.random(count - 1) < random.random() ** 2) + 1)
    return np.concatenate([runs[run] for run in random.permutation(len(runs))])


def share_pages(indices: NDArray[Any], whole: NDArray[np.int64], random: np.random.Generator) -> None:
    """Makes rows of `indices` begin with the pages of one row; only pages without the key of a query are shared.

    `whole` is, for each row, the number of pages that hold only keys from before the row's first query. The row with
    the most such pages provides the pages, and one other row takes as many of them as it can.
    """
    longest = int(np.argmax(whole))
    most = np.where(np.arange(len(whole)) == longest, 0, whole)
    shared = random.integers(most + 1)
    shared[np.argmax(most)] = most.max()
    for row, count in zip(indices, shared.tolist(), strict=True):
        row[:count] = indices[longest, :count]


def _split(total: int, parts: int) -> NDArray[np.int64]:
    """The total, split into parts that differ by at most one."""
    return total // parts + (np.arange(parts) < total % parts)
