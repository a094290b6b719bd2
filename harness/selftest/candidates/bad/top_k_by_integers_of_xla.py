"""Chooses in XLA, by maxima of integers that have the order of the numbers, and copies the choice in the kernel.

Contest: top_k
Row: 12
Caught by: static work-outside-pallas
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

BR = 32
K = 8


def copy(v_ref, i_ref, values_ref, indices_ref):
    values_ref[...] = v_ref[...]
    indices_ref[...] = i_ref[...]


def kernel_fn(x):
    rows, columns = x.shape
    if rows % BR:
        raise ValueError(f"expected BR to divide the {rows} rows, got BR={BR}")
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    order = jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    column = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    values, indices = [], []
    for _ in range(K):
        largest = jnp.max(order, axis=1, keepdims=True)
        first = jnp.min(jnp.where(order == largest, column, columns), axis=1, keepdims=True)
        order = jnp.where(column == first, jnp.iinfo(jnp.int32).min, order)
        values.append(jax.lax.bitcast_convert_type(jnp.where(largest < 0, largest ^ 0x7FFFFFFF, largest), jnp.float32))
        indices.append(first)
    chosen = pl.BlockSpec((BR, K), lambda i: (i, 0))
    return pl.pallas_call(
        copy,
        out_shape=(jax.ShapeDtypeStruct((rows, K), x.dtype), jax.ShapeDtypeStruct((rows, K), jnp.int32)),
        grid=(rows // BR,),
        in_specs=[chosen, chosen],
        out_specs=(chosen, chosen),
    )(jnp.concatenate(values, 1), jnp.concatenate(indices, 1))
