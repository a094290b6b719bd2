"""RMSNorm of a sum with a residual on a TPU, h = x + r, y = h / sqrt(mean(h^2) + eps) * w: what an experiment changes.

One kernel makes both outputs from one reading of x and r, so that every array crosses HBM once.
See the kernel.py at the top of the repository for what the judge takes from this file.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "rmsnorm"
PROBLEM_DESCRIPTION = "rmsnorm of a sum with a residual; the sum is an output too"

# Blocks of x, r, y and h are 2 MiB each and there are two of each, so that the next ones travel while these are used:
# 16 MiB. Twice the rows need 32 MiB, which is too much by default, and take 0.4 % less time.
BR = 128
EPS = 1e-6


def add_and_normalise(x_ref, r_ref, w_ref, y_ref, h_ref):
    """One step: the sum of some rows [BR, columns], and the sum over its root mean square, times w [columns]."""
    h = x_ref[...].astype(jnp.float32) + r_ref[...].astype(jnp.float32)
    h_ref[...] = h.astype(h_ref.dtype)
    scale = jax.lax.rsqrt(jnp.mean(h * h, axis=1, keepdims=True) + EPS)
    y_ref[...] = (h * scale * w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)


def kernel_fn(x, r, w):
    """y and h of x, r [rows, columns] and w [columns]. Raises ValueError where the block does not divide the rows."""
    rows, columns = x.shape
    if rows % BR:
        raise ValueError(f"expected BR to divide the {rows} rows, got BR={BR}")
    block = pl.BlockSpec((BR, columns), lambda i: (i, 0))
    output = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        add_and_normalise,
        out_shape=(output, output),
        grid=(rows // BR,),
        in_specs=[block, block, pl.BlockSpec((columns,), lambda i: (0,))],
        out_specs=(block, block),
        name=KERNEL_NAME,
    )(x, r, w)
