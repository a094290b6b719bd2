"""The error of rounding to a dtype: its standard deviation relative to a value, and the distance between neighbours."""

import math
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

DTYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float32": np.dtype(np.float32)}
# The integer type of each dtype's size, and the mask of the exponent's bits.
_EXPONENTS = {np.dtype(np.float32): (np.int32, 0xFF << 23), np.dtype(np.float64): (np.int64, 0x7FF << 52)}
# The most terms that kernels add one after another; longer sums are broken up by blocks.
SUM_TERMS = 1024


def relative_rounding(dtype: str) -> float:
    """Standard deviation of one rounding to nearest in `dtype`, relative to the value rounded.

    An error that is uniform over one ulp has the deviation ulp / sqrt(12). Values are assumed to be 2^e x, where x in
    [1, 2) has the density 1 / (x ln 2), as leading digits do. Then the mean of ulp^2 / value^2 is epsilon^2 times the
    integral of x^-3 / ln 2 over [1, 2), which is 3 / (8 ln 2).
    """
    return float(ml_dtypes.finfo(DTYPES[dtype]).eps) * math.sqrt(3 / (8 * math.log(2)) / 12)


def ulp(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The distance between neighbouring numbers of `dtype` at each value; float32 for float32 values, else float64."""
    info = ml_dtypes.finfo(DTYPES[dtype])
    wide = values if values.dtype in _EXPONENTS else values.astype(np.float64)
    spacings: NDArray[Any] = np.array(np.abs(wide))
    np.maximum(spacings, spacings.dtype.type(info.smallest_normal), out=spacings)
    # If the bits of a number's fraction are cleared, the largest power of two up to the number is left.
    integers, mask = _EXPONENTS[spacings.dtype]
    bits = spacings.view(integers)
    np.bitwise_and(bits, mask, out=bits)
    spacings *= spacings.dtype.type(info.eps)
    return spacings


def drop_subnormal(values: NDArray[Any]) -> None:
    """Sets subnormal elements of `values` (none is negative) to zero, because their products take ten times as long."""
    values[values < np.finfo(values.dtype).tiny] = 0


def product_deviation(a: NDArray[Any], b: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The standard deviation of each element of A B, added up in float32 and rounded to `dtype` once; positive.

    `a` [m, k] and `b` [k, n] are float32. The variance of the output's own rounding, ulp^2 / 12, is exact for rounding
    to nearest; that of the sum is `sum_variance`. Products of two bfloat16 numbers are exact in float32. The rounding
    of products of two float32 numbers is left out: it would add at most 1 / k of the sum's variance.
    """
    sums = a @ b
    return deviation(sum_variance(np.square(a) @ np.square(b), sums, a.shape[1]) + np.square(ulp(sums, dtype)) / 12)


def deviation(variance: NDArray[Any]) -> NDArray[Any]:
    """The standard deviations, at least float32's least normal number: they are positive even if the variance is 0."""
    deviations: NDArray[Any] = np.maximum(np.sqrt(variance), np.finfo(np.float32).tiny)
    return deviations


def sum_variance(products: NDArray[Any], sums: NDArray[Any], terms: int) -> NDArray[Any]:
    """The variance of float32 sums of `terms` products that are added in any order, blocks at a time or one by one.

    `products` is the sum of the squares of the products, `sums` the sum itself. The variance has two parts. r32 is the
    relative deviation of one rounding to float32, e32 the epsilon of float32:
    - Partial sums grow like a random walk, or evenly up to the full sum: r32^2 terms (products + sums^2 / 3).
    - If many small terms are added to a large sum, each may lose up to half an ulp in one direction: (n e32 sums / 4)^2
      for up to n such terms.
    """
    eps32 = float(np.finfo(np.float32).eps)
    running = np.float32(relative_rounding("float32") ** 2 * terms)
    relative_loss = np.float32(min(terms, SUM_TERMS) * eps32 / 4)
    variances: NDArray[Any] = running * (products + np.square(sums) / 3) + np.square(relative_loss * sums)
    return variances
