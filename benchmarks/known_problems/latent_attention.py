"""Latent attention over pages, as a server calls it: a token's latent and rotary key go to a cache first."""

from dataclasses import dataclass, field, replace

import numpy as np

from harness.operators.axes import axis
from harness.operators.formula import Formula
from harness.operators.problem import Values
from harness.records import Array

TOKENS = 16
SEQUENCES = 16
HEADS = 16
LATENT, ROPE, PADDED = 256, 64, 128
PAGES, PAGE_SIZE, EACH = 128, 32, 6
# True: the queries' latent part and O are [heads, tokens, latent].
HEADS_FIRST = False
# All lengths are multiples of it. 2: nothing is promised of the slot that shares a word with the newest key.
LENGTHS_OF = 1
SCALE = 0.1
CHIP = "v6e"
_MOST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention(Formula):
    """O [tokens, heads, latent] of queries Q and Q_ROPE; the CACHE [pages, page_size / 2, 2, latent + padded] changes.

    Sequence i has the tokens from STARTS[i] on, LENS[i] keys with them, and the pages AT[i each ...]. There are
    COUNTS[2] of them; the first COUNTS[0] have one token. First a sequence's last slots get its tokens' LATENTS and
    ROTARY, and zeros up to the padding. Then each token's heads see the keys up to its own: with weights
    softmax(scale (q latent + q_rope rotary)), O is the sum of the latents. Inputs are from -64 to 64; no zero is
    negative, as nothing is promised of a zero's sign.
    """

    operation = "latent_attention"
    own_families = ("normal", "small", "spikes")
    tokens: int
    sequences: int
    heads: int
    latent: int
    rope: int
    padded: int
    pages: int = field(metadata=axis(shortest=96))
    page_size: int
    each: int
    heads_first: bool
    lengths_of: int
    scale: float
    dtype: str = "bfloat16"

    @property
    def timed(self):
        return ("decode",) if self.sequences == self.tokens else ("mixed",)

    def arrays(self):
        by_head = (self.heads, self.tokens) if self.heads_first else (self.tokens, self.heads)
        q = Array(name="q", shape=(*by_head, self.latent), dtype=self.dtype)
        cache = (self.pages, self.page_size // 2, 2, self.latent + self.padded)
        lens = Array(
            name="lens", shape=(self.sequences,), dtype="int32", low=1, high=min(self.each, self.pages) * self.page_size
        )
        inputs = (
            q,
            replace(q, name="q_rope", shape=(self.tokens, self.heads, self.rope)),
            replace(q, name="latents", shape=(self.tokens, self.latent)),
            replace(q, name="rotary", shape=(self.tokens, self.rope)),
            replace(q, name="cache", shape=cache),
            lens,
            replace(lens, name="at", shape=(self.sequences * self.each,), low=0, high=self.pages - 1),
            replace(lens, name="starts", shape=(self.sequences + 1,), low=0, high=self.tokens),
            replace(lens, name="counts", shape=(3,), low=0, high=self.sequences),
        )
        return inputs, (replace(q, name="o"),)

    def statement(self):
        return replace(Formula.statement(self), updates=("cache",))

    def _keys(self):
        """Keys of all sequences in the timed call."""
        return int(self.timing_inputs()[self.timed[0]]["lens"].sum())

    def matmul_flops(self):
        return 2 * self.heads * (2 * self.latent + self.rope) * self._keys()

    def work(self):
        """Each key once, not the whole cache."""
        work = Formula.work(self)
        unread = self.pages * self.page_size * (self.latent + self.padded) - self._keys() * (self.latent + self.rope)
        return replace(work, minimum_hbm_bytes=work.minimum_hbm_bytes - 2 * unread)

    def domain(self, name, values):
        values = values.clip(-_MOST, _MOST) + np.float32(0)
        if name == "cache":
            values[..., self.latent + self.rope :] = 0
        return values

    def tables(self, family, random):
        longest = self.each * self.page_size
        queries = np.ones(self.sequences, np.int32)
        if self.sequences < self.tokens:
            queries[-1] = self.tokens - self.sequences + 1
        lens = random.integers(longest // 2 if family in self.timed else 1, longest + 1, self.sequences)
        lens = -(-np.maximum(lens, queries) // self.lengths_of) * self.lengths_of
        decoding = np.count_nonzero(queries == 1)
        return {
            "lens": lens.astype(np.int32),
            "at": random.permutation(self.pages)[: self.sequences * self.each].astype(np.int32),
            "starts": np.concatenate([[0], np.cumsum(queries)]).astype(np.int32),
            "counts": np.array([decoding, decoding, self.sequences], np.int32),
        }

    def _slots(self, lens, at, starts, counts):
        """First token, end, and pages, halves and places of the keys of each sequence."""
        for sequence in range(counts[2]):
            places = np.arange(lens[sequence])
            pages = at[sequence * self.each + places // self.page_size]
            inside = places % self.page_size
            yield starts[sequence], starts[sequence + 1], (pages, inside // 2, inside % 2)

    def _written(self, latents, rotary, cache, *tables):
        cache, width = np.array(cache, subok=True), self.latent + self.rope
        for start, end, slots in self._slots(*tables):
            newest = tuple(places[len(places) - (end - start) :] for places in slots)
            cache[(*newest, slice(self.latent))] = latents[start:end]
            cache[(*newest, slice(self.latent, width))] = rotary[start:end]
            cache[(*newest, slice(width, None))] = 0
        return cache

    def new_state(self, inputs: tuple[Values, ...]) -> tuple[Values, ...]:
        return (self._written(*inputs[2:]),)

    def formula(self, in_bfloat16, q, q_rope, latents, rotary, cache, *tables):
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


def problem():
    return LatentAttention(
        tokens=TOKENS,
        sequences=SEQUENCES,
        heads=HEADS,
        latent=LATENT,
        rope=ROPE,
        padded=PADDED,
        pages=PAGES,
        page_size=PAGE_SIZE,
        each=EACH,
        heads_first=HEADS_FIRST,
        lengths_of=LENGTHS_OF,
        scale=SCALE,
    )
