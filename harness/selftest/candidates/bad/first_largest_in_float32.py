"""Compares integers of 32 bits as float32, in which neighbouring large integers are equal.

Row: 12
Contest: first_largest
Caught by: correctness wrong-result
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

BR = 64


def first_largest(x_ref, y_ref):
    x = x_ref[...].astype(jnp.float32)
    column = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1).astype(jnp.float32)
    largest = x.max(axis=1, keepdims=True)
    first = jnp.where(x == largest, column, 1e9).min(axis=1, keepdims=True)
    y_ref[...] = first.astype(jnp.int32)


def kernel_fn(x):
    rows, columns = x.shape
    if rows % BR:
        raise ValueError(f"expected BR to divide the {rows} rows, got BR={BR}")
    return pl.pallas_call(
        first_largest,
        out_shape=jax.ShapeDtypeStruct((rows, 1), jnp.int32),
        grid=(rows // BR,),
        in_specs=[pl.BlockSpec((BR, columns), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((BR, 1), lambda i: (i, 0)),
    )(x)
