"""Loops whose condition reads references: each turn reads what the turns before it wrote, as on the chip."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.hardware import chip
from harness.judge.evaluate.interpret import interpretation


def counted_in_the_body(count_ref: Any, limit_ref: Any) -> Any:
    def turn(i: Any) -> Any:
        count_ref[0] += 1
        return i + 1

    return jax.lax.while_loop(lambda i: (count_ref[0] < limit_ref[0]) & (i < 10), turn, 0)


def counted_from_a_result(count_ref: Any, limit_ref: Any) -> Any:
    def turn(values: tuple[Any, Any]) -> tuple[Any, Any]:
        count_ref[0] += 2
        return values[1], values[0] + 1

    first, second = jax.lax.while_loop(lambda _: count_ref[0] < 2 * limit_ref[0], turn, (0, 0))
    count_ref[0] = count_ref[0] // 2
    return first + second


def read_by_the_condition_alone(count_ref: Any, limit_ref: Any) -> Any:
    count_ref[0] = jax.lax.while_loop(lambda i: i < limit_ref[0], lambda i: i + 1, 0)
    return count_ref[0]


def within_another_loop(count_ref: Any, limit_ref: Any) -> Any:
    def until_two_more(i: Any, turns: Any) -> Any:
        def turn(j: Any) -> Any:
            count_ref[0] += 1
            return j + 1

        return turns + jax.lax.while_loop(lambda _: count_ref[0] < jnp.minimum(2 * i + 2, limit_ref[0]), turn, 0)

    return jax.lax.fori_loop(0, 3, until_two_more, 0)


def only_where_it_is_entered(count_ref: Any, limit_ref: Any) -> Any:
    def turn(i: Any) -> Any:
        count_ref[0] += 100
        return i + 1

    none = jax.lax.while_loop(lambda _: count_ref[0] > limit_ref[0], turn, 0)
    return none + counted_in_the_body(count_ref, limit_ref)


@pytest.mark.parametrize(
    "count",
    [
        counted_in_the_body,
        counted_from_a_result,
        read_by_the_condition_alone,
        within_another_loop,
        only_where_it_is_entered,
    ],
)
@pytest.mark.parametrize("limit", [0, 3, 5])
def test_a_condition_reads_what_was_written_last(count: Any, limit: int) -> None:
    def kernel(limit_ref: Any, x_ref: Any, o_ref: Any, count_ref: Any) -> None:
        count_ref[0] = 0
        turns = count(count_ref, limit_ref)
        o_ref[...] = x_ref[...] + (100 * turns + count_ref[0]).astype(jnp.float32)

    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(1,),
            in_specs=[pl.BlockSpec((8, 128), lambda i, _: (0, 0))],
            out_specs=pl.BlockSpec((8, 128), lambda i, _: (0, 0)),
            scratch_shapes=[pltpu.SMEM((1,), jnp.int32)],
        ),
    )
    limits, x = np.array([limit], np.int32), np.zeros((8, 128), np.float32)
    program = interpretation.runnable(jax.make_jaxpr(lambda *arrays: call(*arrays))(limits, x), True, chip("v5e"))
    (counted,) = program(limits, x)
    assert counted[0, 0] == 101 * limit
