"""The good kernel that patches are applied to: squared distances of rows, difference by difference."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "squared distances of all pairs of rows"
BX, BY = 32, 128


def measure(x_ref, y_ref, d_ref):
    x, y = x_ref[...].astype(jnp.float32), y_ref[...].astype(jnp.float32)
    apart = x[:, None, :] - y[None, :, :]
    d_ref[...] = jnp.sum(apart * apart, axis=2).astype(d_ref.dtype)


def kernel_fn(x, y):
    (rows, columns), others = x.shape, y.shape[0]
    return pl.pallas_call(
        measure,
        out_shape=jax.ShapeDtypeStruct((rows, others), x.dtype),
        grid=(rows // BX, others // BY),
        in_specs=[pl.BlockSpec((BX, columns), lambda i, j: (i, 0)), pl.BlockSpec((BY, columns), lambda i, j: (j, 0))],
        out_specs=pl.BlockSpec((BX, BY), lambda i, j: (i, j)),
        name=KERNEL_NAME,
    )(x, y)
