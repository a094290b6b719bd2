"""Holds scores and output transposed in a loop over keys in VMEM, and transposes once at the end.

Caught by: nothing
Contest: v6e
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

    def add(index, running):
        old_max, total, acc = running
        some = pl.ds(pl.multiple_of(index * BLOCK, BLOCK), BLOCK)
        scores = jax.lax.dot_general(
            k_ref[some], q_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        new_max = jnp.maximum(old_max, scores.max(axis=0, keepdims=True))
        weights = jnp.exp2((scores - new_max) * factor)
        rescale = jnp.exp2((old_max - new_max) * factor)
        values = jax.lax.dot_general(
            v_ref[some], weights.astype(v_ref.dtype), (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32
        )
        return new_max, total * rescale + weights.sum(axis=0, keepdims=True), acc * rescale + values

    empty = jnp.full((1, rows), -jnp.inf), jnp.zeros((1, rows)), jnp.zeros((d, rows), jnp.float32)
    _, total, acc = jax.lax.fori_loop(0, sequence // BLOCK, add, empty)
    o_ref[...] = (acc * pl.reciprocal(total)).T.astype(o_ref.dtype)


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
