"""A planted race: the kernel copies V by hand and uses it before the copy has arrived."""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "unsynchronised"
PROBLEM_DESCRIPTION = "attention forward with a data race"

BQ = 128


def attend(q_ref, k_ref, v_hbm, o_ref, v_ref, arrived, *, scale):
    copy = pltpu.make_async_copy(v_hbm, v_ref, arrived)
    copy.start()
    scores = jax.lax.dot_general(q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    scores = scores * scale
    weights = jnp.exp(scores - scores.max(axis=1, keepdims=True))
    total = weights.sum(axis=1, keepdims=True)
    values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
    copy.wait()
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
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec((BQ, d), lambda i: (i, 0)),
        scratch_shapes=[pltpu.VMEM((kv_sequence, d), v.dtype), pltpu.SemaphoreType.DMA],
    )(q, k, v)


def compute_flops(sequence=16384, head_dim=128):
    return 4 * sequence * sequence * head_dim + 5 * sequence * sequence


def get_tiling_meta():
    return {}
