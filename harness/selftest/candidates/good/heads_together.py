"""Takes all heads of a block of queries in one step.

Caught by: nothing
Contest: causal
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "causal attention forward, several heads"
BLOCK = 128


def attend(q_ref, k_ref, v_ref, o_ref, *, scale):
    scores = jnp.einsum("hqd,hkd->hqk", q_ref[...], k_ref[...], preferred_element_type=jnp.float32)
    scores = scores * scale
    query = pl.program_id(0) * BLOCK + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    key = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 2)
    scores = jnp.where(key <= query, scores, -1e30)
    weights = jnp.exp(scores - scores.max(axis=2, keepdims=True))
    values = jnp.einsum("hqk,hkd->hqd", weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = (values / weights.sum(axis=2, keepdims=True)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    heads, sequence, d = q.shape
    rows = pl.BlockSpec((heads, BLOCK, d), lambda i: (0, i, 0))
    whole = pl.BlockSpec(k.shape, lambda i: (0, 0, 0))
    return pl.pallas_call(
        functools.partial(attend, scale=d**-0.5),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BLOCK,),
        in_specs=[rows, whole, whole],
        out_specs=rows,
    )(q, k, v)


def compute_flops(heads, sequence, head_dim):
    return heads * (4 * head_dim + 5) * (sequence * (sequence + 1) // 2)


def get_tiling_meta():
    return {}
