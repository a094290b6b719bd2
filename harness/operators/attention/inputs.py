"""Inputs of attention that expose known bugs: peaky logits, needles at block borders, equal keys, offset values."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.operators.blocks import BLOCK, borders, empty_block, empty_lines, turned
from harness.operators.problem import Rows, Values
from harness.operators.space import generator

# The family with scores so far below zero that kernels which keep their maximum in bfloat16 fail.
FAR_BELOW = "far-below"
FAMILIES = ("normal", "logits-x10", "logits-x50", "needles", "equal-keys", "far-values", FAR_BELOW)

# The means of values: far from zero, and different in every column. A common mean would put all outputs on the same
# point of a coarse grid, where rounding hides everything. Their sign alternates from head to head.
_OFFSETS = (96.0, 104.0)
# The sizes of scores that lie far below, as powers of two: -1.3e5 to -2.7e8. Published kernels begin with a maximum of
# -1e9 or less, and give hidden keys such a score.
_FAR_POWERS = (17, 28)
_KEY_POWER = 13
# The kinds of the composite's rows, repeated every 8 rows from a drawn place on: the factor of the query, or None for a
# query that looks for a needle. Rows of factor 1 weigh all keys equally, so any dropped block shows in them.
_COMPOSITE: tuple[float | None, ...] = (1.0, 10.0, 50.0, None, 1.0, None, 10.0, 1.0)
COMPOSITE_PERIOD = len(_COMPOSITE)
# The share of zero queries among the composite's rows of factor 1, and the share of zero output gradients among its
# other rows.
_EMPTY_QUERIES, _EMPTY_GRADIENTS = 0.25, 0.125


def even_rows(sequence: int, seed: int) -> tuple[int, ...]:
    """The rows of the composite, modulo its period, that weigh all keys equally."""
    return tuple(row for row, kind in enumerate(turned(_COMPOSITE, seed, sequence)) if kind == 1.0)


def empty_rows(sequence: int, seed: int) -> range:
    """The composite's block of rows whose queries and output gradients are zero in all heads; never the last block."""
    random = np.random.default_rng(np.random.SeedSequence((seed, sequence, COMPOSITE_PERIOD)))
    return empty_block(sequence, BLOCK, random, is_last=False)


def empty_queries(q: NDArray[Any], share: float, random: np.random.Generator) -> None:
    """Makes some of `q` `[batch, heads, sequence, head_dim]` zero, as padding makes them.

    The zero rows are a block (`empty_block`), a share of each head's rows, and an equal share of rows that are zero in
    all heads (`empty_lines`).
    """
    batch, heads, sequence, _ = q.shape
    q[random.random((batch, heads, sequence)) < share / 2] = 0
    q[:, :, empty_lines(sequence, share / 2, random)] = 0
    q[:, :, empty_block(sequence, BLOCK, random)] = 0


def empty_gradients(gradients: NDArray[Any], seed: int, random: np.random.Generator) -> None:
    """Makes some of the composite's output gradients `[heads, sequence, head_dim]` zero: `empty_rows` and single rows.

    Outside that block, rows that weigh all keys equally keep their gradients, because probes rely on them.
    """
    heads, sequence, _ = gradients.shape
    is_even = np.isin(np.arange(sequence) % COMPOSITE_PERIOD, even_rows(sequence, seed))
    gradients[(random.random((heads, sequence)) < _EMPTY_GRADIENTS) & ~is_even] = 0
    gradients[:, empty_rows(sequence, seed)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSizes:
    """The sizes that inputs depend on, named as in Attention; `ids` `[batch, sequence]` if sequences are packed."""

    batch: int
    heads: int
    kv_heads: int
    sequence: int
    kv_sequence: int
    head_dim: int
    causal: bool
    scale: float
    window: int | None = None
    soft_cap: float | None = None
    ids: NDArray[np.int32] | None = None

    def seen(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first key that each query at `rows` sees, and the first key after those it sees, `[batch, len(rows)]`."""
        positions = np.broadcast_to(rows + (self.kv_sequence - self.sequence), (self.batch, len(rows)))
        end = positions + 1 if self.causal else np.full(positions.shape, self.kv_sequence)
        first = np.zeros_like(end) if self.window is None else np.maximum(positions + 1 - self.window, 0)
        if self.ids is not None:
            bounds = [self.segment(entry, rows) for entry in range(self.batch)]
            first = np.maximum(first, np.stack([start for start, _ in bounds]))
            end = np.minimum(end, np.stack([stop for _, stop in bounds]))
        return first, end

    def segment(self, entry: int, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each of these rows of a batch entry, the begin and the end of its packed sequence."""
        if self.ids is None:
            return np.zeros(len(rows), np.int64), np.full(len(rows), self.sequence)
        ids = self.ids[entry]
        return np.searchsorted(ids, ids[rows]), np.searchsorted(ids, ids[rows], side="right")


def make(shape: InputSizes, family: str, seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """q `[batch, heads, sequence, head_dim]`, k, v `[batch, kv_heads, kv_sequence, head_dim]`, float32, not rounded.

    All families are independent in every head:
    - normal: all N(0, 1).
    - logits-x10, logits-x50: queries 10 or 50 times as large, so that few keys share the weight and online softmax must
      rescale.
    - needles: every query has nearly all its weight on one key next to a block border.
    - equal-keys: every weight is the same.
    - far-values: values N(c, 1) with c near 100, different in every column, and below zero in every second head, the
      first included.
    - far-below: far values, above zero in the first head; all scores of a query are one number from -2^17 to -2^28
      (above zero for a quarter of the queries), so that every weight is the same.
    - composite: all of these except far-below, in different rows, key ranges and columns. A block of queries and some
      other queries are zero.

    Raises ValueError for any other name.
    """
    if family not in (*FAMILIES, "composite"):
        raise ValueError(f"expected an input family of {(*FAMILIES, 'composite')}, got {family!r}")
    random = generator(family, seed)
    keys = (shape.batch, shape.kv_heads, shape.kv_sequence, shape.head_dim)
    q = random.standard_normal((shape.batch, shape.heads, shape.sequence, shape.head_dim), dtype=np.float32)
    k = random.standard_normal(keys, dtype=np.float32)
    v = random.standard_normal(keys, dtype=np.float32)
    if family == "logits-x10":
        q *= 10
    elif family == "logits-x50":
        q *= 50
    elif family == "needles":
        v[:, :, borders(shape.kv_sequence)] *= 4
        _aim(shape, random, q, k, np.arange(shape.sequence))
    elif family == "equal-keys":
        k[:] = k[:, :, :1]
    elif family == "far-values":
        _move_far(shape, random, v, -1)
    elif family == FAR_BELOW:
        _move_far(shape, random, v, 1)
        _lower(shape, random, q, k)
    elif family == "composite":
        _compose(shape, random, turned(_COMPOSITE, seed, shape.sequence), q, k, v)
        q[:, :, empty_rows(shape.sequence, seed)] = 0
    return q, k, v


def alternating_signs(heads: int) -> NDArray[np.float32]:
    """`[heads]`: 1, -1, 1, -1 ... A kernel may branch on the sign of a whole block, so one head has one sign."""
    return np.where(np.arange(heads) % 2, np.float32(-1), np.float32(1))


def _compose(
    shape: InputSizes, random: np.random.Generator, pattern: tuple[float | None, ...], q: Values, k: Values, v: Values
) -> None:
    middle = shape.kv_sequence // 2
    k[:, :, middle : middle + shape.kv_sequence // 16] = k[:, :, middle : middle + 1]
    _move_far(shape, random, v[..., shape.head_dim - shape.head_dim // 8 :], 1)
    v[:, :, borders(shape.kv_sequence)] *= 4
    kinds = [pattern[row % len(pattern)] for row in range(shape.sequence)]
    q *= np.array([1.0 if kind is None else kind for kind in kinds], dtype=np.float32)[:, None]
    _aim(shape, random, q, k, np.flatnonzero([kind is None for kind in kinds]))
    # A query of zeros weighs all keys equally too.
    is_even = np.array([kind == 1.0 for kind in kinds])
    q[(random.random(q.shape[:3]) < _EMPTY_QUERIES) & is_even] = 0


def _lower(shape: InputSizes, random: np.random.Generator, q: NDArray[Any], k: NDArray[Any]) -> None:
    """Makes all scores of a query the same power of two times the scale, so that no product or sum is rounded."""
    channel = int(random.integers(shape.head_dim))
    powers = random.integers(*_FAR_POWERS, q.shape[:3]) + math.ceil(-math.log2(shape.scale)) - _KEY_POWER
    q[:] = k[:] = 0
    k[..., channel] = 2.0**_KEY_POWER
    q[..., channel] = random.choice([-1.0, -1.0, -1.0, 1.0], powers.shape) * np.exp2(powers)


def _move_far(shape: InputSizes, random: np.random.Generator, v: NDArray[Any], sign: int) -> None:
    """Moves columns of the values far from zero: the first head's to the side of this sign."""
    v += random.uniform(*_OFFSETS, (shape.batch, shape.kv_heads, 1, v.shape[-1])).astype(np.float32)
    v *= sign * alternating_signs(shape.batch * shape.kv_heads).reshape(shape.batch, shape.kv_heads, 1, 1)


def _aim(shape: InputSizes, random: np.random.Generator, q: Values, k: Values, rows: Rows) -> None:
    """Aims each query of `rows` at a needle that it may see; neighbours, and heads of a group, get different needles.

    The needle's logit is ln(kv_sequence) + 12 to 14. The other logits are about N(0, logit^2 / head_dim), so at
    head_dim 64 and more the needle far outweighs all of them together. The logit differs in every row: rows with the
    same logit would share all roundings, and a mean over them would count only as many rows as there are needles.
    """
    positions = borders(shape.kv_sequence)
    first, end = shape.seen(rows)
    begin, visible = np.searchsorted(positions, first), np.searchsorted(positions, end)
    entries = np.arange(shape.batch)[:, None]
    logit = np.log(shape.kv_sequence) + 12.0 + 2.0 * random.random((len(rows), 1), dtype=np.float32)
    group = shape.heads // shape.kv_heads
    for head in range(shape.heads):
        # Multiples of the golden ratio are spread evenly over [0, 1) without a period.
        spread = ((np.arange(len(rows)) + 0.5 * head) * 0.6180339887498949) % 1.0
        # A window or packed sequence shorter than a block may contain no border. Then its needle is the last visible
        # key.
        place = np.minimum(begin + (spread * (visible - begin)).astype(np.int64), len(positions) - 1)
        target = k[entries, head // group, np.where(visible > begin, positions[place], end - 1)]
        q[:, head, rows] = target * (logit / shape.scale) / np.square(target).sum(axis=-1, keepdims=True)
