"""SwiGLU, the inner axis in one step."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "silu(X Wg) * (X Wu)"
BLOCK = 128


def gated(x_ref, w_gate_ref, w_up_ref, y_ref):
    gate = jnp.dot(x_ref[...], w_gate_ref[...], preferred_element_type=jnp.float32)
    up = jnp.dot(x_ref[...], w_up_ref[...], preferred_element_type=jnp.float32)
    y_ref[...] = (gate / (1 + jnp.exp(-gate)) * up).astype(y_ref.dtype)


def kernel_fn(x, w_gate, w_up):
    (tokens, model), hidden = x.shape, w_gate.shape[1]
    weights = pl.BlockSpec((model, BLOCK), lambda i, j: (0, j))
    return pl.pallas_call(
        gated,
        out_shape=jax.ShapeDtypeStruct((tokens, hidden), x.dtype),
        grid=(tokens // BLOCK, hidden // BLOCK),
        in_specs=[pl.BlockSpec((BLOCK, model), lambda i, j: (i, 0)), weights, weights],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        name=KERNEL_NAME,
    )(x, w_gate, w_up)


def compute_flops(tokens, model, hidden):
    return 4 * tokens * model * hidden + 5 * tokens * hidden


def get_tiling_meta():
    return {}
