"""Numbers that err at random where float32 rounds, so that a computation run on them shows its rounding errors."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.operators.rounding import relative_rounding, sum_variance, ulp

# Results of these functions are rounded once. Results of other functions, such as exponentials, err by up to one ulp.
_ROUNDED_ONCE = (np.add, np.subtract, np.multiply, np.negative, np.absolute, np.maximum, np.minimum, np.sign)
_EXACT = (np.negative, np.absolute, np.maximum, np.minimum, np.sign, np.floor, np.ceil, np.copysign, np.conjugate)
_ROUNDING = relative_rounding("float32")
_LARGEST = float(np.finfo(np.float32).max)
# About a thousand times the least normal number of float32. If a product is smaller, one of its factors may have been
# subnormal and flushed to 0.
_LEAST = 2.0**-116
_ONE_ULP = float(np.finfo(np.float32).eps) / 3**0.5


class Noisy(np.ndarray):
    """A float64 array in which every operation errs at random, as much as the same operation does in float32.

    Sums and products of matrices err as `sum_variance` says, for any order of addition. Functions that only move
    numbers, such as `np.where`, add no error. `random` determines the errors.
    """

    random: np.random.Generator | None

    def __array_finalize__(self, source: Any) -> None:
        """Takes over the generator of the array that this array is a part of."""
        self.random = getattr(source, "random", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """The result of the function with its errors; results that are not floats (comparisons) have none."""
        random = _random(inputs)
        if "out" in options:
            options["out"] = tuple(_plain(array) for array in options["out"])
        operands = [_plain(array) for array in inputs]
        exact = getattr(ufunc, method)(*operands, **options)
        if not isinstance(exact, np.ndarray | np.floating) or np.asarray(exact).dtype.kind != "f":
            return exact
        values = np.asarray(exact)
        if ufunc is np.matmul:
            variance = sum_variance(np.matmul(*map(np.square, operands)), values, max(1, operands[0].shape[-1]))
        elif ufunc is np.add and method in ("reduce", "accumulate", "reduceat"):
            terms = operands[0].size // max(1, values.size) if method == "reduce" else operands[0].shape[-1]
            squares = getattr(ufunc, method)(np.square(operands[0]), *operands[1:], **options)
            variance = sum_variance(squares, values, terms)
        elif ufunc in _EXACT:
            return noisy(values, random)
        else:
            return _err(values, values * (_ROUNDING if ufunc in _ROUNDED_ONCE else _ONE_ULP), random)
        return _err(values, np.sqrt(variance), random)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """The result of a function of numpy, with errors if the function is a sum."""
        if function in _ADDING:
            return _ADDING[function](*arguments, **options)
        random = _random((arguments, options))
        exact = function(*_plain(arguments), **_plain(options))
        return _each(exact, lambda values: noisy(values, random))


def noisy(values: NDArray[Any], random: np.random.Generator) -> Any:
    """The array as a `Noisy` array; unchanged if it holds no floats."""
    if np.asarray(values).dtype.kind != "f":
        return values
    array = np.asarray(values, np.float64).view(Noisy)
    array.random = random
    return array


def rounded_at_random(values: Any, dtype: str) -> Any:
    """A noisy array with a random error as large as that of rounding to `dtype`; other values unchanged."""
    if not isinstance(values, Noisy):
        return values
    plain = values.view(np.ndarray)
    return _err(plain, ulp(plain, dtype) / 12**0.5, _random((values,)))


def _err(values: NDArray[Any], deviation: NDArray[Any], random: np.random.Generator) -> Any:
    # Uniform over a width of sqrt(12) deviations, as a rounding error is uniform over one unit in the last place.
    drawn = random.random(np.shape(values), dtype=np.float32)
    drawn -= np.float32(0.5)
    drawn *= np.float32(12**0.5)
    # Numbers beyond float32 become infinite; very small numbers may become 0.
    values = np.where(np.abs(values) > _LARGEST, np.copysign(np.inf, values), values)
    deviation = np.where(np.abs(values) < _LEAST, np.abs(values), deviation)
    return noisy(values + np.where(np.isfinite(values), deviation, 0) * drawn, random)


def _einsum(subscripts: str, *operands: Any, **options: Any) -> Any:
    random = _random(operands)
    arrays = [_plain(array) for array in operands]
    values = np.asarray(np.einsum(subscripts, *arrays, **options))
    inputs, _, output = subscripts.replace(" ", "").partition("->")
    sizes = {
        axis: length
        for term, array in zip(inputs.split(","), arrays, strict=True)
        for axis, length in zip(term, array.shape, strict=True)
    }
    terms = int(np.prod([length for axis, length in sizes.items() if axis not in output], dtype=np.int64))
    squares = np.einsum(subscripts, *map(np.square, arrays), **options)
    return _err(values, np.sqrt(sum_variance(squares, values, max(1, terms))), random)


def _cumsum(array: Any, axis: int | None = None) -> Any:
    return np.add.accumulate(array if axis is not None else array.reshape(-1), axis=axis or 0)


def _mean(array: Any, axis: Any = None, keepdims: bool = False) -> Any:
    total = _sum(array, axis, keepdims)
    return total / (array.size // max(1, np.size(total)))


def _var(array: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _mean(np.square(array - _mean(array, axis, keepdims=True)), axis, keepdims)


def _sum(array: Any, axis: Any = None, keepdims: bool = False) -> Any:
    reduce: Any = np.add.reduce
    return reduce(array, axis=axis, keepdims=keepdims)


_ADDING: Mapping[Any, Callable[..., Any]] = {
    np.einsum: _einsum,
    np.dot: np.matmul,
    np.cumsum: _cumsum,
    np.mean: _mean,
    np.var: _var,
    np.sum: _sum,
}


def _random(values: Any) -> np.random.Generator:
    """The generator of the first noisy array among the values."""
    random = _first(values)
    assert random is not None, "expected a noisy array"
    return random


def _first(values: Any) -> np.random.Generator | None:
    if isinstance(values, Noisy):
        return values.random
    parts = values.values() if isinstance(values, Mapping) else values if isinstance(values, tuple | list) else ()
    return next((random for part in parts if (random := _first(part)) is not None), None)


def _plain(value: Any) -> Any:
    """The value with plain arrays in place of noisy ones."""
    if isinstance(value, Noisy):
        return value.view(np.ndarray)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_plain(part) for part in value)
    return value


def _each(values: Any, change: Callable[[Any], Any]) -> Any:
    """The result of `change` for the array, or for each array of a tuple or list."""
    if isinstance(values, tuple | list):
        return type(values)(_each(part, change) for part in values)
    return change(values) if isinstance(values, np.ndarray | np.floating) else values
