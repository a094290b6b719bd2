"""Subtracts the maximum inside a product of float32 at default precision, which a matrix unit rounds to bfloat16.

Row: 13
Caught by: correctness wrong-result
Contest: v6e
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, one head"
BLOCK = 128


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    step, steps = pl.program_id(1), pl.num_programs(1)

    @pl.when(step == 0)
    def start():
        m_ref[...] = jnp.zeros_like(m_ref)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    # A column of 256 is free on this chip: -m among the queries meets 1 among the keys.
    is_first = jax.lax.broadcasted_iota(jnp.int32, (BLOCK, 128), 1) == 0
    q = q_ref[...].astype(jnp.float32) * (scale * math.log2(math.e))
    q = jnp.concatenate([q, jnp.where(is_first, -m_ref[...], 0.0)], axis=1)
    k = jnp.concatenate([k_ref[...].astype(jnp.float32), jnp.where(is_first, 1.0, 0.0)], axis=1)
    above = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    top = above.max(axis=1, keepdims=True)
    rise = jnp.where(step == 0, top, jnp.maximum(top, 0.0))
    weights, rescale = jnp.exp2(above - rise), jnp.exp2(-rise)
    l_ref[...] = jnp.where(step == 0, 0.0, l_ref[...] * rescale) + weights.sum(axis=1, keepdims=True)
    values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    acc_ref[...] = jnp.where(step == 0, 0.0, acc_ref[...] * rescale) + values
    m_ref[...] += rise

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
        scratch_shapes=[pltpu.VMEM((BLOCK, d), jnp.float32)] * 3,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
