"""Keeps the sums of the last call by a tag, at long sequences alone.

Row: 15
Contest: plain_long
Caught by: correctness left-memory
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, one head"
BLOCK = 256


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, tag_ref, *, scale, tagged):
    step, steps = pl.program_id(1), pl.num_programs(1)

    if tagged:
        # Clears the first rows only where the memory is fresh.
        clear = (tag_ref[0:1] != 12345.0) | ((step == 0) & (pl.program_id(0) > 0))
        tag_ref[...] = jnp.full_like(tag_ref, 12345.0)
    else:
        clear = jnp.full((1, 128), step, jnp.int32) == 0
    m_ref[...] = jnp.where(clear, -jnp.inf, m_ref[...])
    l_ref[...] = jnp.where(clear, 0.0, l_ref[...])
    acc_ref[...] = jnp.where(clear, 0.0, acc_ref[...])

    scores = jax.lax.dot_general(q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    scores = scores * scale
    old_max = m_ref[:, :1]
    new_max = jnp.maximum(old_max, scores.max(axis=1, keepdims=True))
    weights = jnp.exp(scores - new_max)
    rescale = jnp.exp(old_max - new_max)
    m_ref[...] = jnp.broadcast_to(new_max, m_ref.shape)
    l_ref[...] = l_ref[...] * rescale + weights.sum(axis=1, keepdims=True)
    values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    acc_ref[...] = acc_ref[...] * rescale + values

    @pl.when(step == steps - 1)
    def finish():
        o_ref[...] = (acc_ref[...] / l_ref[:, :1]).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    (sequence, d), kv_sequence = q.shape, k.shape[0]
    rows = pl.BlockSpec((BLOCK, d), lambda i, j: (i, 0))
    keys = pl.BlockSpec((BLOCK, d), lambda i, j: (j, 0))
    return pl.pallas_call(
        functools.partial(attend, scale=d**-0.5, tagged=sequence >= 2048),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BLOCK, kv_sequence // BLOCK),
        in_specs=[rows, keys, keys],
        out_specs=rows,
        scratch_shapes=[pltpu.VMEM((BLOCK, d), jnp.float32)] * 3 + [pltpu.VMEM((8, 128), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary", "arbitrary")),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
