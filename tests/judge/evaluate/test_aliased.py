"""Kernels that write an input that is aliased to their output: the result is what they wrote, as on the chip."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.hardware import chip
from harness.judge.evaluate.interpret import interpretation

ROWS = 16


def through_the_input(new_ref: Any, cache_ref: Any, _: Any, rows_ref: Any, arrived: Any) -> None:
    copied(new_ref, rows_ref, cache_ref, arrived)


def through_the_output(new_ref: Any, _: Any, cache_ref: Any, rows_ref: Any, arrived: Any) -> None:
    copied(new_ref, rows_ref, cache_ref, arrived)


def through_both(new_ref: Any, before_ref: Any, cache_ref: Any, rows_ref: Any, arrived: Any) -> None:
    copied(before_ref, rows_ref, cache_ref, arrived)
    copied(new_ref, rows_ref, cache_ref, arrived)


def copied(source_ref: Any, rows_ref: Any, cache_ref: Any, arrived: Any) -> None:
    fetch = pltpu.make_async_copy(source_ref.at[pl.ds(0, 8)], rows_ref, arrived)
    fetch.start()
    fetch.wait()
    store = pltpu.make_async_copy(rows_ref, cache_ref.at[pl.ds(8, 8)], arrived)
    store.start()
    store.wait()


# Jax 0.12 takes from a kernel's effects which references it writes, and those name the input: there it is refused.
IS_NEWER = tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 11)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(through_the_input, marks=pytest.mark.xfail(IS_NEWER, reason="not yet with jax 0.12", strict=True)),
        through_the_output,
        through_both,
    ],
)
def test_what_is_written_to_the_memory_of_both_is_the_result(body: Any) -> None:
    new, cache = (np.full((rows, 128), value, np.float32) for rows, value in ((8, 2.0), (ROWS, 1.0)))
    in_hbm = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(cache.shape, jnp.float32),
        in_specs=[in_hbm, in_hbm],
        out_specs=in_hbm,
        input_output_aliases={1: 0},
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA],
    )
    program = interpretation.runnable(jax.make_jaxpr(lambda *arrays: call(*arrays))(new, cache), True, chip("v5e"))
    (written,) = program(new, cache)
    np.testing.assert_array_equal(written, np.concatenate([cache[:8], new]))
