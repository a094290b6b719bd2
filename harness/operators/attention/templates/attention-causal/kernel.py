"""Causal attention forward on a TPU, softmax(scale Q K^T) V of the keys up to each query: what an experiment changes.

The honest naive kernel to start from: online softmax over all blocks of keys, the mask (and the window, if there is
one) put on every block, also where it hides nothing or everything. The judge traces kernel_fn and checks what
compute_flops() and get_tiling_meta() claim.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_causal_attention"
PROBLEM_DESCRIPTION = "causal attention forward, softmax scale 1/sqrt(head_dim)"

# Of the keys up to its own a query sees the last so many; None: all.
WINDOW = None
# Scores become SOFT_CAP tanh(score / SOFT_CAP); None: they stay as they are.
SOFT_CAP = None

BQ = 512
BKV = 512
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None
# The score of a hidden key: finite, so that a row which sees no key of a block computes no inf - inf.
HIDDEN = -1e30


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    """One step: block of queries [BQ, d] of one head against block of keys and values [BKV, d] of its group.

    m, l, acc [BQ, d] float32 live in VMEM over all key blocks of one query block: the running
    maximum and sum of each row (the same in every column) and the output not yet divided.
    """
    block, step, steps = pl.program_id(2), pl.program_id(3), pl.num_programs(3)

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
    queries = block * BQ + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    keys = step * BKV + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    scores = scores * scale
    if SOFT_CAP is not None:
        scores = SOFT_CAP * jnp.tanh(scores / SOFT_CAP)
    seen = keys <= queries
    if WINDOW is not None:
        seen &= keys > queries - WINDOW
    # What is summed up before a query's first key is seen has the maximum HIDDEN, and weighs 0 from then on.
    scores = jnp.where(seen, scores, HIDDEN)
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
    """Causal attention of q [batch, heads, sequence, d], k, v [batch, kv_heads, sequence, d], or without first axes.

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


def compute_flops(batch=1, heads=1, sequence=16384, head_dim=128):
    """FLOPs of one call: two matmuls, and five for every score that is not masked (seven if capped)."""
    hidden = 0 if WINDOW is None else max(0, sequence - WINDOW)
    pairs = batch * heads * (sequence * (sequence + 1) - hidden * (hidden + 1)) // 2
    return 4 * pairs * head_dim + (5 if SOFT_CAP is None else 7) * pairs


def get_tiling_meta(batch=1, heads=1, sequence=16384, head_dim=128):
    """Grid, buffers and traffic: every query head reads its K and V once for every block of queries."""
    grid = (batch, heads, sequence // BQ, sequence // BKV)
    once = 2 * batch * heads * sequence * head_dim
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
        "inputs": {"q": once, "k": grid[2] * once, "v": grid[2] * once},
        "outputs": {"o": once},
    }
