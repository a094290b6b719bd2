"""Attention of several heads under a causal mask."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "causal attention forward, several heads"
BLOCK = 128


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    row, step, steps = pl.program_id(1), pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        m_ref[...] = jnp.full_like(m_ref, -1e30)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(step <= row)
    def add():
        scores = jax.lax.dot_general(
            q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        scores = scores * scale
        query = row * BLOCK + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
        key = step * BLOCK + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
        scores = jnp.where(key <= query, scores, -1e30)
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
    heads, sequence, d = q.shape
    rows = pl.BlockSpec((None, BLOCK, d), lambda h, i, j: (h, i, 0))
    keys = pl.BlockSpec((None, BLOCK, d), lambda h, i, j: (h, j, 0))
    return pl.pallas_call(
        functools.partial(attend, scale=d**-0.5),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(heads, sequence // BLOCK, sequence // BLOCK),
        in_specs=[rows, keys, keys],
        out_specs=rows,
        scratch_shapes=[pltpu.VMEM((BLOCK, d), jnp.float32)] * 3,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(heads, sequence, head_dim):
    return heads * (4 * head_dim + 5) * (sequence * (sequence + 1) // 2)


def get_tiling_meta():
    return {}
