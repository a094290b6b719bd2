"""Adds the rows of each group by a scatter of XLA, and copies the sums in the kernel.

Row: 12
Contest: group_sums
Caught by: static work-outside-pallas
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

GROUPS = 64


def copy(x_ref, y_ref):
    y_ref[...] = x_ref[...]


def kernel_fn(x, at):
    sums = jnp.zeros((GROUPS, x.shape[1]), x.dtype).at[at].add(x)
    return pl.pallas_call(copy, out_shape=jax.ShapeDtypeStruct(sums.shape, x.dtype))(sums)
