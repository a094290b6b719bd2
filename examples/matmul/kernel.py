"""Matrix product on a TPU, C = A B: the one file that an experiment changes.

Each grid step multiplies a strip of A, all of its columns, by a strip of B, all of its rows: the
sum over k is complete within one step, and no accumulator is kept from step to step. See the
kernel.py at the top of the repository for what the judge takes from this file.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "strip_matmul"
PROBLEM_DESCRIPTION = "matmul C = A B, added up in float32"

BM = 512
BN = 512
# A strip is 8 MiB and there are two of each, so that the next one travels while this one is used: 33 MiB with C's
# blocks, beyond the compiler's default of 16 MiB. A v5e has 128 MiB.
VMEM_LIMIT = 64 * 2**20


def multiply(a_ref, b_ref, c_ref):
    """One step: strip of A [BM, k] times strip of B [k, BN]; the compiler keeps the sums of a tile in registers."""
    c_ref[...] = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32).astype(c_ref.dtype)


def kernel_fn(a, b):
    """The product of a [m, k] and b [k, n]. Raises ValueError where a block does not divide m or n."""
    (m, k), n = a.shape, b.shape[1]
    for name, length, block in (("BM", m, BM), ("BN", n, BN)):
        if length % block:
            raise ValueError(f"expected {name} to divide {length}, got {name}={block}")
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // BM, n // BN),
        # j runs fastest: a strip of A stays in VMEM for a whole row of C, the strips of B pass by.
        in_specs=[
            pl.BlockSpec((BM, k), lambda i, j: (i, 0)),
            pl.BlockSpec((k, BN), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel"), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(a, b)


def compute_flops(m=8192, n=8192, k=8192):
    """FLOPs of one call: a multiplication and an addition for each of m n k."""
    return 2 * m * n * k


def get_tiling_meta(m=8192, n=8192, k=8192):
    """Grid, buffers and traffic: A is read once, B once for every strip of A."""
    grid = (m // BM, n // BN)
    return {
        "grid": grid,
        "buffers": {"a": ((BM, k), "bfloat16"), "b": ((k, BN), "bfloat16"), "c": ((BM, BN), "bfloat16")},
        "inputs": {"a": 2 * m * k, "b": 2 * k * n * grid[0]},
        "outputs": {"c": 2 * m * n},
    }
