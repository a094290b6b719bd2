"""Top k of each row on a TPU, a block of rows in each grid step: the one file that an experiment changes.

The honest naive kernel to start from: the largest is looked for and taken out, K times over.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "naive_top_k"
PROBLEM_DESCRIPTION = "the k largest elements of each row and their columns, of equal ones the lower column first"

BR = 32
K = 8


def select(x_ref, values_ref, indices_ref):
    """One step: some rows [BR, columns]."""
    x = x_ref[...].astype(jnp.float32)
    columns = x.shape[1]
    column = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    rank = jax.lax.broadcasted_iota(jnp.int32, values_ref.shape, 1)
    values = jnp.zeros(values_ref.shape, jnp.float32)
    indices = jnp.zeros(indices_ref.shape, jnp.int32)
    for place in range(K):
        largest = x.max(axis=1, keepdims=True)
        # Columns are whole numbers that float32 holds exactly.
        first = jnp.where(x == largest, column.astype(jnp.float32), columns).min(axis=1, keepdims=True)
        first = first.astype(jnp.int32)
        values = jnp.where(rank == place, largest, values)
        indices = jnp.where(rank == place, first, indices)
        x = jnp.where(column == first, -jnp.inf, x)
    values_ref[...] = values.astype(values_ref.dtype)
    indices_ref[...] = indices


def kernel_fn(x):
    """Values and columns of the K largest of x [rows, columns]. Raises ValueError where BR does not divide the rows."""
    rows, columns = x.shape
    if rows % BR:
        raise ValueError(f"expected BR to divide the {rows} rows, got BR={BR}")
    chosen = pl.BlockSpec((BR, K), lambda i: (i, 0))
    return pl.pallas_call(
        select,
        out_shape=(jax.ShapeDtypeStruct((rows, K), x.dtype), jax.ShapeDtypeStruct((rows, K), jnp.int32)),
        grid=(rows // BR,),
        in_specs=[pl.BlockSpec((BR, columns), lambda i: (i, 0))],
        out_specs=(chosen, chosen),
        name=KERNEL_NAME,
    )(x)
