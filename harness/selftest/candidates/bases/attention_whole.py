"""Attention, all keys in one step."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, one head"
BLOCK = 128


def attend(q_ref, k_ref, v_ref, o_ref):
    scores = jax.lax.dot_general(q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    scores = scores * q_ref.shape[1] ** -0.5
    weights = jnp.exp(scores - scores.max(axis=1, keepdims=True))
    values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = (values / weights.sum(axis=1, keepdims=True)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    sequence, d = q.shape
    rows, whole = pl.BlockSpec((BLOCK, d), lambda i: (i, 0)), pl.BlockSpec(k.shape, lambda i: (0, 0))
    return pl.pallas_call(
        attend,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BLOCK,),
        in_specs=[rows, whole, whole],
        out_specs=rows,
    )(q, k, v)


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
