#: for matmul quantized-matmul quantized-matmul-int8 quantized-matmul-fp8
#: matmul
"""Matrix product on a TPU, C = A B: the one file that an experiment changes.

The honest naive kernel to start from: one block of A against one block of B in each grid step, added
up in float32. The judge traces kernel_fn and checks what compute_flops() and get_tiling_meta()
claim.
"""
#: quantized-matmul
"""Matrix product with weights of eight bits on a TPU, C = (A Q) * scales: what an experiment changes.

The honest naive kernel to start from: one block of A against one block of Q in each grid step, the weights converted to
the type of A, which holds them exactly, added up in float32, scaled once. The judge traces kernel_fn and checks what
compute_flops() and get_tiling_meta() claim.
"""
#: quantized-matmul-int8 quantized-matmul-fp8
"""Matrix product of activations and weights of eight bits on a TPU: what an experiment changes.

The honest naive kernel to start from: one block of A against one block of Q in each grid step, added up in 32 bits,
scaled by row and column at the end. The judge traces kernel_fn and checks what compute_flops() and get_tiling_meta()
claim.
"""
#: end

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

#: matmul
KERNEL_NAME = "naive_matmul"
PROBLEM_DESCRIPTION = "matmul C = A B, added up in float32"
#: quantized-matmul
KERNEL_NAME = "naive_quantized_matmul"
PROBLEM_DESCRIPTION = "matmul with int8 weights and a scale for each column, added up in float32"
#: quantized-matmul-int8
KERNEL_NAME = "naive_int8_matmul"
PROBLEM_DESCRIPTION = "matmul of int8 with a scale for each row and column, added up in int32"
#: quantized-matmul-fp8
KERNEL_NAME = "naive_fp8_matmul"
PROBLEM_DESCRIPTION = "matmul of float8_e4m3fn with a scale for each row and column, added up in float32"
#: end

BM = 512
BN = 512
BK = 512
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None
#: quantized-matmul-int8
SUMS = jnp.int32
#: quantized-matmul-fp8
SUMS = jnp.float32
#: end


#: matmul
def multiply(a_ref, b_ref, c_ref, acc_ref):
    """One step: block of A [BM, BK] times block of B [BK, BN]; acc [BM, BN] float32 lives in VMEM over all of k."""
#: quantized-matmul
def multiply(a_ref, q_ref, scales_ref, c_ref, acc_ref):
    """One step: block of A [BM, BK] times block of Q [BK, BN]; acc [BM, BN] float32 lives in VMEM over all of k."""
#: quantized-matmul-int8 quantized-matmul-fp8
def multiply(a_ref, q_ref, scales_ref, row_scales_ref, c_ref, acc_ref):
    """One step: block of A [BM, BK] times block of Q [BK, BN]; acc [BM, BN] SUMS lives in VMEM over all of k."""
#: end
    step, steps = pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

#: not quantized-matmul-int8 quantized-matmul-fp8
    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if a_ref.dtype == jnp.float32 else None
#: matmul
    acc_ref[...] += jnp.dot(a_ref[...], b_ref[...], precision=precision, preferred_element_type=jnp.float32)
#: quantized-matmul
    weights = q_ref[...].astype(a_ref.dtype)
    acc_ref[...] += jnp.dot(a_ref[...], weights, precision=precision, preferred_element_type=jnp.float32)
#: quantized-matmul-int8 quantized-matmul-fp8
    acc_ref[...] += jnp.dot(a_ref[...], q_ref[...], preferred_element_type=SUMS)
#: end

    @pl.when(step == steps - 1)
    def finish():
#: matmul
        c_ref[...] = acc_ref[...].astype(c_ref.dtype)
#: quantized-matmul
        c_ref[...] = (acc_ref[...] * scales_ref[...]).astype(c_ref.dtype)
#: quantized-matmul-int8 quantized-matmul-fp8
        scaled = acc_ref[...].astype(jnp.float32) * scales_ref[...] * row_scales_ref[...]
        c_ref[...] = scaled.astype(c_ref.dtype)
#: end


#: matmul
def kernel_fn(a, b):
    """The product of a [m, k] and b [k, n]. Raises ValueError where a block does not divide them."""
    (m, k), n = a.shape, b.shape[1]
#: quantized-matmul
def kernel_fn(a, q, scales):
    """The product of a [m, k] and q [k, n], scaled [1, n]. Raises ValueError where a block does not divide them."""
#: quantized-matmul-int8 quantized-matmul-fp8
def kernel_fn(a, q, scales, row_scales):
    """The product of a [m, k] and q [k, n], scaled [1, n] and [m, 1], in bfloat16.

    Raises ValueError where a block does not divide them.
    """
#: not matmul
    (m, k), n = a.shape, q.shape[1]
#: end
    for name, length, block in (("BM", m, BM), ("BN", n, BN), ("BK", k, BK)):
        if length % block:
            raise ValueError(f"expected {name} to divide {length}, got {name}={block}")
    return pl.pallas_call(
        multiply,
#: not quantized-matmul-int8 quantized-matmul-fp8
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
#: quantized-matmul-int8 quantized-matmul-fp8
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.bfloat16),
#: end
        grid=(m // BM, n // BN, k // BK),
        in_specs=[
            pl.BlockSpec((BM, BK), lambda i, j, p: (i, p)),
            pl.BlockSpec((BK, BN), lambda i, j, p: (p, j)),
#: not matmul
            pl.BlockSpec((1, BN), lambda i, j, p: (0, j)),
#: quantized-matmul-int8 quantized-matmul-fp8
            pl.BlockSpec((BM, 1), lambda i, j, p: (i, 0)),
#: end
        ],
        out_specs=pl.BlockSpec((BM, BN), lambda i, j, p: (i, j)),
#: not quantized-matmul-int8 quantized-matmul-fp8
        scratch_shapes=[pltpu.VMEM((BM, BN), jnp.float32)],
#: quantized-matmul-int8 quantized-matmul-fp8
        scratch_shapes=[pltpu.VMEM((BM, BN), SUMS)],
#: end
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
#: matmul
    )(a, b)


def compute_flops(m=8192, n=8192, k=8192):
    """FLOPs of one call: a multiplication and an addition for each of m n k."""
    return 2 * m * n * k


def get_tiling_meta(m=8192, n=8192, k=8192):
    """Grid, buffers and traffic: A is read once for every block of columns, B once for every block of rows."""
    grid = (m // BM, n // BN, k // BK)
    # A block stays where it is until the next step needs another one.
    a = 2 * m * k * (grid[1] if grid[2] > 1 else 1)
    b = 2 * k * n * (grid[0] if grid[1] * grid[2] > 1 else 1)
    return {
        "grid": grid,
        "buffers": {
            "a": ((BM, BK), "bfloat16"),
            "b": ((BK, BN), "bfloat16"),
            "c": ((BM, BN), "bfloat16"),
            "acc": ((BM, BN), "float32"),
        },
        "inputs": {"a": a, "b": b},
        "outputs": {"c": 2 * m * n},
    }
#: quantized-matmul
    )(a, q, scales)
#: quantized-matmul-int8 quantized-matmul-fp8
    )(a, q, scales, row_scales)
#: end
