"""Chooses in XLA by comparisons and selections, and copies the choice in the kernel.

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


def best(v, i):
    while v.shape[1] > 1:
        half = v.shape[1] // 2
        a, b, ia, ib = v[:, :half], v[:, half:], i[:, :half], i[:, half:]
        right = (b > a) | ((b == a) & (ib < ia))
        v, i = jnp.where(right, b, a), jnp.where(right, ib, ia)
    return v, i


def kernel_fn(x):
    rows = x.shape[0]
    if rows % BR:
        raise ValueError(f"expected BR to divide the {rows} rows, got BR={BR}")
    column = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    values, indices = [], []
    for _ in range(K):
        largest, first = best(x, column)
        x = jnp.where(column == first, -jnp.inf, x)
        values.append(largest)
        indices.append(first)
    chosen = pl.BlockSpec((BR, K), lambda i: (i, 0))
    return pl.pallas_call(
        copy,
        out_shape=(jax.ShapeDtypeStruct((rows, K), x.dtype), jax.ShapeDtypeStruct((rows, K), jnp.int32)),
        grid=(rows // BR,),
        in_specs=[chosen, chosen],
        out_specs=(chosen, chosen),
    )(jnp.concatenate(values, 1), jnp.concatenate(indices, 1))
