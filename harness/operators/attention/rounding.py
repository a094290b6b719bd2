"""The effect of rounding on attention: the exact weights of some rows, and the outputs' variances to first order.

The factors between a deviation and the tolerance are the same for all operators: operators/tolerance.py.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from harness.operators.problem import Exact
from harness.operators.rounding import DTYPES, SUM_TERMS, drop_subnormal, relative_rounding, ulp

# Kernels take at least this many keys at a time.
SMALLEST_BLOCK = 64
# Kernels that keep their sums in bfloat16 take at least this many keys at a time.
_SUMMED_BLOCK = 128
# A limit in deviations, which is above the usual maximum of ten thousand normal deviates.
_BY_CHANCE = 5.0
# Squares of smaller numbers lose digits in float32; squares of much smaller numbers are zero.
_SQUARE_UNDERFLOWS = 1e-15


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """Rows that share one key/value head. `places` are their row indices in the result; q is [rows, d], k, v [kv, d].

    `seen`: the first key that each row sees, and the first after those that it sees; None: every row sees all keys.
    """

    places: NDArray[np.int64]
    q: NDArray[Any]
    k: NDArray[Any]
    v: NDArray[Any]
    seen: tuple[NDArray[np.int64], NDArray[np.int64]] | None

    def in_float64(self) -> "KeyBlock":
        """These arrays in float64."""
        q, k, v = (array.astype(np.float64) for array in (self.q, self.k, self.v))
        return replace(self, q=q, k=k, v=v)


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """The softmax of a KeyBlock: `weights` are exp(score - largest score) `[rows, kv]`, 0 where masked.

    `largest` `[rows, 1]` is the largest score before a soft cap. Under a soft cap, `capped` are the capped scores and
    `slopes` their derivatives with respect to the uncapped scores, `[rows, kv]`.
    """

    weights: NDArray[Any]
    largest: NDArray[Any]
    slopes: NDArray[Any] | None
    capped: NDArray[Any] | None

    def in_float64(self) -> "Softmax":
        """These arrays in float64."""
        slopes, capped = (None if array is None else array.astype(np.float64) for array in (self.slopes, self.capped))
        weights, largest = self.weights.astype(np.float64), self.largest.astype(np.float64)
        return Softmax(weights=weights, largest=largest, slopes=slopes, capped=capped)


def softmax(piece: KeyBlock, scale: float, soft_cap: float | None) -> Softmax:
    """The softmax of every row of the piece, in the piece's dtype."""
    scores: NDArray[Any] = piece.q @ piece.k.T
    scores *= scores.dtype.type(scale)
    hidden = None
    if piece.seen is not None:
        first, end = piece.seen
        key = np.arange(scores.shape[1])
        hidden = (key < first[:, None]) | (key >= end[:, None])
        scores[hidden] = -np.inf
    largest = scores.max(axis=1, keepdims=True)
    capped = slopes = None
    if soft_cap is not None:
        cap = scores.dtype.type(soft_cap)
        scores /= cap
        np.tanh(scores, out=scores)
        slopes = 1 - np.square(scores)
        scores *= cap
        capped = scores.copy()
        if hidden is not None:
            scores[hidden] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    drop_subnormal(scores)
    return Softmax(weights=scores, largest=largest, slopes=slopes, capped=capped)


def variances(piece: KeyBlock, scale: float, soft_cap: float | None, dtype: str, *, is_exact: bool = False) -> Exact:
    """`[rows, head_dim]`: the variance of the outputs, for `Attention.rounding` and `Attention.exact_rounding`.

    `is_exact`: for `exact_rounding`.

    First-order propagation; roundings are independent, except those of equal keys: equal keys have equal scores and
    equal roundings, and so count as one key. With g the groups of equal keys (mostly of one key), w_k the exact
    weights, W_g = sum w_k and V_g = sum w_k v_k over a group, o the exact output, r the relative deviation of one
    rounding to dtype, r32 that of one to float32, and e32 float32's epsilon, the variances are:
    - probabilities rounded before P V, from exponentials that libraries compute to one ulp:  (r^2 + e32^2 / 3) sum_g
      V_g^2;
    - scores:  sum_g (V_g - W_g o)^2 t_g^2, with t_g^2 as below;
    - float32 sums over kv_sequence terms:  r32^2 kv_sequence (sum_k w_k^2 v_k^2 + o^2), and (n e32 o / 4)^2 where n
      successive small terms are added to a large sum and lose up to half an ulp each, all in one direction;
    - the output itself:  ulp(o)^2 / 12, which is exact for rounding to nearest.

    t_g^2 has two terms:
    - r^2 a_g^2 / (1 - W_g) for scaled queries rounded once, with a_g the 2-norm of the elementwise product scale q *
      (k_g - m) and m = sum_k w_k k_k;
    - r32^2 head_dim (c_g^2 + s^2 / 3) for a running float32 sum that grows evenly to the row's largest score s, with
      c_g the 2-norm of scale q * k_g.

    Rounding one channel of a query changes all scores of the row together. The common part of these changes is
    subtracted: it changes no weight, because sum_g (V_g - W_g o) = 0. o and m contain the group itself, which makes V_g
    - W_g o and k_g - m too small where few keys have all the weight; dividing by 1 - W_g corrects this, exactly if
    there are two groups. A soft cap multiplies a change of a score by f_k = 1 - tanh^2. So f_g k_g takes the place of
    k_g in the first term, and the second term is multiplied by f_g^2. The rounding of the cap adds (2 e32 c)^2, with c
    the capped score.

    If keys on one side of m have values with a common mean, these sums over keys underestimate the effect of a rounded
    query. If blocks split a group, its probabilities may be rounded in each block relative to a different maximum. This
    matters where V_g is small but its parts are large. `exact_rounding` takes both into account.

    In `exact_rounding`, a row costs head_dim / 2 times as much. V_g^2 is replaced by the largest sum of squares of
    V_g's parts, over three ways to split the group at borders of the smallest blocks: not at all; a run of blocks and
    the rest; parts of 1, 2, 4, ... blocks, as in kernels that split the keys (flash decoding). Blocks with the row's
    largest score are not split, because their maximum is the same. In a kernel that splits the group otherwise, the
    deviation is at most sqrt(n) times as large, where n of these parts are rounded alike. A rounding e_d of channel d
    of a row's scaled query, with deviation r |scale q_d|, moves the output by e_d sum_k w_k f_k k_kd (v_k - o); f_k is
    1 without a soft cap. The variance is the sum of the squared moves over channels. If queries rounded as in published
    kernels cause a larger error than this variance explains, the variance is replaced by the square of the error.
    """
    relative, relative32 = relative_rounding(dtype), relative_rounding("float32")
    eps32 = float(np.finfo(np.float32).eps)
    keys, head_dim = piece.k.shape
    running = relative32**2 * head_dim
    softmax_parts = softmax(piece, scale, soft_cap)
    weights, slopes = softmax_parts.weights, softmax_parts.slopes
    weights /= weights.sum(axis=1, keepdims=True)
    output = weights @ piece.v
    if np.any((np.abs(output) < _SQUARE_UNDERFLOWS) & (output != 0)):
        piece, softmax_parts = piece.in_float64(), softmax_parts.in_float64()
        weights, slopes = softmax_parts.weights, softmax_parts.slopes
        output = weights @ piece.v
    groups = _groups(piece.k)
    moves = np.square(piece.q * np.float32(scale)) @ np.square(piece.k).T
    moves *= np.float32(running)
    moves += np.square(softmax_parts.largest) * np.float32(running / 3)
    if slopes is not None and softmax_parts.capped is not None:
        moves *= np.square(slopes)
        moves += np.square(softmax_parts.capped) * np.float32((2 * eps32) ** 2)
    of_queries: Exact | float = 0.0
    if is_exact:
        of_queries = relative**2 * _moved_by_queries(piece, weights, slopes, output, scale)
        # An error that chance explains does not show that the first-order estimate fails.
        turned = _with_scaled_queries(piece, output, scale, soft_cap, dtype)
        of_queries = np.where(turned > _BY_CHANCE**2 * of_queries, turned, of_queries)
    else:
        moves += np.float32(relative**2) * _turned(piece, weights, slopes, groups, scale)
    # The values are centred: otherwise their common offset would have to cancel in float32.
    centre = piece.v.mean(axis=0)
    v, o = piece.v - centre, output - centre
    probability, moved_alike, squares = (np.zeros_like(output) for _ in range(3))
    with_largest = _parts_with_largest(weights) if is_exact else None
    for group in groups:
        group_weights = weights[:, group]
        share, part = group_weights.sum(axis=1, keepdims=True), group_weights @ v[group]
        probability += (
            np.square(part + share * centre)
            if with_largest is None
            else _rounded_apart(group_weights, piece.v[group], group // SMALLEST_BLOCK, with_largest)
        )
        squares += np.square(group_weights) @ np.square(piece.v[group])
        moved_alike += moves[:, group[:1]] * np.square(part - share * o)
    # Equal keys were counted above, as groups.
    for group in groups:
        weights[:, group] = 0
    np.square(weights, out=weights)
    drop_subnormal(weights)
    alone = weights @ np.square(piece.v)
    probability += alone
    squares += alone
    weights *= moves
    drop_subnormal(weights)
    moved = weights @ np.square(v) + weights.sum(axis=1, keepdims=True) * np.square(o)
    # If one key has nearly all the weight, v - o cancels, and float32 leaves this much unknown.
    variance: Exact = moved_alike + np.maximum(moved - 2 * o * (weights @ v), eps32 * moved)
    variance += (relative**2 + eps32**2 / 3) * probability
    variance += relative32**2 * keys * (squares + np.square(output))
    variance += np.square(min(keys, SUM_TERMS) * eps32 / 4 * output)
    variance += np.square(ulp(output, dtype)) / 12 + of_queries
    return variance


def shared_errors(piece: KeyBlock, scale: float, soft_cap: float, dtype: str) -> list[Exact]:
    """`[rows, head_dim]` each: the change of the output if the weights near the cap, near 0 or near -cap are rounded.

    Saturated scores are nearly the same number in every row. A kernel that subtracts the maximum gives them the weight
    1. A kernel that subtracts no maximum (which a soft cap permits) gives them a rounded weight. The rounding error may
    be half a step in all rows, though not always in the same direction.
    """
    softmax_parts = softmax(piece, scale, soft_cap)
    weights, scores = softmax_parts.weights, softmax_parts.capped
    assert scores is not None, "expected the scores under the cap"
    weights /= weights.sum(axis=1, keepdims=True)
    step = float(ml_dtypes.finfo(DTYPES[dtype]).eps)
    # Weights this near to each other have about the same rounding error.
    near = (np.abs(scores - score) < step / 4 for score in (soft_cap, 0.0, -soft_cap))
    return [step / 2 * np.where(some, weights, 0) @ piece.v for some in near]


def of_narrow_sums(piece: KeyBlock, scale: float, soft_cap: float | None, dtype: str) -> Exact:
    """`[rows, head_dim]`: the variance of the outputs if sums over keys are kept in dtype, from block to block.

    The sums below are over the blocks of 128 keys (the fewest that such kernels take) in which the row sees a key. With
    r and o as in `variances`, w_k the exact weights, s the sum of w_k in a block, l and A the sums of w_k and of w_k
    v_k up to the block's end, these are rounded:
    - the block's product, the rescaled earlier sum, and the sum of both:  3 r^2 sum A^2. Here A is the largest at any
      border of 64 keys within the block: a kernel's borders may differ, and A may be small at one border by chance;
    - the sum of the weights in the same way, and its partial sums over registers and over 128 lanes, halved seven
      times:  r^2 o^2 sum (8 s^2 + 2 l^2);
    - the factor that rescales both:  r^2 sum (A - l o)^2;
    - the quotient:  2 r^2 o^2.
    """
    weights = softmax(piece, scale, soft_cap).weights.astype(np.float64)
    weights /= weights.sum(axis=1, keepdims=True)
    output = weights @ piece.v
    variance = 2 * np.square(output)
    total, products = np.zeros((len(weights), 1)), np.zeros_like(output)
    for start in range(0, weights.shape[1], _SUMMED_BLOCK):
        largest, share = np.zeros_like(output), np.zeros_like(total)
        for first in range(start, min(start + _SUMMED_BLOCK, weights.shape[1]), SMALLEST_BLOCK):
            part = slice(first, min(first + SMALLEST_BLOCK, start + _SUMMED_BLOCK))
            share += weights[:, part].sum(axis=1, keepdims=True)
            products += weights[:, part] @ piece.v[part]
            largest = np.maximum(largest, np.square(products))
        total += share
        rounded = 3 * largest + np.square(products - total * output)
        rounded += np.square(output) * (8 * np.square(share) + 2 * np.square(total))
        variance += np.where(share > 0, rounded, 0)
    narrow_variance: Exact = relative_rounding(dtype) ** 2 * variance
    return narrow_variance


def _groups(k: NDArray[Any]) -> list[NDArray[np.int64]]:
    """The indices of the keys `[kv, d]` that equal another key, one array for each group of equal keys."""
    rows = np.ascontiguousarray(k).view(np.dtype((np.void, k.itemsize * k.shape[1])))[:, 0]
    _, inverse, counts = np.unique(rows, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    ends = np.cumsum(counts)
    several = np.flatnonzero(counts > 1)
    return [order[ends[group] - counts[group] : ends[group]] for group in several]


def _parts_with_largest(weights: NDArray[Any]) -> list[NDArray[np.bool_]]:
    """`[parts, rows]` for parts of 1, 2, 4, ... smallest blocks: True if the part has the row's largest weight."""
    largest = weights == weights.max(axis=1, keepdims=True)
    levels = [np.logical_or.reduceat(largest, np.arange(0, weights.shape[1], SMALLEST_BLOCK), axis=1).T]
    while len(levels[-1]) > 2:
        levels.append(np.logical_or.reduceat(levels[-1], np.arange(0, len(levels[-1]), 2), axis=0))
    return levels


def _rounded_apart(
    weights: NDArray[Any], values: NDArray[Any], block_of: NDArray[np.int64], with_largest: list[NDArray[np.bool_]]
) -> NDArray[Any]:
    """`[rows, d]`: the largest sum of squares of the parts of V_g that are rounded differently (see `variances`).

    For a group's weights `[rows, keys]`, values `[keys, d]` and blocks `[keys]`. Blocks that have the row's largest
    weight are in one part, because their maximum is the same.
    """
    blocks, starts = np.unique(block_of, return_index=True)
    ends = [*starts[1:], len(block_of)]
    sums = np.stack([weights[:, start:end] @ values[start:end] for start, end in zip(starts, ends, strict=True)])
    whole: NDArray[Any] = sums.sum(axis=0)
    # A run of blocks, and the rest: their sum of squares is largest where the run's sum is largest or smallest. After
    # the last block comes the first one: both may be rounded relative to the same maximum.
    counts = np.cumsum(with_largest[0], axis=0)
    before = np.roll(counts[blocks], 1, axis=0)
    before[0] -= counts[-1]
    free = ~with_largest[0][blocks][:, :, None]
    joined = (counts[blocks] == before)[:, :, None]
    rise, fall, highest, lowest = (np.zeros_like(whole) for _ in range(4))
    for block in [*range(len(blocks))] * 2:
        rise = free[block] * (sums[block] + joined[block] * np.maximum(rise, 0))
        fall = free[block] * (sums[block] + joined[block] * np.minimum(fall, 0))
        highest, lowest = np.maximum(highest, rise), np.minimum(lowest, fall)
    largest: NDArray[Any] = np.square(whole)
    for run in (highest, lowest):
        largest = np.maximum(largest, np.square(run) + np.square(whole - run))
    # Parts of the same length, each with a maximum of its own.
    for level, having in enumerate(with_largest):
        parts, starts = np.unique(blocks >> level, return_index=True)
        apart = np.where(having[parts][:, :, None], 0, np.add.reduceat(sums, starts, axis=0))
        largest = np.maximum(largest, np.square(apart).sum(axis=0) + np.square(whole - apart.sum(axis=0)))
    return largest


def _turned(
    piece: KeyBlock, weights: NDArray[Any], slopes: NDArray[Any] | None, groups: list[NDArray[np.int64]], scale: float
) -> NDArray[Any]:
    """`[rows, kv]`: a_k^2 / (1 - W_k) of `variances`, for weights that sum to 1."""
    # The keys are centred first: otherwise their common part would have to cancel in float32.
    k = piece.k - piece.k.mean(axis=0) if slopes is None else piece.k
    squares = np.square(piece.q * np.float32(scale))
    mean = weights @ k if slopes is None else (weights * slopes) @ k
    whole = squares @ np.square(k).T
    common = (squares * mean) @ k.T
    if slopes is not None:
        whole *= np.square(slopes)
        common *= slopes
    squared_norms: NDArray[Any] = whole - 2 * common + (squares * np.square(mean)).sum(axis=1, keepdims=True)
    # The part of the difference that float32 leaves unknown.
    eps32 = np.finfo(np.float32).eps
    np.maximum(squared_norms, eps32 * whole, out=squared_norms)
    others = 1 - weights
    for group in groups:
        others[:, group] = 1 - weights[:, group].sum(axis=1, keepdims=True)
    squared_norms /= np.maximum(others, eps32)
    return squared_norms


def _with_scaled_queries(
    piece: KeyBlock, output: NDArray[Any], scale: float, soft_cap: float | None, dtype: str
) -> Exact:
    """`[rows, d]`: the largest squared error of the ways in which published kernels scale queries and round them.

    The ways are: one rounding; one rounding that includes the factor of a softmax in powers of two; two roundings, the
    first without and the second with that factor. Where logits are so large that rounding a query multiplies weights, a
    first-order estimate fails.
    """
    largest: Exact = np.zeros(output.shape)
    exact, log2 = piece.in_float64(), np.float32(1 / math.log(2))
    once = (piece.q * np.float32(scale)).astype(DTYPES[dtype])
    with_factor = (piece.q * (np.float32(scale) * log2)).astype(DTYPES[dtype])
    twice = (once.astype(np.float32) * log2).astype(DTYPES[dtype])
    for queries, left in ((once, 1.0), (with_factor, math.log(2)), (twice, math.log(2))):
        weights = softmax(replace(exact, q=queries.astype(np.float64)), left, soft_cap).weights
        largest = np.maximum(largest, np.square((weights @ exact.v) / weights.sum(axis=1, keepdims=True) - output))
    return largest


def _moved_by_queries(
    piece: KeyBlock, weights: NDArray[Any], slopes: NDArray[Any] | None, output: NDArray[Any], scale: float
) -> Exact:
    """`[rows, d]`: the variance caused by roundings of the scaled queries with a relative deviation of 1 each."""
    q, k, v = piece.q.astype(np.float64), piece.k, piece.v
    variance = np.empty(q.shape)
    for row, of_row in enumerate(weights):
        # k is centred: a mean that all keys share contributes mean * sum_k w_k (v_k - o) = 0, except under a cap.
        turned = (k - of_row @ k) * of_row[:, None] if slopes is None else k * (of_row * slopes[row])[:, None]
        moved = turned.T @ (v - output[row])
        variance[row] = np.square(q[row] * scale) @ np.square(moved.astype(np.float64))
    return variance
