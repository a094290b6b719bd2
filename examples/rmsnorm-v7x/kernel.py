"""RMSNorm of a sum with a residual on a TPU, h = x + r, y = h / sqrt(mean(h^2) + eps) * w: what an experiment changes.

The honest naive kernel to start from: as a framework without fusion does it, one kernel adds the residual and writes h,
another reads h again and normalises it, a few rows at a time. The judge traces kernel_fn and checks what
compute_flops() and get_tiling_meta() claim.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_rmsnorm"
PROBLEM_DESCRIPTION = "rmsnorm of a sum with a residual; the sum is an output too"

# Rows of one step.
BR = 16
# True: one kernel does both steps, so that h is written to HBM and never read from there.
FUSED = False
EPS = 1e-6
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def add(x_ref, r_ref, h_ref):
    """One step: the sum of some rows [BR, columns]."""
    h_ref[...] = (x_ref[...].astype(jnp.float32) + r_ref[...].astype(jnp.float32)).astype(h_ref.dtype)


def normalise(h_ref, w_ref, y_ref):
    """One step: some rows [BR, columns] over their root mean square, times the weights [1, columns]."""
    h = h_ref[...].astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(h * h, axis=1, keepdims=True) + EPS)
    y_ref[...] = (h * scale * w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)


def add_and_normalise(x_ref, r_ref, w_ref, h_ref, y_ref):
    """One step of both."""
    add(x_ref, r_ref, h_ref)
    normalise(h_ref, w_ref, y_ref)


def kernel_fn(x, w, r=None):
    """y, and h with a residual r, of x, r [rows, columns] and w [columns].

    Raises ValueError where BR does not divide the rows.
    """
    rows, columns = x.shape
    if rows % BR:
        raise ValueError(f"expected BR to divide the {rows} rows, got BR={BR}")
    weights = w.reshape(1, columns)
    block = pl.BlockSpec((BR, columns), lambda i: (i, 0))
    whole = pl.BlockSpec((1, columns), lambda i: (0, 0))

    def over_rows(body, name, *inputs, outputs=1):
        return pl.pallas_call(
            body,
            out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype)] * outputs,
            grid=(rows // BR,),
            in_specs=[whole if array is weights else block for array in inputs],
            out_specs=[block] * outputs,
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=VMEM_LIMIT),
            name=name,
        )(*inputs)

    if r is None:
        return over_rows(normalise, KERNEL_NAME, x, weights)[0]
    if FUSED:
        h, y = over_rows(add_and_normalise, KERNEL_NAME, x, r, weights, outputs=2)
    else:
        (h,) = over_rows(add, "naive_add", x, r)
        (y,) = over_rows(normalise, KERNEL_NAME, h, weights)
    return y, h


def compute_flops(rows=8192, columns=8192, residual=True):
    """FLOPs of one call: square, sum of squares and two products for every element, and the sum with the residual."""
    return (5 if residual else 4) * rows * columns


def get_tiling_meta(rows=8192):
    """The grid of each kernel."""
    return {"grid": (rows // BR,)}
