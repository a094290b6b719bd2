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


def read_behind_the_write(new_ref: Any, before_ref: Any, cache_ref: Any, rows_ref: Any, arrived: Any) -> None:
    copied(new_ref, rows_ref, cache_ref, arrived, to=0)
    copied(before_ref, rows_ref, cache_ref, arrived)


def in_a_loop(new_ref: Any, before_ref: Any, cache_ref: Any, rows_ref: Any, arrived: Any) -> None:
    def step(i: Any, _: None) -> None:
        pl.when(i == 0)(lambda: copied(new_ref, rows_ref, before_ref, arrived, to=0))
        pl.when(i == 1)(lambda: copied(cache_ref, rows_ref, before_ref, arrived))

    jax.lax.fori_loop(0, 2, step, None)


def while_it_counts(new_ref: Any, before_ref: Any, cache_ref: Any, rows_ref: Any, arrived: Any) -> None:
    def step(i: Any) -> Any:
        copied(before_ref, rows_ref, cache_ref, arrived)
        copied(new_ref, rows_ref, before_ref, arrived, to=0)
        return i + 1

    # The rows that the first turn writes are those that the second one reads.
    jax.lax.while_loop(lambda i: i < new_ref.shape[0] // 8 + 1, step, 0)


def in_a_scope(new_ref: Any, before_ref: Any, cache_ref: Any, _: Any, arrived: Any) -> None:
    def both(rows_ref: Any) -> None:
        copied(new_ref, rows_ref, before_ref, arrived, to=0)
        copied(cache_ref, rows_ref, cache_ref, arrived)

    pl.run_scoped(both, pltpu.VMEM((8, 128), jnp.float32))


def copied(source_ref: Any, rows_ref: Any, cache_ref: Any, arrived: Any, *, to: int = 8) -> None:
    """Copies the first eight rows of the source to the cache, by way of VMEM."""
    fetch = pltpu.make_async_copy(source_ref.at[pl.ds(0, 8)], rows_ref, arrived)
    fetch.start()
    fetch.wait()
    store = pltpu.make_async_copy(rows_ref, cache_ref.at[pl.ds(to, 8)], arrived)
    store.start()
    store.wait()


@pytest.mark.parametrize(
    ("body", "head"),
    [
        (through_the_input, 1.0),
        (through_the_output, 1.0),
        (through_both, 1.0),
        (read_behind_the_write, 2.0),
        (in_a_loop, 2.0),
        (while_it_counts, 2.0),
        (in_a_scope, 2.0),
    ],
)
def test_what_is_written_to_the_memory_of_both_is_the_result(body: Any, head: float) -> None:
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
    np.testing.assert_array_equal(written, np.concatenate([np.full_like(new, head), new]))
