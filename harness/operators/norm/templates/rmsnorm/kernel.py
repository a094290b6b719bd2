"""RMSNorm of a sum with a residual on a TPU, h = x + r, y = h / sqrt(mean(h^2) + eps) * w: what an experiment changes.

The honest naive kernel to start from: as a framework without fusion does it, one kernel adds the residual and writes h,
another reads h again and normalises it, a few rows at a time. The judge traces kernel_fn and checks what
compute_flops() and get_tiling_meta() claim.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_rmsnorm"
PROBLEM_DESCRIPTION = "rmsnorm of a sum with a residual; the sum is an output too"

# Rows of one step.
BR = 16
EPS = 1e-6
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def add(x_ref, r_ref, h_ref):
    """One step: the sum of some rows [BR, columns]."""
    h_ref[...] = (x_ref[...].astype(jnp.float32) + r_ref[...].astype(jnp.float32)).astype(h_ref.dtype)


def normalise(h_ref, w_ref, y_ref, *, eps):
    """One step: some rows [BR, columns] over their root mean square, times the weights [1, columns]."""
    h = h_ref[...].astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(h * h, axis=1, keepdims=True) + eps)
    y_ref[...] = (h * scale * w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)


def kernel_fn(x, w, r=None):
    """y, and h with a residual r, of x, r [rows, columns] and w [columns].

    Raises ValueError where BR does not divide the rows.
    """
    rows, columns = x.shape
    if rows % BR:
        raise ValueError(f"expected BR to divide the {rows} rows, got BR={BR}")
    block = pl.BlockSpec((BR, columns), lambda i: (i, 0))
    options = {
        "out_shape": jax.ShapeDtypeStruct(x.shape, x.dtype),
        "grid": (rows // BR,),
        "out_specs": block,
        "compiler_params": pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=VMEM_LIMIT),
    }
    h = x if r is None else pl.pallas_call(add, in_specs=[block, block], name="naive_add", **options)(x, r)
    weights = pl.BlockSpec((1, columns), lambda i: (0, 0))
    y = pl.pallas_call(functools.partial(normalise, eps=EPS), in_specs=[block, weights], name=KERNEL_NAME, **options)(
        h, w.reshape(1, columns)
    )
    return y if r is None else (y, h)


def compute_flops(rows=8192, columns=8192, residual=True):
    """FLOPs of one call: square, sum of squares and two products for every element, and the sum with the residual."""
    return (5 if residual else 4) * rows * columns


def get_tiling_meta(rows=8192):
    """The grid of either kernel."""
    return {"grid": (rows // BR,)}
