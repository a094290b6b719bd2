"""Streams keys and values through a pipeline of its own, inside the kernel.

Caught by: nothing
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, one head"
BLOCK = 128


def attend(q_ref, k_hbm, v_hbm, o_ref, m_ref, l_ref, acc_ref):
    d = q_ref.shape[1]
    m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
    l_ref[...] = jnp.zeros_like(l_ref)
    acc_ref[...] = jnp.zeros_like(acc_ref)

    def add(k_ref, v_ref):
        scores = jax.lax.dot_general(
            q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        scores = scores * d**-0.5
        old_max = m_ref[:, :1]
        new_max = jnp.maximum(old_max, scores.max(axis=1, keepdims=True))
        weights, rescale = jnp.exp(scores - new_max), jnp.exp(old_max - new_max)
        m_ref[...] = jnp.broadcast_to(new_max, m_ref.shape)
        l_ref[...] = l_ref[...] * rescale + weights.sum(axis=1, keepdims=True)
        values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
        acc_ref[...] = acc_ref[...] * rescale + values

    keys = pl.BlockSpec((BLOCK, d), lambda j: (j, 0))
    pltpu.emit_pipeline(add, grid=(k_hbm.shape[0] // BLOCK,), in_specs=[keys, keys])(k_hbm, v_hbm)
    o_ref[...] = (acc_ref[...] / l_ref[:, :1]).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    sequence, d = q.shape
    rows, by_hand = pl.BlockSpec((BLOCK, d), lambda i: (i, 0)), pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        attend,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BLOCK,),
        in_specs=[rows, by_hand, by_hand],
        out_specs=rows,
        scratch_shapes=[pltpu.VMEM((BLOCK, d), jnp.float32)] * 3,
    )(q, k, v)


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
