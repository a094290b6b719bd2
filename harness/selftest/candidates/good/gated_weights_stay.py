"""Keeps blocks of weights while tokens pass by, in strips of rows, with the logistic function of JAX.

Caught by: nothing
Contest: swiglu
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "silu(X Wg) * (X Wu)"
BLOCK = 128
ROWS = 64


def gated(x_ref, w_gate_ref, w_up_ref, y_ref):
    @pl.loop(0, BLOCK // ROWS)
    def _(strip):
        rows = pl.ds(pl.multiple_of(strip * ROWS, ROWS), ROWS)
        gate = jnp.dot(x_ref[rows], w_gate_ref[...], preferred_element_type=jnp.float32)
        up = jnp.dot(x_ref[rows], w_up_ref[...], preferred_element_type=jnp.float32)
        y_ref[rows] = (gate * up * jax.lax.logistic(gate)).astype(y_ref.dtype)


def kernel_fn(x, w_gate, w_up):
    (tokens, model), hidden = x.shape, w_gate.shape[1]
    weights = pl.BlockSpec((model, BLOCK), lambda j, i: (0, j))
    return pl.pallas_call(
        gated,
        out_shape=jax.ShapeDtypeStruct((tokens, hidden), x.dtype),
        grid=(hidden // BLOCK, tokens // BLOCK),
        in_specs=[pl.BlockSpec((BLOCK, model), lambda j, i: (i, 0)), weights, weights],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda j, i: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary", "arbitrary")),
        name=KERNEL_NAME,
    )(x, w_gate, w_up)


def compute_flops(tokens, model, hidden):
    return 4 * tokens * model * hidden + 5 * tokens * hidden


def get_tiling_meta():
    return {}
