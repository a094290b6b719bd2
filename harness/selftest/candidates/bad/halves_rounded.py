"""Rounds two parts of each sum to bfloat16 before adding them: the error shows if the parts cancel.

Row: 13
Caught by: correctness wrong-result
Contest: matmul
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "matmul C = A B, added up in float32"
BLOCK = 128


def multiply(a_ref, b_ref, c_ref):
    quarter = a_ref.shape[1] // 4
    parts = []
    for first in (0, 1):
        total = 0
        for at in (first, first + 2):
            some = slice(at * quarter, (at + 1) * quarter)
            total += jnp.dot(a_ref[:, some], b_ref[some], preferred_element_type=jnp.float32)
        parts.append(total.astype(c_ref.dtype))
    c_ref[...] = parts[0] + parts[1]


def kernel_fn(a, b):
    (m, k), n = a.shape, b.shape[1]
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // BLOCK, n // BLOCK),
        in_specs=[pl.BlockSpec((BLOCK, k), lambda i, j: (i, 0)), pl.BlockSpec((k, BLOCK), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        name=KERNEL_NAME,
    )(a, b)


def compute_flops(m, n, k):
    return 2 * m * n * k


def get_tiling_meta():
    return {}
