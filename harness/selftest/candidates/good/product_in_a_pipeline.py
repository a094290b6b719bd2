"""Streams blocks through a pipeline inside the kernel, and drops by a select what it reads before it was written.

Caught by: nothing
Contest: matmul
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "matmul C = A B, added up in float32"
BLOCK = 128


def outer(a_hbm, b_hbm, c_hbm, acc_ref):
    (m, k), n = a_hbm.shape, b_hbm.shape[1]
    steps = k // BLOCK

    def multiply(a_ref, b_ref, c_ref):
        step = pl.program_id(2)
        product = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32)
        total = jnp.where(step == 0, product, acc_ref[...] + product)

        @pl.when(step < steps - 1)
        def keep():
            acc_ref[...] = total

        @pl.when(step == steps - 1)
        def finish():
            c_ref[...] = total.astype(c_ref.dtype)

    pltpu.emit_pipeline(
        multiply,
        grid=(m // BLOCK, n // BLOCK, steps),
        in_specs=[
            pl.BlockSpec((BLOCK, BLOCK), lambda i, j, p: (i, p)),
            pl.BlockSpec((BLOCK, BLOCK), lambda i, j, p: (p, j)),
        ],
        out_specs=[pl.BlockSpec((BLOCK, BLOCK), lambda i, j, p: (i, j))],
    )(a_hbm, b_hbm, c_hbm)


def kernel_fn(a, b):
    by_hand = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        outer,
        out_shape=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
        in_specs=[by_hand, by_hand],
        out_specs=by_hand,
        scratch_shapes=[pltpu.VMEM((BLOCK, BLOCK), jnp.float32)],
        name=KERNEL_NAME,
    )(a, b)


def compute_flops(m, n, k):
    return 2 * m * n * k


def get_tiling_meta():
    return {}
