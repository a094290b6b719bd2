"""The program that is checked on a CPU computes what the chip computes, where XLA on a CPU would not."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.extend import core
from numpy.typing import NDArray

from harness.hardware import chip
from harness.judge.evaluate.interpret import interpretation, undefined

pytestmark = pytest.mark.long

BFLOAT16 = ml_dtypes.bfloat16
# It moves in jax 0.12.
RECIPROCAL = getattr(pltpu, "reciprocal", None) or pl.reciprocal
X = np.random.default_rng(0).standard_normal((16, 128), dtype=np.float32)
NARROW = (X * 20).astype(BFLOAT16)


def on(name: str, function: Callable[..., Any], *arrays: Any, checked: bool = False) -> NDArray[Any]:
    """The result of `function`, as the body of a kernel, on `arrays` on that chip, as float64 or as integers."""
    shape = jax.eval_shape(function, *arrays)

    def body(*refs: Any) -> None:
        refs[-1][...] = function(*(ref[...] for ref in refs[:-1]))

    call = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(shape.shape, shape.dtype))
    interpret = interpretation.checking_parameters(chip(name), 1) if checked else True
    program = interpretation.runnable(jax.make_jaxpr(lambda *a: call(*a))(*arrays), interpret, chip(name))
    out = np.asarray(jax.jit(program)(*arrays)[0])
    return out if np.issubdtype(out.dtype, np.integer) else out.astype(np.float64)


def rounded(values: Any) -> NDArray[np.float64]:
    return np.asarray(values).astype(np.float32).astype(BFLOAT16).astype(np.float64)


def product(precision: Any, preferred: Any = jnp.float32) -> Callable[..., Any]:
    return lambda a, b: jnp.dot(a, b, precision=precision, preferred_element_type=preferred)


@pytest.mark.parametrize("checked", [False, True])
def test_a_product_of_float32_is_one_of_bfloat16_by_default(checked: bool) -> None:
    y = X[:, ::-1].T.copy()
    exact, coarse = X.astype(np.float64) @ y, rounded(X) @ rounded(y)
    default = on("v5e", product(None), X, y, checked=checked)
    np.testing.assert_allclose(default, coarse, atol=1e-5)
    assert np.abs(default - exact).max() > 1e-3
    np.testing.assert_allclose(on("v5e", product(lax.Precision.HIGHEST), X, y, checked=checked), exact, atol=1e-5)
    high = np.abs(on("v5e", product(lax.Precision.HIGH), X, y) - exact).max()
    assert 1e-6 < high < 1e-3


def test_the_default_precision_of_a_context_counts() -> None:
    y = X.T.copy()
    with jax.default_matmul_precision("highest"):
        result = on("v6e", product(None), X, y)
    np.testing.assert_allclose(result, X.astype(np.float64) @ y, rtol=1e-5, atol=1e-4)


def test_the_float32_of_a_mixed_product_is_rounded() -> None:
    result = on("v6e", product(None), NARROW, X.T.copy())
    np.testing.assert_allclose(result, NARROW.astype(np.float64) @ rounded(X.T), rtol=1e-5, atol=1e-4)


def test_an_exponential_of_bfloat16_multiplies_in_bfloat16_on_v6e() -> None:
    x = NARROW.astype(np.float64)
    exact = np.exp(x)
    np.testing.assert_allclose(on("v5e", jnp.exp, NARROW), rounded(exact), rtol=2.0**-8)
    by_two = 2.0 ** rounded(x * float(BFLOAT16(np.log2(np.e))))
    np.testing.assert_allclose(on("v6e", jnp.exp, NARROW), rounded(by_two), rtol=2.0**-8)
    assert np.abs(on("v6e", jnp.exp, NARROW) / exact - 1).max() > 0.02


@pytest.mark.parametrize("name", ["v5e", "v6e"])
@pytest.mark.parametrize("function", [jnp.exp2, lambda x: jnp.power(jnp.bfloat16(2), x)])
def test_a_power_of_two_is_rounded_once(name: str, function: Callable[..., Any]) -> None:
    expected = 2.0 ** NARROW.astype(np.float64)
    np.testing.assert_allclose(on(name, function, NARROW), rounded(expected), rtol=2.0**-8)


def test_quotients_of_bfloat16_multiply_by_a_rounded_inverse_on_v6e() -> None:
    y = (np.abs(X) + 0.5).astype(BFLOAT16)
    x, inverse = NARROW.astype(np.float64), rounded(1 / y.astype(np.float64))
    np.testing.assert_array_equal(on("v6e", lax.div, NARROW, y), rounded(x * inverse))
    np.testing.assert_array_equal(on("v5e", lax.div, NARROW, y), rounded(x / y.astype(np.float64)))
    np.testing.assert_allclose(on("v6e", jnp.sqrt, y), np.sqrt(y.astype(np.float64)), rtol=2.0**-7)
    assert (on("v6e", jnp.sqrt, np.zeros((16, 128), BFLOAT16)) == 0).all()


def test_steps_of_one_operation_are_rounded() -> None:
    x = NARROW.astype(np.float64)
    np.testing.assert_array_equal(on("v5e", lambda x: x**3, NARROW), rounded(rounded(x * x) * x))
    steps = rounded(1 / rounded(1 + rounded(np.exp(-x))))
    np.testing.assert_allclose(on("v5e", lax.logistic, NARROW), steps, rtol=2.0**-8)


def test_an_approximate_reciprocal_is_the_exact_one_on_v6e() -> None:
    approximate = lambda x: RECIPROCAL(x, approx=True)  # noqa: E731
    np.testing.assert_array_equal(on("v6e", approximate, X), on("v6e", lambda x: 1 / x, X))
    assert np.abs(on("v5e", approximate, X) * X - 1).max() > 1e-3


def test_a_false_hint_changes_what_it_is_about() -> None:
    positions = np.arange(16 * 128, dtype=np.int32).reshape(16, 128)
    result = on("v5e", lambda x: pl.multiple_of(8 * x + 4, 8), positions)
    np.testing.assert_array_equal(result, 8 * positions)
    result = on("v5e", lambda x: pl.multiple_of(8 * x, 8), positions)
    np.testing.assert_array_equal(result, 8 * positions)


def test_narrower_integers_keep_the_low_bits() -> None:
    # `vpack.c.b16` and `vpack.c.b8` are the same for both signs, so that they cannot saturate.
    integers = np.arange(-1024, 1024, dtype=np.int32).reshape(16, 128) * 331
    for dtype in (jnp.int16, jnp.uint16, jnp.int8, jnp.uint8):
        result = on("v5e", lambda x, dtype=dtype: x.astype(dtype).astype(jnp.int32), integers)
        np.testing.assert_array_equal(result, integers.astype(dtype).astype(np.int32))


def test_results_that_nothing_defines_show() -> None:
    integers = np.arange(-1024, 1024, dtype=np.int32).reshape(16, 128)
    for function, is_defined in (
        (lambda x: lax.div(x, x), integers != 0),
        (lambda x: lax.rem(x, x), integers != 0),
        (lambda x: lax.shift_left(x, x), (integers >= 0) & (integers < 32)),
        (lambda x: lax.shift_right_logical(x, x), (integers >= 0) & (integers < 32)),
        (lambda x: lax.shift_right_arithmetic(x, x), (integers >= 0) & (integers < 32)),
        (lambda x: x.astype(jnp.int4).astype(jnp.int32), (integers >= -8) & (integers < 8)),
        (lambda x: (x.astype(jnp.float32) * 1e7).astype(jnp.int32), np.abs(integers) < 215),
    ):
        result, as_is = on("v5e", function, integers), np.asarray(jax.jit(function)(integers))
        np.testing.assert_array_equal(result[is_defined], as_is[is_defined])
        assert len(np.unique(result[~is_defined])) == 1
        assert (result[~is_defined] != as_is[~is_defined]).mean() > 0.9


@pytest.mark.parametrize("operation", [lax.div, lax.rem, lax.shift_left])
def test_a_column_and_a_row_of_integers_meet_in_every_element(operation: Callable[..., Any]) -> None:
    column, row = np.arange(1, 17, dtype=np.int32)[:, None], np.arange(1, 129, dtype=np.int32)[None] % 32
    row[row == 0] = 1

    def function(x: Any, y: Any) -> Any:
        return operation(x, y).astype(jnp.int32)

    for checked in (False, True):
        result = on("v5e", function, column, row, checked=checked)
        np.testing.assert_array_equal(result, np.asarray(jax.jit(function)(column, row)))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_a_comparison_of_a_column_and_a_row_with_memory_that_nothing_wrote_is_flipped(dtype: Any) -> None:
    column, row = np.arange(16, dtype=dtype)[:, None], np.arange(128, dtype=dtype)[None].copy()
    row[0, 5] = np.asarray(undefined.marked_memory(jnp.zeros((), dtype)))
    closed = jax.make_jaxpr(lambda x, y: x < y)(column, row)
    flipped = closed.replace(jaxpr=undefined.with_flipped_comparisons(closed.jaxpr))
    (result,) = core.jaxpr_as_fun(flipped)(column, row)
    expected = column < row
    expected[:, 5] = True
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("start", "is_within"), [(0, True), (8, True), (9, False), (-1, False)])
def test_a_slice_beyond_its_array_shows(start: int, is_within: bool) -> None:
    def copy(start_ref: Any, x_ref: Any, read_ref: Any, written_ref: Any) -> None:
        rows = pl.ds(start_ref[0, 0], 8)
        read_ref[...] = x_ref[rows, :]
        written_ref[...] = jnp.zeros_like(written_ref)
        written_ref[rows, :] = jnp.ones_like(read_ref)

    half, whole = (jax.ShapeDtypeStruct((rows, 128), jnp.float32) for rows in (8, 16))
    call = pl.pallas_call(copy, out_shape=(half, whole))
    arrays = np.full((1, 1), start, np.int32), X
    program = interpretation.runnable(jax.make_jaxpr(lambda *a: call(*a))(*arrays), True, chip("v5e"))
    read, written = jax.jit(program)(*arrays)
    assert bool(np.isnan(read).all()) is not is_within
    assert bool(np.isnan(written).any()) is not is_within


def sum_over(*axes: int) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        total = jax.lax.reduce_sum_p.bind(x, axes=axes, out_sharding=None)
        return jnp.broadcast_to(jnp.expand_dims(total, axes), x.shape)

    return function


LONG = np.random.default_rng(3).standard_normal((64, 512), dtype=np.float32).astype(BFLOAT16)


@pytest.mark.parametrize("axes", [(0,), (1,)])
@pytest.mark.parametrize("name", ["v4", "v5e", "v5p"])
def test_a_sum_of_bfloat16_is_rounded_once_where_it_is_added_in_float32(name: str, axes: tuple[int, ...]) -> None:
    exact = rounded(LONG.astype(np.float32).sum(axis=axes, keepdims=True, dtype=np.float64))
    result = on(name, sum_over(*axes), LONG)
    np.testing.assert_allclose(result, np.broadcast_to(exact, LONG.shape), rtol=2**-7)
    assert (result == exact).mean() > 0.95


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("name", ["v6e", "v7x"])
def test_a_sum_of_bfloat16_is_rounded_register_by_register(name: str, checked: bool) -> None:
    # Rows: 4 registers of 16 rows one after the other, then their rows in float32.
    registers = LONG.astype(np.float64).reshape(4, 16, 512)
    total = registers[0]
    for register in registers[1:]:
        total = rounded(total + register)
    expected = rounded(total.sum(axis=0))
    np.testing.assert_array_equal(on(name, sum_over(0), LONG, checked=checked)[0], expected)
    # Lanes: 4 registers of 128 lanes, then halves of what is left, rounded each time.
    parts = LONG.astype(np.float64).reshape(64, 4, 128)
    total = parts[:, 0]
    for place in range(1, 4):
        total = rounded(total + parts[:, place])
    while total.shape[1] > 1:
        low, high = np.split(total, 2, axis=1)
        total = rounded(low + high)
    result = on(name, sum_over(1), LONG, checked=checked)[:, :1]
    np.testing.assert_array_equal(result, total)
    once = rounded(LONG.astype(np.float64).sum(axis=1, keepdims=True))
    assert (result != once).mean() > 0.3


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("mode", ["fill", "promise_in_bounds"])
def test_an_element_beyond_its_axis_is_a_mark(mode: str, checked: bool) -> None:
    def gathered(axis: int) -> Callable[..., Any]:
        return lambda x, places: jnp.take_along_axis(x, places, axis, mode=mode)

    lanes = np.broadcast_to(np.arange(128, dtype=np.int32)[::-1], X.shape).copy()
    np.testing.assert_array_equal(on("v6e", gathered(1), X, lanes, checked=checked), X[:, ::-1])
    lanes[3, 5] = 128
    result = on("v6e", gathered(1), X, lanes, checked=checked)
    assert np.isnan(result[3, 5])
    assert np.isnan(result).sum() == 1
    rows = np.zeros((8, 128), np.int32)
    rows[0, 0] = 8
    result = on("v5e", gathered(0), np.arange(8 * 128, dtype=np.int32).reshape(8, 128), rows, checked=checked)
    assert abs(int(result[0, 0])) > 1 << 20
    np.testing.assert_array_equal(result[1:], np.broadcast_to(np.arange(128), (7, 128)))


@pytest.mark.parametrize("checked", [False, True])
def test_narrow_numbers_are_packed_into_words_and_come_out_again(checked: bool) -> None:
    large = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, (4, 16, 128), dtype=np.int32)
    words = on("v6e", lambda *x: pltpu.pack_elementwise(x, packed_dtype=jnp.int8), *large, checked=checked)
    bytes_of_words = words.astype(np.uint32)[..., None].view(np.int8)
    np.testing.assert_array_equal(bytes_of_words, np.moveaxis(large.astype(np.int8), 0, -1))
    unpack = functools.partial(pltpu.unpack_elementwise, index=2, packed_dtype=jnp.int8, unpacked_dtype=jnp.int32)
    np.testing.assert_array_equal(on("v6e", unpack, words.astype(np.uint32), checked=checked), large[2].astype(np.int8))

    both = on("v6e", lambda *x: pltpu.pack_elementwise(x, packed_dtype=jnp.bfloat16), X, -X, checked=checked)
    for place, values in enumerate((X, -X)):
        unpack = functools.partial(
            pltpu.unpack_elementwise, index=place, packed_dtype=jnp.bfloat16, unpacked_dtype=jnp.float32
        )
        np.testing.assert_array_equal(on("v6e", unpack, both.astype(np.uint32), checked=checked), rounded(values))


def test_the_negation_of_zero_is_plus_zero() -> None:
    assert not np.signbit(on("v5e", lambda x: -x, np.zeros((8, 128), np.float32))).any()


def test_powers_of_two_of_float32_are_right_to_the_last_places() -> None:
    x = np.concatenate([X.ravel() * 40, [0.0, -0.0, 127.5, 128.0, -126.0, -200.0, 1e9, -1e9, np.inf, -np.inf, np.nan]])
    x = np.pad(x, (0, -len(x) % 128)).astype(np.float32).reshape(-1, 128)
    got = on("v5e", jnp.exp2, x)
    with np.errstate(all="ignore"):
        right = np.exp2(x.astype(np.float64))
    right = np.where(right < 2.0**-126, 0, np.where(right >= 2.0**128, np.inf, right))
    np.testing.assert_allclose(np.where(got < 2.0**-126, 0, got), right, rtol=4e-7)


def test_log1p_of_float32_rounds_the_sum_as_the_compiler_does() -> None:
    x = np.array([[1e-4, 4.4e-4, 4.5e-4, 1e-3, 0.5, 3.0, -0.5, -4e-4] * 16], np.float32)
    got = on("v5e", jnp.log1p, x)
    wide = x.astype(np.float64)
    summed = np.log((x + np.float32(1)).astype(np.float64))
    stated = np.where(np.abs(wide) < 0.0004427343, (1 - wide / 2) * wide, summed)
    np.testing.assert_allclose(got, stated, rtol=1e-6)
    assert np.abs(got / np.log1p(wide) - 1).max() > 3e-5
