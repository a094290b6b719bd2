"""Masks by adding -150 to scores, which a key of the future that scores higher than that outweighs.

Row: 12
Caught by: correctness wrong-result; correctness wrong-dependence; correctness non-finite
Contest: causal
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "causal attention forward, several heads"
BLOCK = 128


def attend(q_ref, k_ref, v_ref, o_ref, mask_ref, m_ref, l_ref, acc_ref, *, scale):
    row, step = pl.program_id(1), pl.program_id(2)
    factor = scale * math.log2(math.e)

    @pl.when(step == 0)
    def start():
        query = jax.lax.broadcasted_iota(jnp.int32, mask_ref.shape, 0)
        key = jax.lax.broadcasted_iota(jnp.int32, mask_ref.shape, 1)
        mask_ref[...] = jnp.where(key <= query, 0.0, -150.0)  # 2^-150 is 0 in float32
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    def add(is_diagonal):
        scores = jax.lax.dot_general(
            q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        scores = scores * factor
        if is_diagonal:
            scores = scores + mask_ref[...]
        old_max = m_ref[:, :1]
        new_max = jnp.maximum(old_max, scores.max(axis=1, keepdims=True))
        weights = jnp.exp2(scores - new_max)
        rescale = jnp.exp2(old_max - new_max)
        m_ref[...] = jnp.broadcast_to(new_max, m_ref.shape)
        l_ref[...] = l_ref[...] * rescale + weights.sum(axis=1, keepdims=True)
        values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
        acc_ref[...] = acc_ref[...] * rescale + values

    @pl.when(step < row)
    def before():
        add(False)

    @pl.when(step == row)
    def diagonal():
        add(True)
        o_ref[...] = (acc_ref[...] / l_ref[:, :1]).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    heads, sequence, d = q.shape
    rows = pl.BlockSpec((None, BLOCK, d), lambda h, i, j: (h, i, 0))
    keys = pl.BlockSpec((None, BLOCK, d), lambda h, i, j: (h, jnp.minimum(i, j), 0))
    return pl.pallas_call(
        functools.partial(attend, scale=d**-0.5),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(heads, sequence // BLOCK, sequence // BLOCK),
        in_specs=[rows, keys, keys],
        out_specs=rows,
        scratch_shapes=[pltpu.VMEM((BLOCK, BLOCK), jnp.float32), *[pltpu.VMEM((BLOCK, d), jnp.float32)] * 3],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(heads, sequence, head_dim):
    return heads * (4 * head_dim + 5) * (sequence * (sequence + 1) // 2)


def get_tiling_meta():
    return {}
