"""Grouped-query attention forward on a TPU, several query heads to each key/value head: what an experiment changes.

All keys and values of a head fit into VMEM, so a block of queries meets them in one step and needs
no online softmax; the heads of a group meet them in the same step. See the kernel.py at the top of
the repository for what the judge takes from this file.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "grouped_attention"
PROBLEM_DESCRIPTION = "grouped-query attention forward, not causal, softmax scale 1/sqrt(head_dim)"

BQ = 512
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def attend(q_ref, k_ref, v_ref, o_ref, *, scale):
    """One step: blocks of queries [group, BQ, d] of a group's heads against its keys and values [sequence, d].

    A row sees all of its scores at once, so its softmax is the plain one: nothing is carried from
    step to step, and nothing is rescaled.
    """
    # exp(scale x) = 2^(factor x). The hardware has powers of two, so exp would multiply once more for every score.
    factor = scale * math.log2(math.e)
    # Unrolled: the heads are independent, so the scheduler fills the waits of one with the work of the next.
    for head in range(q_ref.shape[0]):
        q, k = q_ref[head], k_ref[...]
        scores = jax.lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
        weights = jnp.exp2((scores - scores.max(axis=1, keepdims=True)) * factor)
        total = weights.sum(axis=1, keepdims=True)
        values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
        # Divided after the product: head_dim quotients a row, not one for every key.
        o_ref[head] = (values / total).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    """Attention of q [batch, heads, sequence, d] over k, v [batch, kv_heads, sequence, d], or without the first axes.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where BQ does not
    divide the sequence.
    """
    if q.ndim < 4:
        return kernel_fn(q[None], k[None], v[None])[0]
    (batch, heads, sequence, d), kv_heads = q.shape, k.shape[1]
    if sequence % BQ:
        raise ValueError(f"expected BQ to divide the sequence of {sequence}, got BQ={BQ}")
    group = heads // kv_heads
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(batch, kv_heads, sequence // BQ),
        in_specs=[
            # h counts groups; the heads of one lie next to each other.
            pl.BlockSpec((None, group, BQ, d), lambda b, h, i: (b, h, i, 0)),
            # The same block for every i: fetched once.
            pl.BlockSpec((None, None, sequence, d), lambda b, h, i: (b, h, 0, 0)),
            pl.BlockSpec((None, None, sequence, d), lambda b, h, i: (b, h, 0, 0)),
        ],
        out_specs=pl.BlockSpec((None, group, BQ, d), lambda b, h, i: (b, h, i, 0)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(batch=2, heads=32, sequence=2048, head_dim=128):
    """FLOPs of one call: two matmuls, and five for every score (scale, subtract, exponential, sum, divide)."""
    return batch * heads * (4 * sequence * sequence * head_dim + 5 * sequence * sequence)


def get_tiling_meta(batch=2, heads=32, kv_heads=8, sequence=2048, head_dim=128):
    """Grid, buffers and traffic: everything crosses HBM once."""
    grid = (batch, kv_heads, sequence // BQ)
    queries = 2 * batch * heads * sequence * head_dim
    keys = 2 * batch * kv_heads * sequence * head_dim
    return {
        "grid": grid,
        "buffers": {
            "q": ((heads // kv_heads, BQ, head_dim), "bfloat16"),
            "k": ((sequence, head_dim), "bfloat16"),
            "v": ((sequence, head_dim), "bfloat16"),
            "o": ((heads // kv_heads, BQ, head_dim), "bfloat16"),
        },
        "inputs": {"q": queries, "k": keys, "v": keys},
        "outputs": {"o": queries},
    }
