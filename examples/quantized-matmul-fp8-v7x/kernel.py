"""Matrix product of activations and weights of eight bits on a TPU: what an experiment changes.

The honest naive kernel to start from: one block of A against one block of Q in each grid step, added up in 32 bits,
scaled by row and column at the end. The judge traces kernel_fn and checks what compute_flops() and get_tiling_meta()
claim.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_fp8_matmul"
PROBLEM_DESCRIPTION = "matmul of float8_e4m3fn with a scale for each row and column, added up in float32"

BM = 1024
BN = 2048
BK = 2048
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = 60000000
SUMS = jnp.float32


def multiply(a_ref, q_ref, scales_ref, row_scales_ref, c_ref, acc_ref):
    """One step: block of A [BM, BK] times block of Q [BK, BN]; acc [BM, BN] SUMS lives in VMEM over all of k."""
    step, steps = pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += jnp.dot(a_ref[...], q_ref[...], preferred_element_type=SUMS)

    @pl.when(step == steps - 1)
    def finish():
        scaled = acc_ref[...].astype(jnp.float32) * scales_ref[...] * row_scales_ref[...]
        c_ref[...] = scaled.astype(c_ref.dtype)


def kernel_fn(a, q, scales, row_scales):
    """The product of a [m, k] and q [k, n], scaled [1, n] and [m, 1], in bfloat16.

    Raises ValueError where a block does not divide them.
    """
    (m, k), n = a.shape, q.shape[1]
    for name, length, block in (("BM", m, BM), ("BN", n, BN), ("BK", k, BK)):
        if length % block:
            raise ValueError(f"expected {name} to divide {length}, got {name}={block}")
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.bfloat16),
        grid=(m // BM, n // BN, k // BK),
        in_specs=[
            pl.BlockSpec((BM, BK), lambda i, j, p: (i, p)),
            pl.BlockSpec((BK, BN), lambda i, j, p: (p, j)),
            pl.BlockSpec((1, BN), lambda i, j, p: (0, j)),
            pl.BlockSpec((BM, 1), lambda i, j, p: (i, 0)),
        ],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j, p: (i, j)),
        scratch_shapes=[pltpu.VMEM((BM, BN), SUMS)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(a, q, scales, row_scales)
