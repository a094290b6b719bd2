"""A planted read past the end of a buffer: keys are taken from one block further than there is."""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

KERNEL_NAME = "past_the_end"
PROBLEM_DESCRIPTION = "attention forward that reads out of bounds"

BQ = 128


def attend(q_ref, k_ref, v_ref, o_ref, *, scale):
    rows = k_ref.shape[0]
    keys = k_ref[pl.ds(pl.program_id(0) * 8, rows), :]
    scores = jax.lax.dot_general(q_ref[...], keys, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32) * scale
    weights = jnp.exp(scores - scores.max(axis=1, keepdims=True))
    total = weights.sum(axis=1, keepdims=True)
    values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = (values / total).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    (sequence, d), kv_sequence = q.shape, k.shape[0]
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BQ,),
        in_specs=[
            pl.BlockSpec((BQ, d), lambda i: (i, 0)),
            pl.BlockSpec((kv_sequence, d), lambda i: (0, 0)),
            pl.BlockSpec((kv_sequence, d), lambda i: (0, 0)),
        ],
        out_specs=pl.BlockSpec((BQ, d), lambda i: (i, 0)),
    )(q, k, v)


def compute_flops(sequence=16384, head_dim=128):
    return 4 * sequence * sequence * head_dim + 5 * sequence * sequence


def get_tiling_meta():
    return {}
