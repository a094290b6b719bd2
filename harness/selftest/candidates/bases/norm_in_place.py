"""RMSNorm of a sum with a residual, which is fetched, summed and stored by hand in one buffer of two slots."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "rmsnorm of a sum with a residual; the sum is an output too"
BLOCK = 16
SLOTS = 2
EPS = 1e-6


def add_and_normalise(x_hbm, r_ref, w_ref, y_ref, h_hbm, buf, fetched, stored):
    step, steps = pl.program_id(0), pl.num_programs(0)

    def fetch(index):
        slot = jax.lax.rem(index, SLOTS)
        return pltpu.make_async_copy(x_hbm.at[pl.ds(index * BLOCK, BLOCK)], buf.at[slot], fetched.at[slot])

    def store(index):
        slot = jax.lax.rem(index, SLOTS)
        return pltpu.make_async_copy(buf.at[slot], h_hbm.at[pl.ds(index * BLOCK, BLOCK)], stored.at[slot])

    @pl.when(step == 0)
    def begin():
        fetch(step).start()

    # The slot of the next block is free as soon as what it holds has been stored.
    @pl.when(step >= SLOTS - 1)
    def free():
        store(step - SLOTS + 1).wait()

    @pl.when(step + 1 < steps)
    def ahead():
        fetch(step + 1).start()

    fetch(step).wait()
    slot = jax.lax.rem(step, SLOTS)
    h = buf[slot].astype(jnp.float32) + r_ref[...].astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(h * h, axis=1, keepdims=True) + EPS)
    y_ref[...] = (h * scale * w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)
    buf[slot] = h.astype(buf.dtype)
    store(step).start()

    @pl.when(step == steps - 1)
    def drain():
        @pl.loop(steps - SLOTS + 1, steps)
        def _(index):
            store(index).wait()


def kernel_fn(x, r, w):
    rows, columns = x.shape
    block, by_hand = pl.BlockSpec((BLOCK, columns), lambda i: (i, 0)), pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        add_and_normalise,
        out_shape=(jax.ShapeDtypeStruct(x.shape, x.dtype),) * 2,
        grid=(rows // BLOCK,),
        in_specs=[by_hand, block, pl.BlockSpec((1, columns), lambda i: (0, 0))],
        out_specs=(block, by_hand),
        scratch_shapes=[
            pltpu.VMEM((SLOTS, BLOCK, columns), x.dtype),
            pltpu.SemaphoreType.DMA((SLOTS,)),
            pltpu.SemaphoreType.DMA((SLOTS,)),
        ],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        name=KERNEL_NAME,
    )(x, r, w.reshape(1, columns))


def compute_flops(rows, columns):
    return 5 * rows * columns


def get_tiling_meta():
    return {}
