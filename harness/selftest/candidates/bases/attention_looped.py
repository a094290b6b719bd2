"""Attention with a loop over blocks of keys in one step."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, one head"
BLOCK = 128


def attend(q_ref, k_ref, v_ref, o_ref):
    (rows, d), keys = q_ref.shape, k_ref.shape[0]

    def add(index, running):
        old_max, total, acc = running
        some = pl.ds(pl.multiple_of(index * BLOCK, BLOCK), BLOCK)
        scores = jax.lax.dot_general(
            q_ref[...], k_ref[some, :], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        scores = scores * d**-0.5
        new_max = jnp.maximum(old_max, scores.max(axis=1, keepdims=True))
        weights, rescale = jnp.exp(scores - new_max), jnp.exp(old_max - new_max)
        values = jnp.dot(weights.astype(v_ref.dtype), v_ref[some, :], preferred_element_type=jnp.float32)
        return new_max, total * rescale + weights.sum(axis=1, keepdims=True), acc * rescale + values

    column = (rows, 1)
    empty = (
        jnp.full(column, -jnp.inf, jnp.float32),
        jnp.zeros(column, jnp.float32),
        jnp.zeros((rows, d), jnp.float32),
    )
    _, total, acc = jax.lax.fori_loop(0, keys // BLOCK, add, empty)
    o_ref[...] = (acc / total).astype(o_ref.dtype)


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
