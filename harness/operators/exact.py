"""Exact outputs, compared bit by bit without a tolerance: integers, and floats that are copied instead of computed."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from harness.operators.problem import Exact, Rows, Values
from harness.records import Array


@runtime_checkable
class StatesExact(Protocol):
    """A problem with float outputs that no honest kernel rounds, such as elements that it gathers or selects."""

    def exact(self) -> tuple[str, ...]:
        """The names of the float outputs that are exact; outputs of integers are always exact and not named here."""


class ExactAnswers:
    """Methods of a problem whose outputs are all exact: an honest kernel gives the numbers of `reference`."""

    __slots__ = ()

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """The right outputs. If several answers are right (equal elements), the problem names the one that counts."""
        raise NotImplementedError

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """The outputs of `reference`."""
        return self.reference(inputs, rows)

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """Zeros, because nothing is rounded."""
        return np.zeros_like(self.reference(inputs, rows))


def numpy_dtype(name: str) -> Any:
    """The dtype of numpy or ml_dtypes called `name`. Raises TypeError if there is none."""
    return np.dtype(getattr(ml_dtypes, name, name))


def is_float(dtype: Any) -> bool:
    """True if a dtype of numpy or ml_dtypes holds floats."""
    try:
        return bool(ml_dtypes.finfo(dtype).bits)
    except ValueError:
        return False


def is_exact(problem: object, output: Array) -> bool:
    """True if an output of the problem is compared bit by bit."""
    stated = problem.exact() if isinstance(problem, StatesExact) else ()
    return output.name in stated or not is_float(numpy_dtype(output.dtype))


def any_finite(values: Values, random: np.random.Generator) -> Values:
    """Random finite numbers of the dtype of `values`, of all magnitudes; a few elements of `values` are kept."""
    dtype = values.dtype
    numbers = random.integers(1 << 8 * dtype.itemsize, size=values.shape, dtype=f"u{dtype.itemsize}").view(dtype)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(numbers), numbers, values)


def differing(got: Exact, expected: Exact) -> NDArray[np.bool_]:
    """True for elements that differ in any bit: the sign of a zero counts, and NaNs with the same bits are equal."""
    # An integer 0 became +0.0 when `got` was converted from the output's dtype.
    bits = (np.ascontiguousarray(values).view(np.uint64) for values in (got, expected))
    differ: NDArray[np.bool_] = np.not_equal(*bits)
    return differ
