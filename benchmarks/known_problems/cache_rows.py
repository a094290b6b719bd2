"""Rows of new keys and values, written into the pages of a cache: pieces of a page each, as a table says."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.records import Array

TOKENS, HEADS, HEAD_DIM, PAGES, PAGE_SIZE, PIECES = 128, 4, 128, 32, 32, 16
CHIP = "v6e"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRows(Formula):
    """Y: CACHE [pages page_size, heads, head_dim] with rows of NEW [tokens, heads, head_dim] in it, to the bit.

    Column j below COUNT of SLICES [3, pieces] is (first row of the cache, first row of NEW, rows): each piece lies in a
    page, and no two overlap.
    """

    operation = "cache_rows"
    timed = ("even",)
    tokens: int
    heads: int = field(metadata=axis(few=2))
    head_dim: int
    pages: int = field(metadata=axis(shortest=24))
    page_size: int
    pieces: int
    dtype: str = "bfloat16"

    def arrays(self):
        rows = self.pages * self.page_size
        new = Array(name="new", shape=(self.tokens, self.heads, self.head_dim), dtype=self.dtype)
        cache = replace(new, name="cache", shape=(rows, self.heads, self.head_dim))
        slices = Array(name="slices", shape=(3, self.pieces), dtype="int32", low=0, high=max(rows, self.tokens))
        count = Array(name="count", shape=(1,), dtype="int32", low=1, high=self.pieces)
        return (new, slices, cache, count), (replace(cache, name="y"),)

    def exact(self):
        return ("y",)

    def tables(self, family, random):
        count = self.pieces if family in self.timed else int(random.integers(1, self.pieces + 1))
        each = self.tokens // count
        most = min(each, self.page_size)
        lengths = np.full(count, most) if family in self.timed else random.integers(1, most + 1, count)
        starts = np.cumsum(lengths) - lengths
        inside = [int(random.integers(self.page_size - length + 1)) for length in lengths]
        pages = random.permutation(self.pages)[:count]
        slices = np.zeros((3, self.pieces), np.int32)
        slices[:, :count] = pages * self.page_size + inside, starts, lengths
        return {"slices": slices, "count": np.array([count], np.int32)}

    def formula(self, in_bfloat16, new, slices, cache, count):
        y = np.array(cache)
        for place, start, rows in slices.T[: count[0]]:
            y[place : place + rows] = new[start : start + rows]
        return y


def problem():
    return CacheRows(tokens=TOKENS, heads=HEADS, head_dim=HEAD_DIM, pages=PAGES, page_size=PAGE_SIZE, pieces=PIECES)
