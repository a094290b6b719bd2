"""Subtracts a bound from the lengths of queries and keys instead of the maximum, which may lie far below it.

Row: 13
Caught by: correctness wrong-result
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


def attend(q_ref, k_ref, v_ref, o_ref, *, scale):
    factor, (rows, d), sequence = scale * math.log2(math.e), q_ref.shape, k_ref.shape[0]
    q = q_ref[...].astype(jnp.float32)
    q_length = jnp.sqrt((q * q).sum(axis=1, keepdims=True))
    k_square = jnp.zeros((1, 1), jnp.float32)
    for key in range(0, sequence, BLOCK):
        k = k_ref[key : key + BLOCK].astype(jnp.float32)
        k_square = jnp.maximum(k_square, (k * k).sum(axis=1, keepdims=True).max(axis=0, keepdims=True))
    # Nothing overflows, since no score is above the bound; 100 bits are left before weights underflow.
    bound = jnp.maximum(q_length * jnp.sqrt(k_square) * factor - 100.0, 0.0)
    total = jnp.zeros((rows, 1), jnp.float32)
    acc = jnp.zeros((rows, d), jnp.float32)
    for key in range(0, sequence, BLOCK):
        scores = jax.lax.dot_general(
            q_ref[...], k_ref[key : key + BLOCK], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        weights = jnp.exp2(scores * factor - bound)
        total += weights.sum(axis=1, keepdims=True)
        acc += jnp.dot(weights.astype(v_ref.dtype), v_ref[key : key + BLOCK], preferred_element_type=jnp.float32)
    o_ref[...] = (acc / jnp.maximum(total, 1e-37)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    sequence, d = q.shape
    rows, whole = pl.BlockSpec((BLOCK, d), lambda i: (i, 0)), pl.BlockSpec(k.shape, lambda i: (0, 0))
    return pl.pallas_call(
        functools.partial(attend, scale=d**-0.5),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BLOCK,),
        in_specs=[rows, whole, whole],
        out_specs=rows,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
