"""RMSNorm of a sum with a residual on a TPU, h = x + r, y = h / sqrt(mean(h^2) + eps) * w: what an experiment changes.

One kernel makes both outputs from one reading of x and r, so that every array crosses HBM once.
See the kernel.py at the top of the repository for what the judge takes from this file.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "rmsnorm"
PROBLEM_DESCRIPTION = "rmsnorm of a sum with a residual; the sum is an output too"

BR = 256
EPS = 1e-6
# Blocks of x, r, y and h are 4 MiB each and there are two of each, so that the next ones travel while these are
# used: 32 MiB, beyond the compiler's default of 16 MiB. A v5e has 128 MiB.
VMEM_LIMIT = 64 * 2**20


def add_and_normalise(x_ref, r_ref, w_ref, y_ref, h_ref, *, eps):
    """One step: the sum of some rows [BR, columns], and the sum over its root mean square, times w [1, columns]."""
    h = x_ref[...].astype(jnp.float32) + r_ref[...].astype(jnp.float32)
    h_ref[...] = h.astype(h_ref.dtype)
    scale = jax.lax.rsqrt(jnp.mean(h * h, axis=1, keepdims=True) + eps)
    y_ref[...] = (h * scale * w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)


def kernel_fn(x, r, w):
    """y and h of x, r [rows, columns] and w [columns]. Raises ValueError where the block does not divide the rows."""
    rows, columns = x.shape
    if rows % BR:
        raise ValueError(f"expected BR to divide the {rows} rows, got BR={BR}")
    block = pl.BlockSpec((BR, columns), lambda i: (i, 0))
    output = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        functools.partial(add_and_normalise, eps=EPS),
        out_shape=(output, output),
        grid=(rows // BR,),
        in_specs=[block, block, pl.BlockSpec((1, columns), lambda i: (0, 0))],
        out_specs=(block, block),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(x, r, w.reshape(1, columns))


def compute_flops(rows=8192, columns=8192):
    """FLOPs of one call: sum, square, sum of squares and two products for every element."""
    return 5 * rows * columns


def get_tiling_meta(rows=8192, columns=8192):
    """Grid, buffers and traffic: x and r are read once, y and h written once; w stays in VMEM."""
    block = ((BR, columns), "bfloat16")
    array = 2 * rows * columns
    return {
        "grid": (rows // BR,),
        "buffers": {"x": block, "r": block, "w": ((1, columns), "bfloat16"), "y": block, "h": block},
        "inputs": {"x": array, "r": array, "w": 2 * columns},
        "outputs": {"y": array, "h": array},
    }
