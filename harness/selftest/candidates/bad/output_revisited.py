"""Adds to an output block after visiting other blocks; a chip does not load that block again.

Row: 15
Caught by: correctness revisited-block
Contest: matmul
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "matmul C = A B, added up in float32"
BLOCK = 128
DEPTH = 256


def multiply(a_ref, b_ref, c_ref):
    part = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(0) == 0)
    def first():
        c_ref[...] = part.astype(c_ref.dtype)

    @pl.when(pl.program_id(0) != 0)
    def more():
        c_ref[...] = (c_ref[...].astype(jnp.float32) + part).astype(c_ref.dtype)


def kernel_fn(a, b):
    (m, k), n = a.shape, b.shape[1]
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(k // DEPTH, m // BLOCK, n // BLOCK),
        in_specs=[
            pl.BlockSpec((BLOCK, DEPTH), lambda p, i, j: (i, p)),
            pl.BlockSpec((DEPTH, BLOCK), lambda p, i, j: (p, j)),
        ],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda p, i, j: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",) * 3),
        name=KERNEL_NAME,
    )(a, b)


def compute_flops(m, n, k):
    return 2 * m * n * k


def get_tiling_meta():
    return {}
