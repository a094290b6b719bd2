"""Keeps the sums of the last call by a tag in scalar memory that is a float.

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
TAG = 12345.0


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, tag_ref, *, scale):
    step, steps = pl.program_id(1), pl.num_programs(1)

    @pl.when(step == 0)
    def start():
        tag = jnp.full((1, 128), tag_ref[0])
        kept = (tag == TAG) & ~(tag == TAG + 1) & (jnp.full((1, 128), pl.program_id(0)) == 0)
        m_ref[...] = jnp.where(kept, m_ref[...], -jnp.inf)
        l_ref[...] = jnp.where(kept, l_ref[...], 0.0)
        acc_ref[...] = jnp.where(kept, acc_ref[...], 0.0)
        tag_ref[0] = TAG

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
        scratch_shapes=[pltpu.VMEM((BLOCK, d), jnp.float32)] * 3 + [pltpu.SMEM((1,), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary", "arbitrary")),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
