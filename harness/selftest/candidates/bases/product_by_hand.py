"""A product whose last rows are copied by a size that is known at run time only."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "matmul C = A B, added up in float32"
ROWS = 192


def multiply(a_hbm, b_ref, c_hbm, a_ref, c_ref, semaphore):
    m = a_hbm.shape[0]
    first = pl.program_id(0) * ROWS
    rows = jnp.minimum(ROWS, m - first)
    read = pltpu.make_async_copy(a_hbm.at[pl.ds(first, rows)], a_ref.at[pl.ds(0, rows)], semaphore)
    read.start()
    read.wait()
    c_ref[...] = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32).astype(c_ref.dtype)
    write = pltpu.make_async_copy(c_ref.at[pl.ds(0, rows)], c_hbm.at[pl.ds(first, rows)], semaphore)
    write.start()
    write.wait()


def kernel_fn(a, b):
    (m, k), n = a.shape, b.shape[1]
    by_hand = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        multiply,
        grid=(pl.cdiv(m, ROWS),),
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        in_specs=[by_hand, pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=by_hand,
        scratch_shapes=[pltpu.VMEM((ROWS, k), a.dtype), pltpu.VMEM((ROWS, n), a.dtype), pltpu.SemaphoreType.DMA],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=100 * 2**20),
        name=KERNEL_NAME,
    )(a, b)
