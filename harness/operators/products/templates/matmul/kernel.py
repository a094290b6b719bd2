"""Matrix product on a TPU, C = A B: the one file that an experiment changes.

The honest naive kernel to start from: one block of A against one block of B in each grid step, added
up in float32. The judge traces kernel_fn and checks what compute_flops() and get_tiling_meta()
claim.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_matmul"
PROBLEM_DESCRIPTION = "matmul C = A B, added up in float32"

BM = 512
BN = 512
BK = 512
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def multiply(a_ref, b_ref, c_ref, acc_ref):
    """One step: block of A [BM, BK] times block of B [BK, BN]; acc [BM, BN] float32 lives in VMEM over all of k."""
    step, steps = pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if a_ref.dtype == jnp.float32 else None
    acc_ref[...] += jnp.dot(a_ref[...], b_ref[...], precision=precision, preferred_element_type=jnp.float32)

    @pl.when(step == steps - 1)
    def finish():
        c_ref[...] = acc_ref[...].astype(c_ref.dtype)


def kernel_fn(a, b):
    """The product of a [m, k] and b [k, n]. Raises ValueError where a block does not divide them."""
    (m, k), n = a.shape, b.shape[1]
    for name, length, block in (("BM", m, BM), ("BN", n, BN), ("BK", k, BK)):
        if length % block:
            raise ValueError(f"expected {name} to divide {length}, got {name}={block}")
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // BM, n // BN, k // BK),
        in_specs=[
            pl.BlockSpec((BM, BK), lambda i, j, p: (i, p)),
            pl.BlockSpec((BK, BN), lambda i, j, p: (p, j)),
        ],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j, p: (i, j)),
        scratch_shapes=[pltpu.VMEM((BM, BN), jnp.float32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(a, b)


def compute_flops(m=8192, n=8192, k=8192):
    """FLOPs of one call: a multiplication and an addition for each of m n k."""
    return 2 * m * n * k


def get_tiling_meta(m=8192, n=8192, k=8192):
    """Grid, buffers and traffic: A is read once for every block of columns, B once for every block of rows."""
    grid = (m // BM, n // BN, k // BK)
    return {
        "grid": grid,
        "buffers": {
            "a": ((BM, BK), "bfloat16"),
            "b": ((BK, BN), "bfloat16"),
            "c": ((BM, BN), "bfloat16"),
            "acc": ((BM, BN), "float32"),
        },
        "inputs": {"a": 2 * m * k * grid[1], "b": 2 * k * n * grid[0]},
        "outputs": {"c": 2 * m * n},
    }
