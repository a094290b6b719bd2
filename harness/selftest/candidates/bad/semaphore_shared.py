"""Uses one semaphore for the copies of keys and of values, so that a wait for the keys can end when the values arrive.

Row: 15
Caught by: correctness non-finite; correctness wrong-result; correctness race
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


def attend(q_ref, k_hbm, v_hbm, o_ref, k_ref, v_ref, arrived, *, scale):
    factor, (rows, d), steps = scale * math.log2(math.e), q_ref.shape, k_hbm.shape[0] // BLOCK

    def copies(step):
        slot, some = step % 2, pl.ds(step * BLOCK, BLOCK)
        return (
            pltpu.make_async_copy(k_hbm.at[some], k_ref.at[slot], arrived.at[slot]),
            pltpu.make_async_copy(v_hbm.at[some], v_ref.at[slot], arrived.at[slot]),
        )

    for copy in copies(0):
        copy.start()
    old_max = jnp.full((rows, 1), -jnp.inf, jnp.float32)
    total = jnp.zeros((rows, 1), jnp.float32)
    acc = jnp.zeros((rows, d), jnp.float32)
    for step in range(steps):
        if step + 1 < steps:
            for copy in copies(step + 1):
                copy.start()
        keys, values = copies(step)
        keys.wait()
        k = k_ref[step % 2]
        scores = jax.lax.dot_general(q_ref[...], k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
        new_max = jnp.maximum(old_max, scores.max(axis=1, keepdims=True))
        weights = jnp.exp2((scores - new_max) * factor)
        rescale = jnp.exp2((old_max - new_max) * factor)
        total = total * rescale + weights.sum(axis=1, keepdims=True)
        values.wait()
        acc = acc * rescale + jnp.dot(weights.astype(v_ref.dtype), v_ref[step % 2], preferred_element_type=jnp.float32)
        old_max = new_max
    o_ref[...] = (acc / total).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    sequence, d = q.shape
    rows, by_hand = pl.BlockSpec((BLOCK, d), lambda i: (i, 0)), pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        functools.partial(attend, scale=d**-0.5),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BLOCK,),
        in_specs=[rows, by_hand, by_hand],
        out_specs=rows,
        scratch_shapes=[*[pltpu.VMEM((2, BLOCK, d), k.dtype)] * 2, pltpu.SemaphoreType.DMA((2,))],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(sequence, head_dim):
    return (4 * head_dim + 5) * sequence * sequence


def get_tiling_meta():
    return {}
