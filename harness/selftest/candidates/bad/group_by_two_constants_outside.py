"""Computes groups from 60 places / 2460 outside the kernel: XLA on a chip merges both constants, and misses multiples.

Contest: places
Row: 12
Caught by: correctness wrong-result
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

BR = 64
SIZE = 41
MINUTE = 60


def multiply(x_ref, group_ref, y_ref):
    y_ref[...] = x_ref[...] * group_ref[...].astype(jnp.float32)


def kernel_fn(x, at):
    rows, columns = x.shape
    if rows % BR:
        raise ValueError(f"expected BR to divide the {rows} rows, got BR={BR}")
    group = (at.astype(jnp.float32) * MINUTE / (MINUTE * SIZE)).astype(jnp.int32)
    block = pl.BlockSpec((BR, columns), lambda i: (i, 0))
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(rows // BR,),
        in_specs=[block, pl.BlockSpec((BR, 1), lambda i: (i, 0))],
        out_specs=block,
    )(x, group.reshape(rows, 1))
