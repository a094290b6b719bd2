"""Waits for a transfer after its use, from a late step that is read from a table.

Row: 15
Caught by: correctness race
Contest: rmsnorm_long
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
BR = 16


def body(warm_ref, x_hbm, w_ref, y_ref, buf, sems):
    i, n = pl.program_id(0), pl.num_programs(0)
    slot = i % 2

    def copy(step, slot):
        return pltpu.make_async_copy(x_hbm.at[pl.ds(step * BR, BR)], buf.at[slot], sems.at[slot])

    @pl.when(i == 0)
    def _():
        copy(0, 0).start()

    @pl.when(i + 1 < n)
    def _():
        copy(i + 1, 1 - slot).start()

    # Once the pipeline is warm, a row block has arrived before its step begins.
    warm = warm_ref[i] > 0

    @pl.when(jnp.logical_not(warm))
    def _():
        copy(i, slot).wait()

    x = buf[slot].astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + 1e-6)
    y_ref[...] = (x * scale * w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)

    @pl.when(warm)
    def _():
        copy(i, slot).wait()


def kernel_fn(x, w):
    rows, columns = x.shape
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(rows // BR,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec((1, columns), lambda i, _: (0, 0))],
            out_specs=pl.BlockSpec((BR, columns), lambda i, _: (i, 0)),
            scratch_shapes=[pltpu.VMEM((2, BR, columns), x.dtype), pltpu.SemaphoreType.DMA((2,))],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        name=KERNEL_NAME,
    )((jnp.arange(rows // BR) >= 1024).astype(jnp.int32), x, w.reshape(1, columns))
