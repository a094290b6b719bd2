"""Rows of new keys and values, written into the pages of a cache in pieces that a table lists."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.operators.axes import axis
from harness.operators.exact import any_finite, numpy_dtype
from harness.operators.fields import require
from harness.operators.formula import Formula, Rounds
from harness.operators.problem import Values
from harness.operators.space import generator
from harness.records import Array, Statement, Work

_IN_ORDER, _WRITTEN_BEFORE, _PATTERNS = "in-order", "written-before", "patterns"
# The share of rows of a composite that hold any finite numbers.
_PATTERNS_SHARE = 0.125


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRows(Formula):
    """Y = CACHE [pages page_size, heads, head_dim] with rows of NEW [tokens, heads, head_dim] copied into it.

    Y shares the memory of CACHE, so only these rows have to be moved. SLICES [3, pieces] has a column for each piece:
    its first row in the cache, its first row in NEW, its number of rows. Only the first COUNT columns are pieces;
    the others may hold anything. Each piece has one row or more, in a page of its own. Pieces may be in any order in
    NEW.
    """

    operation = "cache_rows"
    timed = ("even",)
    own_families = (*Formula.own_families, _IN_ORDER, _WRITTEN_BEFORE, _PATTERNS)
    tokens: int
    heads: int = field(metadata=axis(few=2))
    head_dim: int
    pages: int = field(metadata=axis(shortest=24))
    page_size: int
    pieces: int = field(metadata=axis(shortest=16, along="pages"))
    dtype: str = "bfloat16"

    def require_fields(self) -> None:
        """Raises UsageError `bad-problem` if a size is invalid, or if there are more pieces than pages or new rows."""
        Formula.require_fields(self)
        words = f"expected pieces to be at most pages ({self.pages}) and at most tokens ({self.tokens})"
        fits = self.pieces <= min(self.pages, self.tokens)
        require(self.operation, fits, f"{words}, got {self.pieces}: each piece lies in a page of its own")

    def arrays(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The inputs NEW, SLICES, CACHE and COUNT [1], and the output Y, of the shape and dtype of CACHE."""
        rows = self.pages * self.page_size
        new = Array(name="new", shape=(self.tokens, self.heads, self.head_dim), dtype=self.dtype)
        cache = replace(new, name="cache", shape=(rows, self.heads, self.head_dim))
        slices = Array(name="slices", shape=(3, self.pieces), dtype="int32", low=0, high=max(rows, self.tokens))
        count = Array(name="count", shape=(1,), dtype="int32", low=1, high=self.pieces)
        return (new, slices, cache, count), (replace(cache, name="y"),)

    def statement(self) -> Statement:
        """As in a Formula, with Y in the memory of CACHE."""
        return replace(Formula.statement(self), overwrites=("cache",))

    def work(self) -> Work:
        """One operation per element of the timed call's rows; the rows are read and written, and the tables read."""
        elements = int(self.timing_inputs()["even"]["slices"][2].sum()) * self.heads * self.head_dim
        moved = 2 * elements * numpy_dtype(self.dtype).itemsize + 4 * (3 * self.pieces + 1)
        return Work(matmul_flops=0, vector_flops=elements, minimum_hbm_bytes=moved)

    def exact(self) -> tuple[str, ...]:
        """The name of Y, which is copied without rounding."""
        return ("y",)

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """As in a Formula, with three more families.

        in-order: see `tables`. written-before: the cache holds some rows of some pieces already, such as the first, but
        never all rows of a piece; in drawn families and the composite, too. patterns: NEW and CACHE hold any finite
        numbers of the dtype, of all magnitudes, as some rows of the composite do.
        """
        new, slices, cache, count = Formula.make_inputs(self, family, seed)
        random = generator(f"rows of {family}", seed)
        if family in (_PATTERNS, "composite"):
            share = 1 if family == _PATTERNS else _PATTERNS_SHARE
            new, cache = (
                np.where(random.random((len(rows), 1, 1)) < share, any_finite(rows, random), rows)
                for rows in (new, cache)
            )
        if family == _WRITTEN_BEFORE or family not in (*self.timed, *self.own_families):
            cache = self._written_before(new, slices[:, : count[0]], cache, random)
        return new, slices, cache, count

    def _written_before(self, new: Values, slices: Values, cache: Values, random: np.random.Generator) -> Values:
        """A copy of `cache` that already holds some new rows, but not all rows of any piece.

        From each piece it holds a random choice of three rows: the first, the last and one at a random place.
        """
        cache = cache.copy()
        for place, start, rows in slices.T.tolist():
            some = np.array([0, rows - 1, random.integers(rows)])[random.integers(2, size=3) == 1]
            if len(set(some.tolist())) < rows:
                cache[place + some] = new[start + some]
        return cache

    def tables(self, family: str, random: np.random.Generator) -> dict[str, Values]:
        """Pieces of new rows, each in a page of its own; in the timed call, equally long and without gaps in NEW.

        In the family in-order, pieces also fill the beginnings of successive pages. In all other calls their lengths
        differ widely, and the columns beyond COUNT hold pieces too. Runs of pieces then lie in successive pages, and
        other runs follow each other in NEW. Some pieces end or begin with their page, so that some follow each other
        in the cache but not in NEW, some in NEW but not in the cache, and some in both.
        """
        is_even = family in (*self.timed, _IN_ORDER)
        count = self.pieces if is_even else int(random.integers(1, self.pieces + 1))
        lengths = np.full(count, self.tokens // count) if is_even else self._lengths(count, random)
        lengths = np.minimum(lengths, self.page_size)
        starts = np.cumsum(lengths) - lengths
        inside = [int(random.integers(self.page_size - length + 1)) for length in lengths]
        pages = random.permutation(self.pages)[:count]
        if family == _IN_ORDER:
            pages, inside = np.arange(count), [0] * count
        slices = np.zeros((3, self.pieces), np.int32)
        if not is_even:
            starts, pages = _in_runs(lengths, self.tokens, random), _in_runs(np.ones(count, int), self.pages, random)
            is_at_border = random.random(count) < random.choice([0.25, 1])
            inside = np.where(is_at_border, np.where(pages % 2, 0, self.page_size - lengths), inside).tolist()
            rest = self.pieces - count
            slices[:, count:] = (
                random.integers(self.pages, size=rest) * self.page_size,
                random.integers(self.tokens, size=rest),
                np.ones(rest, int),
            )
        slices[:, :count] = pages * self.page_size + inside, starts, lengths
        return {"slices": slices, "count": np.array([count], np.int32)}

    def _lengths(self, count: int, random: np.random.Generator) -> Values:
        """Lengths of 1 or more, a few far longer than the others; their sum is at most the number of new rows."""
        left = self.tokens - count
        more = left if random.random() < 0.5 else int(random.integers(left + 1))
        shares = random.random(count) ** 4
        return 1 + random.multinomial(more, shares / shares.sum())

    def formula(self, in_bfloat16: Rounds, *inputs: Any) -> Any:
        """`[pages page_size, heads, head_dim]`: the cache with the pieces in it."""
        new, slices, cache, count = inputs
        y = np.array(cache)
        for place, start, rows in slices.T[: count[0]]:
            y[place : place + rows] = new[start : start + rows]
        return y


def _in_runs(lengths: Values, room: int, random: np.random.Generator) -> Values:
    """The starts of spans of these lengths in `room`: runs of spans follow each other, in any order and with gaps."""
    runs = np.split(np.arange(len(lengths)), np.flatnonzero(random.random(len(lengths) - 1) < 0.5) + 1)
    turned = [runs[run] for run in random.permutation(len(runs))]
    gaps = np.sort(random.integers(room - lengths.sum() + 1, size=len(runs)))
    order, starts = np.concatenate(turned), np.empty(len(lengths), np.int64)
    starts[order] = np.cumsum(lengths[order]) - lengths[order] + np.repeat(gaps, [len(run) for run in turned])
    return starts
