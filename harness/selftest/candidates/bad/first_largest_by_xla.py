"""Chooses in XLA, and copies the choice in the kernel.

Row: 12
Contest: first_largest
Caught by: static work-outside-pallas
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def copy(first_ref, y_ref):
    y_ref[...] = first_ref[...]


def kernel_fn(x):
    first = jnp.argmax(x, axis=1, keepdims=True).astype(jnp.int32)
    return pl.pallas_call(copy, out_shape=jax.ShapeDtypeStruct(first.shape, first.dtype))(first)
