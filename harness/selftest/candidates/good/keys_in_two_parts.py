"""Attends to two parts of the keys separately, and joins the results in a second kernel.

Caught by: nothing
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "planted"
PROBLEM_DESCRIPTION = "attention forward, one head"
BLOCK = 128
PARTS = 2


def attend(q_ref, k_ref, v_ref, acc_ref, m_ref, l_ref, *, scale):
    scores = jax.lax.dot_general(q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    scores = scores * scale
    maximum = scores.max(axis=1, keepdims=True)
    weights = jnp.exp(scores - maximum)
    acc_ref[...] = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    m_ref[...] = jnp.broadcast_to(maximum, m_ref.shape)
    l_ref[...] = jnp.broadcast_to(weights.sum(axis=1, keepdims=True), l_ref.shape)


def join(acc_ref, m_ref, l_ref, o_ref):
    rescale = jnp.exp(m_ref[...] - m_ref[...].max(axis=0)[None])
    o_ref[...] = ((acc_ref[...] * rescale).sum(axis=0) / (l_ref[...] * rescale).sum(axis=0)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    sequence, d = q.shape
    keys = pl.BlockSpec((k.shape[0] // PARTS, d), lambda p, i: (p, 0))
    part = pl.BlockSpec((None, BLOCK, d), lambda p, i: (p, i, 0))
    parts = pl.pallas_call(
        functools.partial(attend, scale=d**-0.5),
        out_shape=(jax.ShapeDtypeStruct((PARTS, sequence, d), jnp.float32),) * 3,
        grid=(PARTS, sequence // BLOCK),
        in_specs=[pl.BlockSpec((BLOCK, d), lambda p, i: (i, 0)), keys, keys],
        out_specs=(part,) * 3,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        name="planted_part",
    )(q, k, v)
    return pl.pallas_call(
        join,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BLOCK,),
        in_specs=[pl.BlockSpec((PARTS, BLOCK, d), lambda i: (0, i, 0))] * 3,
        out_specs=pl.BlockSpec((BLOCK, d), lambda i: (i, 0)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        name=KERNEL_NAME,
    )(*parts)


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
