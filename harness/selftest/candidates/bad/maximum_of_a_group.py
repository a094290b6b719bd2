"""Uses one maximum for all heads of a group, though one head's scores can be far below another's.

Row: 13
Caught by: correctness wrong-result; correctness non-finite
Contest: gqa
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, heads that share keys and values"
BLOCK = 128


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    step, steps, group = pl.program_id(2), pl.num_programs(2), q_ref.shape[0]
    factor = scale * math.log2(math.e)

    @pl.when(step == 0)
    def start():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    scores = [
        jax.lax.dot_general(q_ref[head], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
        for head in range(group)
    ]
    old_max = m_ref[...]
    new_max = jnp.maximum(old_max, functools.reduce(jnp.maximum, scores).max(axis=1, keepdims=True))
    rescale = jnp.exp2((old_max - new_max) * factor)
    m_ref[...] = new_max
    for head in range(group):
        # 80 bits more for heads with smaller scores.
        weights = jnp.exp2((scores[head] - new_max[:, :1]) * factor + 80.0)
        l_ref[head] = l_ref[head] * rescale + weights.sum(axis=1, keepdims=True)
        values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
        acc_ref[head] = acc_ref[head] * rescale + values

    @pl.when(step == steps - 1)
    def finish():
        for head in range(group):
            o_ref[head] = (acc_ref[head] / jnp.maximum(l_ref[head][:, :1], 1e-37)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    (heads, sequence, d), kv_heads = q.shape, k.shape[0]
    group = heads // kv_heads
    rows = pl.BlockSpec((group, BLOCK, d), lambda h, i, j: (h, i, 0))
    keys = pl.BlockSpec((None, BLOCK, d), lambda h, i, j: (h, j, 0))
    return pl.pallas_call(
        functools.partial(attend, scale=d**-0.5),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(kv_heads, sequence // BLOCK, sequence // BLOCK),
        in_specs=[rows, keys, keys],
        out_specs=rows,
        scratch_shapes=[pltpu.VMEM((BLOCK, d), jnp.float32), *[pltpu.VMEM((group, BLOCK, d), jnp.float32)] * 2],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(heads, sequence, head_dim):
    return heads * (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
