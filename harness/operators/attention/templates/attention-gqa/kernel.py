"""Grouped-query attention forward on a TPU, several query heads to each key/value head: what an experiment changes.

The honest naive kernel to start from: every query head walks over the keys and values of its group by itself, so that
the heads of a group read the same ones once each. The judge traces kernel_fn and checks what compute_flops() and
get_tiling_meta() claim.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_grouped_attention"
PROBLEM_DESCRIPTION = "grouped-query attention forward, not causal, softmax scale 1/sqrt(head_dim)"

BQ = 256
BKV = 512
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    """One step: block of queries [BQ, d] of one head against block of keys and values [BKV, d] of its group.

    m, l, acc [BQ, d] float32 live in VMEM over all key blocks of one query block: the running
    maximum and sum of each row (the same in every column) and the output not yet divided.
    """
    step, steps = pl.program_id(3), pl.num_programs(3)

    @pl.when(step == 0)
    def start():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if q_ref.dtype == jnp.float32 else None
    scores = jax.lax.dot_general(
        q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), precision=precision, preferred_element_type=jnp.float32
    )
    scores = scores * scale
    old_max = m_ref[:, :1]
    new_max = jnp.maximum(old_max, scores.max(axis=1, keepdims=True))
    weights = jnp.exp(scores - new_max)
    # What was summed up so far was relative to the old maximum.
    rescale = jnp.exp(old_max - new_max)
    m_ref[...] = jnp.broadcast_to(new_max, m_ref.shape)
    l_ref[...] = l_ref[...] * rescale + weights.sum(axis=1, keepdims=True)
    values = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], precision=precision, preferred_element_type=jnp.float32)
    acc_ref[...] = acc_ref[...] * rescale + values

    @pl.when(step == steps - 1)
    def finish():
        o_ref[...] = (acc_ref[...] / l_ref[:, :1]).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    """Attention of q [batch, heads, sequence, d] over k, v [batch, kv_heads, sequence, d], or without the first axes.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where a block
    does not divide the sequence.
    """
    if q.ndim < 4:
        return kernel_fn(q[None], k[None], v[None])[0]
    (batch, heads, sequence, d), kv_heads = q.shape, k.shape[1]
    for name, block in (("BQ", BQ), ("BKV", BKV)):
        if sequence % block:
            raise ValueError(f"expected {name} to divide the sequence of {sequence}, got {name}={block}")
    group = heads // kv_heads
    accumulator = pltpu.VMEM((BQ, d), jnp.float32)
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(batch, heads, sequence // BQ, sequence // BKV),
        in_specs=[
            pl.BlockSpec((None, None, BQ, d), lambda b, h, i, j: (b, h, i, 0)),
            pl.BlockSpec((None, None, BKV, d), lambda b, h, i, j: (b, h // group, j, 0)),
            pl.BlockSpec((None, None, BKV, d), lambda b, h, i, j: (b, h // group, j, 0)),
        ],
        out_specs=pl.BlockSpec((None, None, BQ, d), lambda b, h, i, j: (b, h, i, 0)),
        scratch_shapes=[accumulator, accumulator, accumulator],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(batch=2, heads=32, sequence=2048, head_dim=128):
    """FLOPs of one call: two matmuls, and five for every score (scale, subtract, exponential, sum, divide)."""
    return batch * heads * (4 * sequence * sequence * head_dim + 5 * sequence * sequence)


def get_tiling_meta(batch=2, heads=32, sequence=2048, head_dim=128):
    """Grid, buffers and traffic: every query head reads its K and V once for every block of queries."""
    grid = (batch, heads, sequence // BQ, sequence // BKV)
    queries = 2 * batch * heads * sequence * head_dim
    return {
        "grid": grid,
        "buffers": {
            "q": ((BQ, head_dim), "bfloat16"),
            "k": ((BKV, head_dim), "bfloat16"),
            "v": ((BKV, head_dim), "bfloat16"),
            "o": ((BQ, head_dim), "bfloat16"),
            "m": ((BQ, head_dim), "float32"),
            "l": ((BQ, head_dim), "float32"),
            "acc": ((BQ, head_dim), "float32"),
        },
        "inputs": {"q": queries, "k": grid[2] * queries, "v": grid[2] * queries},
        "outputs": {"o": queries},
    }
