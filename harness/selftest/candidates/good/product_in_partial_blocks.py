"""Streams blocks of rows that do not divide the matrix: the size of the last copies is known only at run time.

Caught by: nothing
Contest: matmul
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "matmul C = A B, added up in float32"
ROWS = 192


def outer(a_hbm, b_ref, c_hbm):
    m, k = a_hbm.shape

    def multiply(a_ref, c_ref):
        c_ref[...] = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32).astype(c_ref.dtype)

    pltpu.emit_pipeline(
        multiply,
        grid=(pl.cdiv(m, ROWS),),
        in_specs=[pl.BlockSpec((ROWS, k), lambda i: (i, 0))],
        out_specs=[pl.BlockSpec((ROWS, b_ref.shape[1]), lambda i: (i, 0))],
    )(a_hbm, c_hbm)


def kernel_fn(a, b):
    by_hand = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        outer,
        out_shape=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        in_specs=[by_hand, pl.BlockSpec(memory_space=pltpu.VMEM)],
        out_specs=by_hand,
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=100 * 2**20),
        name=KERNEL_NAME,
    )(a, b)
