"""A gated delta rule on a TPU: the one file that an experiment changes.

The honest naive kernel to start from. Heads are independent; the steps of a head come one after the other, BT of them
in each grid step, and its state stays in VMEM between grid steps.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_gated_delta"
PROBLEM_DESCRIPTION = "the gated delta rule: a state that decays, forgets what it holds under a key, and takes a value"

BT = 128


def dot(a, b, axes):
    """The product of two float32 blocks along these axes, float32: HIGHEST takes six passes instead of one."""
    highest = jax.lax.Precision.HIGHEST
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), highest, preferred_element_type=jnp.float32)


def recur(q_ref, k_ref, v_ref, g_ref, b_ref, o_ref, state_ref, q32_ref, k32_ref, v32_ref, o32_ref):
    """BT steps of one head: q, k, v [1, BT, dim], the gates g and b [1, BT, 1] float32, the state [dim, dim]."""

    @pl.when(pl.program_id(1) == 0)
    def begin():
        state_ref[...] = jnp.zeros_like(state_ref)

    # Single rows of float32 can be read wherever they lie, those of bfloat16 share registers.
    q32_ref[...] = q_ref[0].astype(jnp.float32) * q_ref.shape[-1] ** -0.5
    k32_ref[...] = k_ref[0].astype(jnp.float32)
    v32_ref[...] = v_ref[0].astype(jnp.float32)

    def step(t, state):
        row = pl.ds(t, 1)
        k, gate = k32_ref[row], b_ref[0, row]
        state = jnp.exp(g_ref[0, row]) * state
        taken = gate * (v32_ref[row] - dot(k, state, (1, 0)))
        state = state + dot(k, taken, (0, 0))
        o32_ref[row] = dot(q32_ref[row], state, (1, 0))
        return state

    state_ref[...] = jax.lax.fori_loop(0, BT, step, state_ref[...])
    o_ref[0] = o32_ref[...].astype(o_ref.dtype)


def kernel_fn(q, k, v, g, b):
    """O of q, k, v, like it [time, heads, dim], and g, b [time, heads]. Raises ValueError unless BT divides time."""
    time, heads, dim = q.shape
    if time % BT:
        raise ValueError(f"expected BT to divide the {time} steps, got BT={BT}")
    block = pl.BlockSpec((1, BT, dim), lambda head, i: (head, i, 0))
    gate = pl.BlockSpec((1, BT, 1), lambda head, i: (head, i, 0))
    by_head = [array.swapaxes(0, 1) for array in (q, k, v)] + [array.T[..., None] for array in (g, b)]
    out = pl.pallas_call(
        recur,
        out_shape=jax.ShapeDtypeStruct((heads, time, dim), q.dtype),
        grid=(heads, time // BT),
        in_specs=[block] * 3 + [gate] * 2,
        out_specs=block,
        scratch_shapes=[pltpu.VMEM((dim, dim), jnp.float32)] + [pltpu.VMEM((BT, dim), jnp.float32)] * 4,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        name=KERNEL_NAME,
    )(*by_head)
    return out.swapaxes(0, 1)
