"""Fills a buffer again, eight steps later, without waiting for the copy out of it; the end waits for all copies.

Row: 15
Caught by: correctness race; correctness wrong-result
Contest: rmsnorm
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "rmsnorm of a sum with a residual; the sum is an output too"
BLOCK = 16
SLOTS = 8
EPS = 1e-6


def add_and_normalise(x_ref, r_ref, w_ref, y_hbm, h_hbm, y_ref, h_ref, sent):
    step, steps = pl.program_id(0), pl.num_programs(0)

    def copies(index):
        slot, some = jax.lax.rem(index, SLOTS), pl.ds(index * BLOCK, BLOCK)
        return (
            pltpu.make_async_copy(y_ref.at[slot], y_hbm.at[some], sent.at[0]),
            pltpu.make_async_copy(h_ref.at[slot], h_hbm.at[some], sent.at[1]),
        )

    slot = jax.lax.rem(step, SLOTS)
    h = x_ref[...].astype(jnp.float32) + r_ref[...].astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(h * h, axis=1, keepdims=True) + EPS)
    h_ref[slot] = h.astype(h_ref.dtype)
    y_ref[slot] = (h * scale * w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)
    for copy in copies(step):
        copy.start()

    @pl.when(step == steps - 1)
    def drain():
        @pl.loop(0, steps)
        def _(index):
            for copy in copies(index):
                copy.wait()


def kernel_fn(x, r, w):
    rows, columns = x.shape
    block = pl.BlockSpec((BLOCK, columns), lambda i: (i, 0))
    return pl.pallas_call(
        add_and_normalise,
        out_shape=(jax.ShapeDtypeStruct(x.shape, x.dtype),) * 2,
        grid=(rows // BLOCK,),
        in_specs=[block, block, pl.BlockSpec((1, columns), lambda i: (0, 0))],
        out_specs=(pl.BlockSpec(memory_space=pl.ANY),) * 2,
        scratch_shapes=[*[pltpu.VMEM((SLOTS, BLOCK, columns), x.dtype)] * 2, pltpu.SemaphoreType.DMA((2,))],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        name=KERNEL_NAME,
    )(x, r, w.reshape(1, columns))


def compute_flops(rows, columns):
    return 5 * rows * columns


def get_tiling_meta():
    return {}
