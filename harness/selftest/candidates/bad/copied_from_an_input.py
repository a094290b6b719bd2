"""Sends its sum out of the buffer of an input, into which the pipeline fetches the next block but one meanwhile.

Row: 15
Caught by: correctness race; correctness inputs-changed; correctness wrong-result
Contest: rmsnorm
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "rmsnorm of a sum with a residual; the sum is an output too"
BLOCK = 16
EPS = 1e-6


def add_and_normalise(x_ref, r_ref, w_ref, y_ref, h_hbm, sent):
    step, steps = pl.program_id(0), pl.num_programs(0)

    def copy(index):
        return pltpu.make_async_copy(x_ref, h_hbm.at[pl.ds(index * BLOCK, BLOCK)], sent)

    h = x_ref[...].astype(jnp.float32) + r_ref[...].astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(h * h, axis=1, keepdims=True) + EPS)
    x_ref[...] = h.astype(x_ref.dtype)

    @pl.when(step > 0)
    def before():
        copy(step - 1).wait()

    copy(step).start()
    y_ref[...] = (h * scale * w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)

    @pl.when(step == steps - 1)
    def last():
        copy(step).wait()


def kernel_fn(x, r, w):
    rows, columns = x.shape
    block = pl.BlockSpec((BLOCK, columns), lambda i: (i, 0))
    return pl.pallas_call(
        add_and_normalise,
        out_shape=(jax.ShapeDtypeStruct(x.shape, x.dtype),) * 2,
        grid=(rows // BLOCK,),
        in_specs=[block, block, pl.BlockSpec((1, columns), lambda i: (0, 0))],
        out_specs=(block, pl.BlockSpec(memory_space=pl.ANY)),
        scratch_shapes=[pltpu.SemaphoreType.DMA],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        name=KERNEL_NAME,
    )(x, r, w.reshape(1, columns))


def compute_flops(rows, columns):
    return 5 * rows * columns


def get_tiling_meta():
    return {}
