"""RMSNorm of a sum with a residual in one kernel."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "rmsnorm of a sum with a residual; the sum is an output too"
BLOCK = 16
EPS = 1e-6


def add_and_normalise(x_ref, r_ref, w_ref, y_ref, h_ref):
    h = x_ref[...].astype(jnp.float32) + r_ref[...].astype(jnp.float32)
    h_ref[...] = h.astype(h_ref.dtype)
    scale = jax.lax.rsqrt(jnp.mean(h * h, axis=1, keepdims=True) + EPS)
    y_ref[...] = (h * scale * w_ref[...].astype(jnp.float32)).astype(y_ref.dtype)


def kernel_fn(x, r, w):
    rows, columns = x.shape
    block = pl.BlockSpec((BLOCK, columns), lambda i: (i, 0))
    return pl.pallas_call(
        add_and_normalise,
        out_shape=(jax.ShapeDtypeStruct(x.shape, x.dtype),) * 2,
        grid=(rows // BLOCK,),
        in_specs=[block, block, pl.BlockSpec((1, columns), lambda i: (0, 0))],
        out_specs=(block, block),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        name=KERNEL_NAME,
    )(x, r, w.reshape(1, columns))


def compute_flops(rows, columns):
    return 5 * rows * columns


def get_tiling_meta():
    return {}
