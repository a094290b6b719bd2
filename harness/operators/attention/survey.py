"""A check of all rows of attention by checksums of every 32 columns, at little more than the cost of the scores.

Outputs are linear in the values, and gradients are linear in keys, queries and output gradients. So the columns of
these arrays can be added up with random signs before the product. The error of honest rounding is estimated from the
largest weight of a row and the mean square of the keys. The estimate may be wrong by a small factor, but a wrong row is
off by hundreds of deviations.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.operators.attention.rounding import KeyBlock
from harness.operators.blocks import slices
from harness.operators.outputs import side_by_side
from harness.operators.problem import Exact, Values
from harness.operators.rounding import drop_subnormal, relative_rounding
from harness.operators.survey import block_sums, random_signs, root_mean_square

_COLUMNS = 32
# exp(-80) is negligible next to 1, but not subnormal: products of subnormal numbers take ten times as long.
_LEAST_SCORE = np.float32(-80)
# A difference of float32 sums may be wrong by this share of the sums.
_UNKNOWN = 1e-5
# The least deviation of a sum, because its terms may be flushed to zero: 10^5 times float32's smallest normal number.
_LEAST_DEVIATION = 1e-33
_CHUNK_ROWS = 2048
# The most query-key pairs in memory at once.
_CHUNK_PAIRS = 1 << 20


def checksums(values: NDArray[Any], seed: int) -> NDArray[np.float32]:
    """`[..., rows, 2 checksums]`: the sums of every 32 columns with random signs, then the sums of their squares."""
    columns = values.shape[-1]
    blocks = block_sums(np.eye(columns, dtype=np.float32), _COLUMNS)
    signed = random_signs(columns, seed).astype(np.float32)[:, None] * blocks
    flat, count = values.reshape(-1, columns), blocks.shape[1]
    sums = np.empty((len(flat), 2 * count), np.float32)
    # Summing 32 numbers in float32 errs far less than rounding to the dtype does. A single part fits into the cache.
    for some in slices(len(flat), _CHUNK_ROWS):
        part = flat[some].astype(np.float32)
        np.matmul(part, signed, out=sums[some, :count])
        np.matmul(np.square(part, out=part), blocks, out=sums[some, count:])
    return sums.reshape(*values.shape[:-1], -1)


def errors(
    piece: KeyBlock, got: NDArray[Any], weighed: NDArray[np.float32], scale: float, soft_cap: float | None
) -> tuple[Exact, Exact]:
    """`[rows, checksums]` each: the errors of these rows, and their variances for a relative rounding of 1.

    `weighed` are the checksums of the values, `got` the checksums of the output.
    """
    low, high = (0, len(piece.k)) if piece.seen is None else (int(piece.seen[0].min()), int(piece.seen[1].max()))
    queries = piece.q * np.float32(scale)
    scores: NDArray[Any] = queries @ piece.k[low:high].T
    if soft_cap is not None:
        scores /= np.float32(soft_cap)
        np.tanh(scores, out=scores)
        scores *= np.float32(soft_cap)
    if piece.seen is not None:
        first, end = (edge[:, None] - low for edge in piece.seen)
        key = np.arange(high - low)
        scores[(key < first) | (key >= end)] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    np.maximum(scores, _LEAST_SCORE, out=scores)
    np.exp(scores, out=scores)
    total = scores.sum(axis=1, dtype=np.float64)[:, None]
    signed, squares = np.split((scores @ weighed[low:high]).astype(np.float64), 2, axis=1)
    output_sums, of_output = np.split(got.astype(np.float64), 2, axis=1)
    # A rounded score moves the output along the key's value minus the output, which is 0 if one key has all the weight.
    turned = np.square(queries) @ np.square(piece.k).mean(axis=0)
    squares /= total
    spread = np.maximum(squares - of_output, _UNKNOWN * squares)
    # The largest weight of a row is 1 / total, so the squares of all weights add up to at most 1 / total.
    return output_sums - signed / total, (squares + turned[:, None] * spread) / total + of_output


def in_deviations(error: Exact, variance: Exact, dtype: str) -> Exact:
    """`[rows]`: the root mean square of the checksums' errors in deviations of rounding to `dtype`."""
    return root_mean_square(error / np.maximum(relative_rounding(dtype) * np.sqrt(variance), _LEAST_DEVIATION))


def gradient_errors(
    inputs: tuple[Values, ...], outputs: tuple[Values, ...], scale: float, dtype: str, *, is_causal: bool, seed: int
) -> tuple[Exact, Exact]:
    """`[keys, columns of checksums]` each: the results of `errors` for dq, dk and dv of the heads that share keys.

    Queries are ordered by head. A row holds dq of as many queries as there are heads, and dk and dv of one key.
    """
    q, k, v, o, lse, do = (array.astype(np.float32) for array in inputs)
    length = len(k)
    positions = np.arange(len(q)) % length
    delta = (o * do).sum(axis=1)
    queries = q * np.float32(scale)
    of_q, of_k, of_do = (checksums(array, seed) for array in (q, k, do))
    count = of_q.shape[1] // 2
    # The variance of the scores from rounding the scaled queries, and 1 for the rounding of ds or p.
    moved = 1 + np.square(queries) @ np.square(k).mean(axis=0)
    # The variance of dp - delta from float32 sums over head_dim, which counts where the two nearly cancel.
    left = np.square(do) @ np.square(v).mean(axis=0)
    ratio = relative_rounding("float32") / relative_rounding(dtype)
    left *= np.float32(q.shape[1] * (1 + q.shape[1] / 3) * ratio**2)
    signed = [np.zeros((len(array), count)) for array in (q, k, v)]
    squares = [np.zeros((len(array), count)) for array in (q, k, v)]
    for at in slices(len(q), max(1, _CHUNK_PAIRS // length)):
        end = int(positions[at].max()) + 1 if is_causal else length
        weights: NDArray[Any] = queries[at] @ k[:end].T
        weights -= lse[at, None]
        if is_causal:
            weights[np.arange(end) > positions[at, None]] = -np.inf
        np.exp(weights, out=weights)
        drop_subnormal(weights)
        gradients: NDArray[Any] = do[at] @ v[:end].T
        gradients -= delta[at, None]
        gradients *= weights
        signed[0][at] = scale * (gradients @ of_k[:end, :count])
        signed[1][:end] += scale * (gradients.T @ of_q[at, :count])
        signed[2][:end] += weights.T @ of_do[at, :count]
        np.square(gradients, out=gradients)
        np.square(weights, out=weights)
        gradients *= moved[at, None]
        gradients += weights * left[at, None]
        squares[0][at] = scale**2 * (gradients @ of_k[:end, count:])
        squares[1][:end] += scale**2 * (gradients.T @ of_q[at, count:])
        squares[2][:end] += weights.T @ (moved[at, None] * of_do[at, count:])
    got = [checksums(output, seed).astype(np.float64) for output in outputs]
    errors_of = [sums[:, :count] - expected for sums, expected in zip(got, signed, strict=True)]
    variances = [sums[:, count:] + variance for sums, variance in zip(got, squares, strict=True)]
    return side_by_side(errors_of), side_by_side(variances)
