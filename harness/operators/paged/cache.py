"""The layout of paged attention's cache: where the keys and values of a sequence lie in its arrays."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from harness.operators.paged.tables import Sequence as Paged
from harness.operators.probes import Region
from harness.operators.problem import Values
from harness.records import Array

_K, _NEWEST = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSlots:
    """Slots of one page, or rows of the newest tokens' array.

    `ranges` has the range of the page and the range of the slots, or the range of the tokens.
    """

    ranges: tuple[range, ...]
    is_newest: bool = False

    def some(self, turn: int, step: int) -> "CacheSlots":
        """Every `step`-th of the slots, from slot `turn` on."""
        return replace(self, ranges=(*self.ranges[:-1], self.ranges[-1][turn::step]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """The pages, which are the inputs from index `_K` on: one array or, if `is_split`, one of keys and one of values.

    One array is [pages, page_size, 2 kv_heads, head_dim], with keys at even heads; split arrays are [kv_heads, pages,
    page_size, head_dim]. `has_newest`: the next input, [tokens, 2 kv_heads, head_dim], has the keys and values of the
    tokens in q, and a call writes them to their slots.
    """

    pages: int
    page_size: int
    kv_heads: int
    head_dim: int
    is_split: bool
    has_newest: bool

    @property
    def _slots(self) -> tuple[int, int]:
        return self.pages, self.page_size

    def arrays(self, tokens: int, dtype: str) -> tuple[Array, ...]:
        """The cache's arrays among the inputs, for `tokens` rows of q."""
        if self.is_split:
            shape = (self.kv_heads, *self._slots, self.head_dim)
            return tuple(Array(name=name, shape=shape, dtype=dtype) for name in ("k_pages", "v_pages"))
        pages = Array(name="kv_pages", shape=(*self._slots, 2 * self.kv_heads, self.head_dim), dtype=dtype)
        newest = replace(pages, name="new_kv", shape=(tokens, *pages.shape[2:]))
        return (pages, newest) if self.has_newest else (pages,)

    def laid_out(self, k: Values, v: Values) -> tuple[Values, ...]:
        """The arrays of the pages, from keys and values, each `[pages, page_size, kv_heads, head_dim]`."""
        if self.is_split:
            return tuple(np.ascontiguousarray(array.transpose(2, 0, 1, 3)) for array in (k, v))
        return (np.stack((k, v), axis=3).reshape(*self._slots, 2 * self.kv_heads, self.head_dim),)

    def keys_and_values(self, *pages: Values) -> tuple[Values, Values]:
        """The inverse of `laid_out`."""
        if self.is_split:
            return pages[0].transpose(1, 2, 0, 3), pages[1].transpose(1, 2, 0, 3)
        return pages[0][:, :, ::2], pages[0][:, :, 1::2]

    def region(
        self, is_value: bool, kv_heads: range, place: CacheSlots, factor: float, columns: range | None = None
    ) -> Region:
        """The region of the keys, or of the values, that these heads have at `place`."""
        columns = columns or range(self.head_dim)
        if self.is_split:
            return Region(array=_K + is_value, ranges=(kv_heads, *place.ranges, columns), factor=factor)
        heads = range(2 * kv_heads.start + is_value, 2 * kv_heads.stop, 2)
        array = _NEWEST if place.is_newest else _K
        return Region(array=array, ranges=(*place.ranges, heads, columns), factor=factor)

    def everywhere(self, place: CacheSlots, of_keys: float, of_values: float) -> Iterator[Region]:
        """The regions of keys and values of all heads at `place`."""
        for is_value, factor in enumerate((of_keys, of_values)):
            yield self.region(bool(is_value), range(self.kv_heads), place, factor)

    def in_pages(self, sequence: Paged) -> int:
        """The number of a sequence's keys that a call finds in its pages."""
        return sequence.history if self.has_newest else sequence.length

    def parts(self, sequence: Paged, keys: range) -> Iterator[CacheSlots]:
        """The slots of these keys of a sequence, page by page."""
        size, end = self.page_size, min(keys.stop, self.in_pages(sequence))
        for number in range(keys.start // size, -(-end // size)):
            page = int(sequence.pages[number])
            slots = range(max(keys.start - number * size, 0), min(end - number * size, size))
            yield CacheSlots(ranges=(range(page, page + 1), slots))
        first = max(keys.start, end)
        if first < keys.stop:
            start = sequence.tokens.start - sequence.history
            yield CacheSlots(ranges=(range(start + first, start + keys.stop),), is_newest=True)
