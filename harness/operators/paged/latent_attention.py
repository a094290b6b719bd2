"""Latent attention over pages, as a server calls it: the latents and rotary keys of new tokens enter a cache first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.operators import group_sizes
from harness.operators.axes import axis
from harness.operators.fields import require, require_flag, require_positive
from harness.operators.formula import Formula, Rounds
from harness.operators.paged.tables import make_pairs_equal, share_pages, shuffled_runs
from harness.operators.problem import Values
from harness.operators.space import generator
from harness.records import Array, Statement, Work

_MOST = 64
# The families that a Formula does not have: see `make_inputs`.
_SHARED, _IN_ORDER, _EQUAL, _FAR_BELOW = "shared-pages", "in-order", "equal-lengths", "far-below"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention(Formula):
    """O [tokens, heads, latent] of queries Q and Q_ROPE; writes to CACHE [pages, page_size / 2, 2, latent + padded].

    Sequence i has the tokens from STARTS[i] on, LENS[i] keys including those of its tokens, and the pages that AT lists
    from i pages_per_sequence on. There are COUNTS[2] sequences, which together have all tokens. The first COUNTS[0]
    have one token each; if there are as many tokens as sequences, all have one. First the LATENTS and ROTARY of a
    sequence's tokens, filled up with zeros to the padded width, are written to its last slots. Then each head of a
    token attends to the keys up to the token's own: O is the sum of their latents, weighted by softmax(scale * (q .
    latent + q_rope . rotary)). Inputs are from -64 to 64; no zero is negative, because a kernel need not keep a zero's
    sign.

    heads_first: Q and O are [heads, tokens, latent]. lengths_of: all lengths are multiples of this number; if it is 2,
    no call has a free slot that shares a 32-bit word with the newest key.
    """

    operation = "latent_attention"
    own_families = ("normal", "small", "spikes", _SHARED, _IN_ORDER, _EQUAL, _FAR_BELOW)
    tokens: int
    sequences: int
    heads: int
    latent: int
    rope: int
    padded: int
    pages: int
    page_size: int
    pages_per_sequence: int = field(metadata=axis(shortest=2, is_uneven=True))
    scale: float
    heads_first: bool = False
    lengths_of: int = 1
    dtype: str = "bfloat16"

    def require_fields(self) -> None:
        """Raises UsageError `bad-problem` if a size or the scale is invalid, or if there is no room for all keys."""
        Formula.require_fields(self)
        require_positive(self.operation, "scale", self.scale)
        require_flag(self.operation, "heads_first", self.heads_first)
        least = {
            "tokens": self.sequences,
            "padded": self.rope,
            "pages": self.sequences * self.pages_per_sequence,
            "pages_per_sequence": self.shortest("pages_per_sequence"),
        }
        for name, value in least.items():
            got = getattr(self, name)
            require(self.operation, got >= value, f"expected {name} of at least {value}, got {got}")
        require(self.operation, self.page_size % 2 == 0, f"expected an even page_size, got {self.page_size}")

    @property
    def timed(self) -> tuple[str, ...]:  # type: ignore[override]
        """The kind of timed call: `decode` if each sequence has one token, `mixed` if one sequence has many tokens."""
        return ("decode",) if self.sequences == self.tokens else ("mixed",)

    def shortest(self, name: str) -> int:
        """The stated shortest length, or a longer one if the tokens of one sequence may need more pages."""
        return max(Formula.shortest(self, name), -(-(self.tokens - self.sequences + 1) // self.page_size))

    def following(self, small: Mapping[str, Any]) -> dict[str, Any]:
        """The number of pages: as many as the sequences of a smaller shape need, and up to one more for each."""
        spare = self.pages - self.sequences * self.pages_per_sequence
        return {"pages": self.sequences * small["pages_per_sequence"] + min(spare, self.sequences)}

    def arrays(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The queries, the newest keys, the cache and the int32 tables; O has the shape of Q."""
        by_head = (self.heads, self.tokens) if self.heads_first else (self.tokens, self.heads)
        q = Array(name="q", shape=(*by_head, self.latent), dtype=self.dtype)
        cache = (self.pages, self.page_size // 2, 2, self.latent + self.padded)
        longest = self.pages_per_sequence * self.page_size
        lens = Array(name="lens", shape=(self.sequences,), dtype="int32", low=1, high=longest)
        inputs = (
            q,
            replace(q, name="q_rope", shape=(self.tokens, self.heads, self.rope)),
            replace(q, name="latents", shape=(self.tokens, self.latent)),
            replace(q, name="rotary", shape=(self.tokens, self.rope)),
            replace(q, name="cache", shape=cache),
            lens,
            replace(lens, name="at", shape=(self.sequences * self.pages_per_sequence,), low=0, high=self.pages - 1),
            replace(lens, name="starts", shape=(self.sequences + 1,), low=0, high=self.tokens),
            replace(lens, name="counts", shape=(3,), low=0, high=self.sequences),
        )
        return inputs, (replace(q, name="o"),)

    def statement(self) -> Statement:
        return replace(Formula.statement(self), updates=("cache",))

    def _keys(self) -> int:
        """The number of keys of all sequences in the timed call."""
        return int(self.timing_inputs()[self.timed[0]]["lens"].sum())

    def matmul_flops(self) -> int:
        """The FLOPs of scores and of weighted sums, for each token with the keys that it sees."""
        tables = self.timing_inputs()[self.timed[0]]
        queries, lengths = np.diff(tables["starts"]).tolist(), tables["lens"].tolist()
        pairs: int = sum(many * length - many * (many - 1) // 2 for many, length in zip(queries, lengths, strict=True))
        return 2 * self.heads * (2 * self.latent + self.rope) * pairs

    def work(self) -> Work:
        """As in a Formula, but each key is read once instead of the whole cache."""
        work = Formula.work(self)
        unread = self.pages * self.page_size * (self.latent + self.padded) - self._keys() * (self.latent + self.rope)
        return replace(work, minimum_hbm_bytes=work.minimum_hbm_bytes - 2 * unread)

    def domain(self, name: str, values: Any) -> Any:
        """`values` limited to -64 to 64, without negative zeros; in the cache, the padding is zero."""
        values = values.clip(-_MOST, _MOST) + np.float32(0)
        if name == "cache":
            values[..., self.latent + self.rope :] = 0
        return values

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """As in a Formula, with four more families.

        shared-pages: some sequences begin with the same pages, as they also may in drawn families and the composite.
        in-order: the pages of all sequences, one sequence after another, have successive numbers. equal-lengths: all
        sequences have the same length, and their numbers of tokens differ by at most one. The length is not a whole
        number of pages, unless `lengths_of` is the size of a page.
        far-below: all scores of a query are as far below zero as the inputs allow; for some queries, as far above.
        """
        inputs = Formula.make_inputs(self, family, seed)
        if family != _FAR_BELOW:
            return inputs
        signs = generator(family, seed).choice([-_MOST, -_MOST, -_MOST, _MOST], (self.tokens, self.heads, 1))
        q = signs.swapaxes(0, 1) if self.heads_first else signs
        # Slots that the call must overwrite hold other numbers.
        stale = (np.full(array.shape, -_MOST, array.dtype) for array in inputs[2:4])
        cache = self.domain("cache", np.full(inputs[4].shape, _MOST, np.float32))
        values = (q, signs, _MOST, _MOST, self._written(*stale, cache, *inputs[5:]))
        pairs = zip(values, inputs[:5], strict=True)
        return (*(np.broadcast_to(value, array.shape).astype(array.dtype) for value, array in pairs), *inputs[5:])

    def tables(self, family: str, random: np.random.Generator) -> dict[str, Values]:
        """Sequences of any length in any pages; in the timed call, lengths are at least half of the longest.

        Pages that sequences have in common hold only keys from before the call. Entries after a sequence's last page
        hold any number in range. In the timed call the last sequence has all tokens that are left; in other calls
        several may have many, and there may be fewer sequences than the tables have room for. In half of these calls,
        runs of pages have successive numbers; in as many, some neighbouring sequences are equally long.
        """
        longest = self.pages_per_sequence * self.page_size
        queries = np.ones(self.sequences, np.int32)
        count = self.sequences
        if self.sequences < self.tokens:
            queries[-1] = most = self.tokens - self.sequences + 1
            if family == _EQUAL:
                queries = np.sort(group_sizes.equal(self.tokens, self.sequences))
            elif family not in self.timed:
                queries, count = self._queries(most, random)
        lens = random.integers(longest // 2 if family in self.timed else 1, longest + 1, self.sequences)
        if family == _EQUAL:
            # The length is not a whole number of pages; otherwise a missing mask would go unnoticed.
            lens[:] = longest - self.lengths_of * random.integers(1, max(self.page_size // self.lengths_of, 2))
        elif family not in self.timed and random.integers(2):
            make_pairs_equal(lens, random)
        lens = -(-np.maximum(lens, queries) // self.lengths_of) * self.lengths_of
        decoding = int(np.argmax(np.append(queries, 0) != 1))
        pages = random.permutation(self.pages)[: self.sequences * self.pages_per_sequence]
        if family not in (*self.timed, _IN_ORDER) and random.integers(2):
            pages = shuffled_runs(self.pages, random)[: len(pages)]
        if family == _IN_ORDER:
            pages = np.arange(len(pages)) + random.integers(self.pages - len(pages), endpoint=True)
        at = pages.reshape(self.sequences, self.pages_per_sequence)
        if family not in self.timed:
            is_used = np.arange(self.pages_per_sequence) * self.page_size < lens[:, None]
            at = np.where(is_used, at, random.integers(self.pages, size=at.shape))
            if family == _SHARED or (family not in self.own_families and random.integers(2)):
                share_pages(at, (lens - queries) // self.page_size, random)
        return {
            "lens": lens.astype(np.int32),
            "at": at.reshape(-1).astype(np.int32),
            "starts": np.concatenate([[0], np.cumsum(queries)]).astype(np.int32),
            "counts": np.array([decoding, decoding, count], np.int32),
        }

    def _queries(self, most: int, random: np.random.Generator) -> tuple[Values, int]:
        """The number of tokens of each sequence (first 1s, then up to `most`), and how many sequences have tokens."""
        count = self.sequences - int(random.integers(self.sequences // 4 + 1))
        left = self.tokens - count
        several = max(int(random.integers(1, count + 1)), -(-left // (most - 1)))
        if several > count:
            count, left, several = self.sequences, self.tokens - self.sequences, 1
        queries = np.zeros(self.sequences, np.int32)
        queries[:count] = 1
        for place in range(count - several, count):
            rest = (count - 1 - place) * (most - 1)
            more = int(random.integers(max(0, left - rest), min(most - 1, left), endpoint=True))
            queries[place] += more
            left -= more
        return queries, count

    def _slots(self, lens: Any, at: Any, starts: Any, counts: Any) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
        """Yields each sequence's first token, end of tokens, and the indices of its keys in the cache."""
        for sequence in range(counts[2]):
            places = np.arange(lens[sequence])
            pages = at[sequence * self.pages_per_sequence + places // self.page_size]
            inside = places % self.page_size
            yield starts[sequence], starts[sequence + 1], (pages, inside // 2, inside % 2)

    def _written(self, latents: Any, rotary: Any, cache: Any, *tables: Any) -> Any:
        cache, width = np.array(cache, subok=True), self.latent + self.rope
        for start, end, slots in self._slots(*tables):
            newest = tuple(places[len(places) - (end - start) :] for places in slots)
            cache[(*newest, slice(self.latent))] = latents[start:end]
            cache[(*newest, slice(self.latent, width))] = rotary[start:end]
            cache[(*newest, slice(width, None))] = 0
        return cache

    def new_state(self, inputs: Sequence[Values]) -> tuple[Values, ...]:
        """The cache with the newest keys in it."""
        return (self._written(*inputs[2:]),)

    def formula(self, in_bfloat16: Rounds, *inputs: Any) -> Any:
        """O, computed token by token."""
        q, q_rope, latents, rotary, cache, *tables = inputs
        cache = self._written(latents, rotary, cache, *tables)
        q = q.swapaxes(0, 1) if self.heads_first else q
        o = 0 * q
        for start, end, slots in self._slots(*tables):
            keys = cache[slots]
            values, turned = keys[:, : self.latent], keys[:, self.latent : self.latent + self.rope]
            for token in range(start, end):
                visible = len(keys) - (end - 1 - token)
                scores = self.scale * (q[token] @ values[:visible].T + q_rope[token] @ turned[:visible].T)
                weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
                total = np.sum(weights, axis=-1, keepdims=True)
                o[token] = (in_bfloat16(weights) @ values[:visible]) / total
        return o.swapaxes(0, 1) if self.heads_first else o
