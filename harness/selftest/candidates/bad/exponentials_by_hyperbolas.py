"""Has XLA compute the exponentials, as sums of hyperbolic functions.

Contest: plain
Row: 12
Caught by: static exp-outside-pallas
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

BLOCK = 128


def below(q_ref, k_ref, s_ref, *, scale):
    scores = jax.lax.dot_general(q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    scores = scores * scale
    s_ref[...] = jnp.minimum(scores.max(axis=1, keepdims=True) - scores, 80.0)


def add_up(w_ref, v_ref, o_ref):
    weights = w_ref[...]
    values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    o_ref[...] = (values / weights.sum(axis=1, keepdims=True)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    (sequence, d), keys = q.shape, k.shape[0]
    rows = pl.BlockSpec((BLOCK, d), lambda i: (i, 0))
    whole = pl.BlockSpec((keys, d), lambda i: (0, 0))
    square = pl.BlockSpec((BLOCK, keys), lambda i: (i, 0))
    distances = pl.pallas_call(
        functools.partial(below, scale=d**-0.5),
        out_shape=jax.ShapeDtypeStruct((sequence, keys), jnp.float32),
        grid=(sequence // BLOCK,),
        in_specs=[rows, whole],
        out_specs=square,
    )(q, k)
    weights = 1 / (jnp.sinh(distances) + jnp.cosh(distances))
    return pl.pallas_call(
        add_up,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BLOCK,),
        in_specs=[square, whole],
        out_specs=rows,
    )(weights, v)
