"""A cheap survey of all rows of an output. Rows that stand out are compared with float64, in addition to drawn rows."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from harness.operators.blocks import BLOCK, slices
from harness.operators.outputs import row_count
from harness.operators.problem import Exact, Rows, Values
from harness.operators.rounding import relative_rounding

# The most rows that are compared because they stand out: enough for a tile of eight wrong rows and eight more that
# stand out by chance.
MOST = 16
# The most elements that are converted to float64 at a time.
_PART = 1 << 22
# The least variance to divide by, for rows in which everything is exactly zero.
_LEAST_VARIANCE = 1e-76


@runtime_checkable
class Surveying(Protocol):
    """A problem that cheaply estimates the error of each row of its outputs, used if not all rows are compared."""

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """The approximate error of each row, in deviations of honest rounding: `[rows]`.

        The errors only rank rows; no output is rejected because of them. `seed` determines the random numbers, which a
        kernel must not be able to foresee.
        """


def standing_out(
    problem: object, inputs: Sequence[Values], outputs: Sequence[Values], compared: Rows, seed: int
) -> Rows:
    """The rows with the largest errors among those that are not `compared`, sorted; none without a survey."""
    total = row_count(outputs)
    if len(compared) == total or not isinstance(problem, Surveying):
        return compared[:0]
    with np.errstate(all="ignore"):
        off = problem.survey(inputs, outputs, seed)
    off[np.isnan(off)] = np.inf
    off[compared] = -1
    most = min(MOST, total - len(compared))
    return np.sort(np.argpartition(off, total - most)[total - most :]).astype(np.int64)


def random_signs(count: int, seed: int) -> NDArray[np.float64]:
    """Random signs, 1 or -1 with the same probability, that depend only on the arguments: `[count]`."""
    return np.random.default_rng((seed, count)).choice(np.array([-1.0, 1.0]), count)


def drawn_columns(count: int, seed: int, each: int = 1) -> NDArray[np.int64]:
    """`each` random columns of every 128 (all if `each` is 128), sorted; they depend only on the arguments."""
    random, starts = np.random.default_rng((seed, count, 1)), range(0, count, BLOCK)
    sizes = [min(BLOCK, count - start) for start in starts]
    drawn = (random.choice(size, min(each, size), replace=False) for size in sizes)
    return np.sort(np.concatenate([start + some for start, some in zip(starts, drawn, strict=True)]))


def block_sums(values: NDArray[Any], size: int) -> NDArray[Any]:
    """The sums of blocks of `size` neighbouring columns: `[rows, blocks]`."""
    return np.add.reduceat(values, np.arange(0, values.shape[1], size), axis=1)


def root_mean_square(off: NDArray[Any]) -> Exact:
    """The root mean square of each row: `[rows]`."""
    root_means: Exact = np.sqrt(np.mean(np.square(off, dtype=np.float64), axis=1))
    return root_means


def checksum_errors(
    a: Values, b: Values, got: Values, dtype: str, seed: int, scales: tuple[Values, Values] | None = None
) -> Exact:
    """The error of each row of `got` against A B in deviations, from checksums of every 128 columns: `[rows]`.

    Freivalds' method: with random signs s, the sum of s_j c_ij over some columns j of C = A B is row i of A times the
    sum of s_j b_j. This costs one column of a product. Because the signs are random, the variance of the checksum's
    error is the sum of the squared errors of these columns, even if the errors are correlated. So the root mean square
    of a row's checksum errors is about
    - e if all elements of the row are off by e deviations;
    - e / sqrt(columns) if a single element is off by e;
    - 1 for an honest row, with the roundings of C to `dtype` and of the float32 sum.

    `scales` [1, n] and [rows, 1] multiply C.
    """
    n, k = b.shape[1], len(b)
    signs = random_signs(n, seed)
    checks, squares = [], []
    # The number of columns converted at a time, in whole blocks.
    width = max(1, _PART // max(k, 1) // BLOCK) * BLOCK
    for some in slices(n, width):
        columns = b[:, some].astype(np.float64)
        columns *= signs[some] if scales is None else signs[some] * scales[0][0, some]
        checks.append(block_sums(columns, BLOCK))
        squares.append(block_sums(np.square(columns, out=columns), BLOCK))
    check, square = (np.concatenate(parts, axis=1) for parts in (checks, squares))
    relative, relative32 = relative_rounding(dtype), relative_rounding("float32")
    off = np.empty(len(got))
    for rows in slices(len(got), max(1, _PART // max(k, n))):
        a_rows, values = a[rows].astype(np.float64), got[rows].astype(np.float64)
        factors = 1.0 if scales is None else scales[1][rows].astype(np.float64)
        error = block_sums(values * signs, BLOCK) - a_rows @ check * factors
        variance = relative**2 * block_sums(np.square(values, out=values), BLOCK)
        variance += (relative32**2 * k) * (np.square(a_rows, out=a_rows) @ square) * np.square(factors)
        off[rows] = root_mean_square(error / np.sqrt(np.maximum(variance, _LEAST_VARIANCE)))
    return off
