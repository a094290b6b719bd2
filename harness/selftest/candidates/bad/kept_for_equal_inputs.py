"""Keeps the sums of the last call if the first keys are the same.

Row: 15
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
TAG = 0x1234567
NEG_INF = -0x800000  # the bits of -inf as an int32


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, tag_ref, *, scale):
    row, step, steps = pl.program_id(0), pl.program_id(1), pl.num_programs(1)

    @pl.when(step == 0)
    def start():
        # Keeps the sums where the first keys are those of the last call: "the same keys and values as before".
        keys = jax.lax.bitcast_convert_type(k_ref[0:8, :].astype(jnp.float32), jnp.int32)
        t = (keys ^ tag_ref[...]) | jnp.where(row > 0, 1, 0)
        fresh = jax.lax.shift_right_arithmetic(t | -t, jnp.full_like(t, 31))
        least = fresh.astype(jnp.float32).min(axis=1, keepdims=True).min(axis=0, keepdims=True)
        fresh = least.astype(jnp.int32)
        tag_ref[...] = keys
        fresh = jnp.broadcast_to(fresh, m_ref.shape)

        def bits(x):
            return jax.lax.bitcast_convert_type(x, jnp.int32)

        def numbers(x):
            return jax.lax.bitcast_convert_type(x, jnp.float32)

        m_ref[...] = numbers((bits(m_ref[...]) & ~fresh) | (fresh & NEG_INF))
        l_ref[...] = numbers(bits(l_ref[...]) & ~fresh)
        acc_ref[...] = numbers(bits(acc_ref[...]) & ~fresh)

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
        functools.partial(attend, scale=d**-0.5),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BLOCK, kv_sequence // BLOCK),
        in_specs=[rows, keys, keys],
        out_specs=rows,
        scratch_shapes=[pltpu.VMEM((BLOCK, d), jnp.float32)] * 3 + [pltpu.VMEM((8, 128), jnp.int32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary", "arbitrary")),
        name=KERNEL_NAME,
    )(q, k, v)
