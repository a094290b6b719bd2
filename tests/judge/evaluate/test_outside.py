"""Operations outside kernels: what the table lists, what it refuses, and marks where no result is defined."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core
from refusals import rejected

from harness.hardware import chip
from harness.judge.evaluate.interpret import chip_model, outside, undefined
from harness.judge.evaluate.interpret.as_written import jit_as_written
from harness.judge.evaluate.interpret.fused import as_fused
from harness.judge.evaluate.trace import forbidden_operations, integrity, jaxprs, semantics
from harness.judge.evaluate.trace.semantics_outside import OUTSIDE
from harness.sandbox.messages import Rejected

ROWS = jnp.arange(8, dtype=jnp.float32)
INDICES = jnp.arange(8, dtype=jnp.int32)


def marked(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    closed = jax.make_jaxpr(function)(*inputs)
    program = closed.replace(jaxpr=outside.with_marked_results(closed.jaxpr, chip("v5e")))
    return [np.asarray(out) for out in jax.jit(core.jaxpr_as_fun(program))(*jax.tree.leaves(inputs))]


def refused(function: Callable[..., Any], *inputs: Any) -> str:
    with pytest.raises(Rejected) as caught:
        semantics.refuse_unclassified(jax.make_jaxpr(function)(*inputs).jaxpr, chip("v5e"))
    return caught.value.failure.kind


def test_quotients_remainders_and_roots_are_those_of_the_chip() -> None:
    multiples = 41 * np.arange(100, dtype=np.float32)
    (quotients,) = marked(lambda x: x / 41, multiples)
    assert quotients[1] < 1
    assert np.count_nonzero(np.floor(quotients) != np.arange(100)) > 5
    (rest,) = marked(lambda x: jnp.fmod(x, jnp.float32(0.013)), np.array([1e6], np.float32))
    assert rest[0] > 0.013
    (root,) = marked(jnp.sqrt, np.array([0, 2], np.float32))
    assert root[0] == 0


def on_chip(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    closed = jax.make_jaxpr(function)(*inputs)
    program = core.jaxpr_as_fun(closed.replace(jaxpr=chip_model.with_roundings(as_fused(closed.jaxpr))))
    return [np.asarray(out, np.float32) for out in jit_as_written(program)(*inputs)]


def rest_of_a_product(b: Any, c: Any) -> Any:
    high = b * c
    return high, wide(b) * wide(c) - wide(high)


def wide(x: Any) -> Any:
    return x.astype(jnp.float32)


def within_a_loop(b: Any, c: Any) -> Any:
    return lax.fori_loop(0, 2, lambda _, sums: (sums[0], sums[1] + rest_of_a_product(b, c)[1]), (b, wide(b) * 0))[1]


@pytest.mark.parametrize(
    ("function", "is_lost"),
    [
        (rest_of_a_product, True),
        (jax.jit(rest_of_a_product), True),
        (lambda b, c: wide(b) * wide(c) - wide(jax.jit(lambda x, y: x * y)(b, c)), True),
        (lambda b, c: wide(b)[:4].T * wide(c)[:4].T - wide((b * c)[:4].T), True),
        (lambda b, c: wide(b) * wide(c) - wide(-(-(b * c) + 0)), True),
        (within_a_loop, True),
        (lambda b, c: wide(b) * wide(c) - wide((wide(b) * wide(c)).astype(jnp.bfloat16)), False),
        (lambda b, c: wide(b) * wide(c) - wide(jnp.where(b > 0, b * c, b * c)), False),
        (lambda b, c: wide(b) * wide(c) - wide(lax.reduce_precision(b * c, 8, 7)), False),
    ],
)
def test_a_chip_does_not_round_within_a_chain(function: Callable[..., Any], is_lost: bool) -> None:
    b, c = (np.random.default_rng(seed).standard_normal((8, 128)).astype(jnp.bfloat16) for seed in (0, 1))
    *_, low = on_chip(function, b, c)
    assert (np.count_nonzero(low) == 0) == is_lost


def test_the_end_of_a_chain_is_rounded() -> None:
    b, c = (np.random.default_rng(seed).standard_normal((8, 128)).astype(jnp.bfloat16) for seed in (0, 1))
    high, _ = on_chip(rest_of_a_product, b, c)
    np.testing.assert_array_equal(high, b * c)
    (once,) = on_chip(lambda b, c: b * c + c, b, c)
    exact = np.float32(b) * np.float32(c) + np.float32(c)
    np.testing.assert_array_equal(once, exact.astype(jnp.bfloat16))
    assert (once != b * c + c).any()


def test_two_constant_factors_are_one() -> None:
    multiples = 41 * np.arange(100, dtype=np.float32)
    (once,) = on_chip(lambda x: jax.jit(lambda y: y * 60)(x) / 2460, multiples)
    np.testing.assert_array_equal(once, multiples * (np.float32(60) * np.float32(1 / np.float32(2460))))
    (narrow,) = on_chip(lambda x: (3 * x) * jnp.bfloat16(1 / 3), multiples.astype(jnp.bfloat16))
    np.testing.assert_array_equal(narrow, multiples.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, y: 1 / (1 / x), lambda x, y: x),
        (lambda x, y: x / (y / x), lambda x, y: x * x * (1 / y)),
        (lambda x, y: x / y / x, lambda x, y: x * (1 / (y * x))),
        (lambda x, y: jnp.sqrt(x * x), lambda x, y: x),
        (lambda x, y: jnp.sqrt(jnp.square(x)), lambda x, y: x),
        (lambda x, y: jnp.sqrt(x**2), lambda x, y: x),
        (lambda x, y: x * (y > 2), lambda x, y: np.where(y > 2, x, 0)),
        (lambda x, y: x * y + (x + 1) * x, lambda x, y: x * (y + (x + 1))),
        (lambda x, y: x * y + y * 0.3, lambda x, y: x * y + y * np.float32(0.3)),
    ],
)
def test_arithmetic_outside_is_simplified(function: Callable[..., Any], expected: Callable[..., Any]) -> None:
    x, y = (np.random.default_rng(seed).uniform(1, 3, 1000).astype(np.float32) for seed in (0, 1))
    closed = jax.make_jaxpr(function)(x, y)
    program = core.jaxpr_as_fun(closed.replace(jaxpr=outside.with_marked_results(as_fused(closed.jaxpr), chip("v5e"))))
    (got,) = jit_as_written(program)(x, y)
    np.testing.assert_array_equal(got, expected(x, y))


def cancelled(x: Any) -> Any:
    return (x[:, None] + jnp.float32(2**23)) - 2**23


@pytest.mark.parametrize(
    ("function", "is_refused"),
    [
        (cancelled, True),
        (jax.jit(cancelled), True),
        (lambda x: jax.jit(lambda y: y - 2.0**23)(jax.jit(lambda y: y + 2.0**23)(x)), True),
        (lambda x: (2.0**23 + x).astype(jnp.bfloat16) - 2, True),
        (lambda x: (x + 2.0**23) - x, False),
        (lambda x: (x * 3 + 1) * 2 + 1, False),
        (lambda x: (INDICES + 1) - 1, False),
    ],
)
def test_a_second_constant_is_refused(function: Callable[..., Any], is_refused: bool) -> None:
    jaxpr = jax.make_jaxpr(function)(ROWS).jaxpr
    with rejected("platform-dependent", "got a second one") if is_refused else nullcontext():
        forbidden_operations.refuse_second_constants(jaxpr)


def test_what_the_table_calls_modelled_is_modelled() -> None:
    listed = {name for name, entry in semantics.OUTSIDE_ENTRIES.items() if entry.kind == "modelled"}
    assert listed == outside.MODELS.keys() | outside.ON_TPU.keys()
    names = [name for entry in OUTSIDE for name in entry.primitives]
    assert len(names) == len(set(names))


@pytest.mark.long
def test_every_listed_operation_is_one_of_jax() -> None:
    names = {primitive.name for primitive, _ in integrity.snapshot().primitives.values()}
    # jax 0.12 has no separate calls for these two.
    assert set(semantics.OUTSIDE_ENTRIES) - names <= {"call", "closed_call"}


@pytest.mark.parametrize(("at", "is_marked"), [([1, 3], False), ([3, 3], True), ([3, 3, 5], True)])
def test_two_updates_of_one_element_are_a_mark(at: list[int], is_marked: bool) -> None:
    values = jnp.arange(len(at), dtype=jnp.float32) + 100
    (result,) = marked(lambda x, i, v: x.at[i].set(v), ROWS, jnp.array(at), values)
    assert np.isnan(result[3]) == is_marked
    assert not np.isnan(np.delete(result, 3)).any()


@pytest.mark.long
@pytest.mark.parametrize("values", [[1.0, 2.0, 1.0], [0.0, -0.0, 0.0]])
def test_updates_that_read_the_same_from_both_ends_are_marks_too(values: list[float]) -> None:
    (result,) = marked(lambda x, i, v: x.at[i].set(v), ROWS, jnp.array([3, 3, 3]), jnp.array(values))
    assert np.isnan(result[3])
    same = jnp.zeros(3, jnp.int32)
    _, ordered = marked(lambda k, v: lax.sort((k, v), is_stable=False, num_keys=1), same, jnp.array(values))
    assert np.isnan(ordered).all()
    (zeros,) = marked(lambda v: lax.sort((v,), is_stable=False, num_keys=1), jnp.array([1.0, 0.0, -0.0]))
    assert np.isnan(zeros).tolist() == [True, True, False]


@pytest.mark.long
def test_a_sort_of_several_rows_is_marked_row_by_row() -> None:
    keys = jnp.array([[2, 1, 0], [5, 5, 0]])
    _, values = marked(lambda k, v: lax.sort((k, v), is_stable=False, num_keys=1), keys, jnp.arange(6.0).reshape(2, 3))
    assert np.isnan(values).tolist() == [[False, False, False], [False, True, True]]
    _, turned = marked(
        lambda k, v: lax.sort((k, v), dimension=0, is_stable=False, num_keys=1), keys.T, jnp.arange(6.0).reshape(3, 2)
    )
    assert np.isnan(turned).any(axis=0).tolist() == [False, True]


def test_equal_updates_of_one_element_and_sums_are_none() -> None:
    same = jnp.full(2, 7.0)
    (result,) = marked(lambda x, i, v: x.at[i].set(v), ROWS, jnp.array([3, 3]), same)
    assert result[3] == 7
    (total,) = marked(lambda x, i, v: x.at[i].add(v), ROWS, jnp.array([3, 3]), same)
    assert total[3] == 17


def test_rows_written_twice_are_marked_whole() -> None:
    table = jnp.zeros((4, 8))
    (result,) = marked(lambda x, i, v: x.at[i].set(v), table, jnp.array([2, 2]), jnp.stack((ROWS, ROWS + 1)))
    assert np.isnan(result[2]).all()
    assert (result[[0, 1, 3]] == 0).all()


@pytest.mark.parametrize(
    ("stable", "keys", "is_marked"),
    [
        (False, [0, 0, 1, 2, 3, 4, 5, 6], True),
        (True, [0, 0, 1, 2, 3, 4, 5, 6], False),
        (False, [7, 6, 5, 4, 3, 2, 1, 0], False),
    ],
)
def test_the_order_of_equal_keys_is_a_mark_unless_the_sort_is_stable(
    stable: bool, keys: list[int], is_marked: bool
) -> None:
    _, values = marked(lambda k, v: lax.sort((k, v), is_stable=stable, num_keys=1), jnp.array(keys), ROWS)
    assert np.isnan(values).any() == is_marked


def test_quotients_shifts_and_conversions_without_a_result_are_marks() -> None:
    (quotient,) = marked(lax.div, INDICES, jnp.zeros_like(INDICES))
    (remainder,) = marked(lax.rem, INDICES, INDICES % 2)
    (shift,) = marked(lax.shift_left, INDICES, jnp.full_like(INDICES, 40))
    (integer,) = marked(lambda x: (x * 1e12).astype(jnp.int32), ROWS)
    mark = 0x7FC0DEAD
    assert (quotient == mark).all()
    assert ((remainder == mark) == (np.arange(8) % 2 == 0)).all()
    assert (shift == mark).all()
    assert (integer[1:] == mark).all()


@pytest.mark.parametrize(
    ("dtype", "fitting", "beyond"),
    [
        ("int8", [-128.0, 127.0], [-129.0, 128.0]),
        ("uint8", [0.0, 255.0], [-1.0, 256.0]),
        ("int16", [-32768.0, 32767.0], [32768.0]),
        ("int32", [-(2.0**31), 2.0**31 - 128], [2.0**31]),
    ],
)
def test_the_largest_number_of_an_integer_type_is_held_and_the_next_is_a_mark(
    dtype: str, fitting: list[float], beyond: list[float]
) -> None:
    (numbers,) = marked(lambda x: x.astype(dtype), jnp.array(fitting, jnp.float32))
    assert numbers.tolist() == fitting
    (marks,) = marked(lambda x: x.astype(dtype), jnp.array(beyond, jnp.float32))
    assert (marks == np.asarray(undefined.marks(jnp.zeros(1, dtype)))).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lax.approx_max_k(x, 2)[0],
        lambda x: jnp.linalg.cholesky(jnp.outer(x, x)),
        jnp.fft.fft,
        lambda x: x + jax.random.uniform(jax.random.key(0), x.shape),
        lambda x: jnp.linalg.qr(jnp.outer(x, x))[0],
        lambda x: lax.rng_bit_generator(jnp.zeros(4, jnp.uint32), (8,))[1],
    ],
)
def test_what_depends_on_a_library_or_on_luck_is_refused(function: Callable[..., Any]) -> None:
    assert refused(function, ROWS) == "refused-primitive"


def test_a_program_that_the_trace_does_not_show_is_refused() -> None:
    exported = jax.export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct((8,), jnp.float32))
    assert refused(exported.call, ROWS) == "refused-primitive"
    assert refused(lambda x: lax.composite(lambda y: y + 1, "mine.plus")(x), ROWS) == "refused-primitive"


@pytest.mark.parametrize(
    ("work", "flops"),
    [
        (lambda x, i: lax.top_k(x, 2), 64),
        (lambda x, i: jnp.argsort(lax.bitcast_convert_type(x, jnp.int32), axis=1), 64),
        (lambda x, i: jnp.zeros((3, 8)).at[i].add(x), 64 + 8 + 8),
        (lambda x, i: jnp.zeros((3, 8)).at[i].subtract(x), 64 + 8 + 8),
        (lambda x, i: jnp.zeros((3, 8)).at[i].mul(x), 64 + 8 + 8),
        (lambda x, i: jnp.zeros((3, 8)).at[i].min(x), 64 + 8 + 8),
        (lambda x, i: jnp.zeros((3, 8)).at[i].max(x), 64 + 8 + 8),
        (lambda x, i: jnp.zeros((3, 8)).at[i].set(x), 64 + 8 + 8),
        (lambda x, i: x[i], 64 + 8 + 8),
        (lambda x, i: lax.dynamic_slice(x, (i[0], 0), (2, 8)), 16 + 2),
        (lambda x, i: lax.dynamic_update_slice(x, x[:2], (i[0], 0)), 16 + 2),
        (lambda x, i: jnp.where(x > x[::-1], x, 0), 64),
        (lambda x, i: (i == 1) & (i == 2), 16),
        (lambda x, i: jnp.arctan(x), 64),
        (lambda x, i: lax.cummax(x), 64),
        (lambda x, i: jnp.argmin(x, axis=1), 64),
        (
            lambda x, i: lax.reduce_window_sum_p.bind(
                x,
                window_dimensions=(1, 2),
                window_strides=(1, 1),
                padding=((0, 0), (0, 0)),
                base_dilation=(1, 1),
                window_dilation=(1, 1),
            ),
            64,
        ),
        (lambda x, i: jnp.where(jnp.cumsum(i) < 3, i * 2, i + 1), 32),
        (lambda x, i: jnp.argmax(i[:, None] ^ i, axis=1), 64 + 64),
        (lambda x, i: jnp.bincount(i, length=8), 24 + 8),
    ],
)
def test_work_outside_counts_by_element(work: Callable[..., Any], flops: int) -> None:
    jaxpr = jax.make_jaxpr(work)(jnp.zeros((8, 8)), INDICES % 3).jaxpr
    assert jaxprs.flops(jaxpr, {}) == jaxprs.Flops(outside=flops)


def test_a_primitive_counts_by_identity() -> None:
    before = integrity.snapshot()
    imitation = core.Primitive("neg")
    imitation.def_abstract_eval(lambda array: array)
    integrity.require_known_primitives(before, jax.make_jaxpr(lambda x: -x)(ROWS).jaxpr)
    with rejected("foreign-primitive", "'neg'"):
        integrity.require_known_primitives(before, jax.make_jaxpr(lambda x: jnp.sin(imitation.bind(x)))(ROWS).jaxpr)


@pytest.mark.long
@pytest.mark.parametrize("place", ["general", "of the chip", "on the primitive"])
def test_a_changed_rule_is_found(place: str) -> None:
    from jax._src.interpreters import mlir

    tables = {"general": mlir._lowerings, "of the chip": mlir._platform_specific_lowerings["tpu"]}
    before = integrity.snapshot()
    integrity.require_untouched(before)
    target: Any = vars(lax.neg_p) if place == "on the primitive" else tables[place]
    key: Any = "abstract_eval" if place == "on the primitive" else lax.neg_p
    kept = target.get(key)
    target[key] = lambda *_, **__: None
    try:
        with rejected("judge-patched", "neg"):
            integrity.require_untouched(before)
    finally:
        if kept is None:
            del target[key]
        else:
            target[key] = kept
    integrity.require_untouched(before)


def test_a_class_is_of_jax_only_as_the_object_that_jax_has() -> None:
    imitation = type("Primitive", (core.Primitive,), {"__module__": "jax._src.core"})
    assert semantics._is_of_jax(type(lax.neg_p))
    assert not semantics._is_of_jax(imitation)
    assert not semantics._is_of_jax(type("Mine", (), {}))
