#: for attention attention-causal attention-gqa attention-packed attention-suite
#: attention
"""Attention forward on a TPU, softmax(scale Q K^T) V: the one file that an experiment changes.

The honest naive kernel to start from: online softmax, one block of queries against one block
of keys and values in each grid step. The judge takes three things from here:

  kernel_fn(q, k, v)   what is judged; it is traced once, and only the trace is used
  KERNEL_NAME, PROBLEM_DESCRIPTION
                       words for people
  compute_flops(), get_tiling_meta()
                       claims, checked and never believed: FLOPs that differ from the judge's
                       fail the attempt, a tiling that differs from the trace is a warning

A claim gets those of the problem's parameters that it names (sequence, head_dim, ...).
get_tiling_meta() returns, each entry optional:

  "grid":     steps along each axis
  "buffers":  name -> (shape, dtype): every block and scratch buffer in VMEM, each once
  "inputs":   name -> bytes read from HBM, re-reads included
  "outputs":  name -> bytes written to HBM
  "vregs":    an estimate of the vector registers alive at once
"""
#: attention-gqa
"""Grouped-query attention forward on a TPU, several query heads to each key/value head: what an experiment changes.

The honest naive kernel to start from: every query head walks over the keys and values of its group by itself, so that
the heads of a group read the same ones once each. The judge traces kernel_fn and checks what compute_flops() and
get_tiling_meta() claim.
"""
#: attention-causal
"""Causal attention forward on a TPU, softmax(scale Q K^T) V of the keys up to each query: what an experiment changes.

The honest naive kernel to start from: online softmax over all blocks of keys, the mask (and the window, if there is
one) put on every block, also where it hides nothing or everything. The judge traces kernel_fn and checks what
compute_flops() and get_tiling_meta() claim.
"""
#: attention-packed
"""Causal attention forward of packed sequences on a TPU: what an experiment changes.

The honest naive kernel to start from: online softmax over all blocks of keys, the mask and the bounds of the sequences
(and the window, if there is one) put on every block, also where they hide nothing or everything. The judge traces
kernel_fn and checks what compute_flops() and get_tiling_meta() claim.
"""
#: attention-suite
"""Causal grouped attention on a TPU at several lengths, one kernel for all: what an experiment changes.

The honest naive kernel to start from: online softmax over all blocks of keys, the mask put on every block. It is traced
at the shape of each member of the suite; constants that should differ between them are chosen by the shape (q.shape).
"""
#: end

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

#: attention
KERNEL_NAME = "naive_attention"
PROBLEM_DESCRIPTION = "attention forward, not causal, softmax scale 1/sqrt(head_dim)"
#: attention-gqa
KERNEL_NAME = "naive_grouped_attention"
PROBLEM_DESCRIPTION = "grouped-query attention forward, not causal, softmax scale 1/sqrt(head_dim)"
#: attention-causal
KERNEL_NAME = "naive_causal_attention"
#: attention-suite
KERNEL_NAME = "naive_prefill_attention"
#: attention-causal attention-suite
PROBLEM_DESCRIPTION = "causal attention forward, softmax scale 1/sqrt(head_dim)"
#: attention-packed
KERNEL_NAME = "naive_packed_attention"
PROBLEM_DESCRIPTION = "causal attention forward of packed sequences, softmax scale 1/sqrt(head_dim)"
#: end

#: attention
BQ = 128
#: attention-suite
BQ = 256
#: attention attention-suite
BKV = 256
#: attention-gqa
BQ = 256
#: attention-causal attention-packed
# Of the keys up to its own a query sees the last so many; None: all.
WINDOW = None
# Scores become SOFT_CAP tanh(score / SOFT_CAP); None: they stay as they are.
SOFT_CAP = None

BQ = 512
#: attention-gqa attention-causal attention-packed
BKV = 512
#: end
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None
#: attention-causal attention-packed attention-suite
# The score of a hidden key: finite, so that a row which sees no key of a block computes no inf - inf.
HIDDEN = -1e30
#: attention-packed
# The shape of a register, which blocks of ids fill.
SUBLANES, LANES = 8, 128
#: end


#: not attention-packed
def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
#: attention
    """One step: block of queries [BQ, d] against block of keys and values [BKV, d].

    m, l, acc [BQ, d] float32 live in VMEM over all key blocks of one query block: the running
    maximum and sum of each row (the same in every column) and the output not yet divided.
    """
    step, steps = pl.program_id(1), pl.num_programs(1)
#: attention-gqa attention-causal attention-suite
    """One step: block of queries [BQ, d] of one head against block of keys and values [BKV, d] of its group.

    m, l, acc [BQ, d] float32 live in VMEM over all key blocks of one query block: the running
    maximum and sum of each row (the same in every column) and the output not yet divided.
    """
#: attention-gqa
    step, steps = pl.program_id(3), pl.num_programs(3)
#: attention-packed
def attend(q_ref, k_ref, v_ref, q_ids_ref, k_ids_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    """One step: block of queries [BQ, d] of one head against block of keys and values [BKV, d] of its group.

    q_ids [BQ, LANES] and k_ids [SUBLANES, BKV] say which sequence each of them belongs to, the same in every column of
    the one and in every row of the other.

    m, l, acc [BQ, d] float32 live in VMEM over all key blocks of one query block: the running
    maximum and sum of each row (the same in every column) and the output not yet divided.
    """
#: attention-causal attention-packed attention-suite
    block, step, steps = pl.program_id(2), pl.program_id(3), pl.num_programs(3)
#: end

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
#: attention-causal attention-packed attention-suite
    queries = block * BQ + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    keys = step * BKV + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
#: end
    scores = scores * scale
#: attention-causal attention-packed
    if SOFT_CAP is not None:
        scores = SOFT_CAP * jnp.tanh(scores / SOFT_CAP)
#: attention-causal
    seen = keys <= queries
#: attention-packed
    seen = (keys <= queries) & (q_ids_ref[:, :1] == k_ids_ref[:1, :])
#: attention-causal attention-packed
    if WINDOW is not None:
        seen &= keys > queries - WINDOW
    # What is summed up before a query's first key is seen has the maximum HIDDEN, and weighs 0 from then on.
    scores = jnp.where(seen, scores, HIDDEN)
#: attention-suite
    # Each query sees the first key, so that no row's maximum stays at HIDDEN.
    scores = jnp.where(keys <= queries, scores, HIDDEN)
#: end
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


#: not attention-packed
def kernel_fn(q, k, v):
#: attention
    """Attention of q [sequence, d] over k, v [kv_sequence, d], or of [batch, heads, ...] of them.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where a block divides no sequence.
    """
    if q.ndim == 4:
        return jax.vmap(kernel_fn)(q, k, v)
    if q.ndim == 3:
        groups = q.reshape(len(k), -1, *q.shape[1:])
        return jax.vmap(jax.vmap(kernel_fn, (0, None, None)))(groups, k, v).reshape(q.shape)
    (sequence, d), kv_sequence = q.shape, k.shape[0]
    for name, length, block in (("BQ", sequence, BQ), ("BKV", kv_sequence, BKV)):
        if length % block:
            raise ValueError(f"expected {name} to divide the sequence of {length}, got {name}={block}")
#: attention-gqa
    """Attention of q [batch, heads, sequence, d] over k, v [batch, kv_heads, sequence, d], or without the first axes.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where a block
    does not divide the sequence.
    """
#: attention-causal attention-suite
    """Causal attention of q [batch, heads, sequence, d], k, v [batch, kv_heads, sequence, d], or without first axes.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where a block
    does not divide the sequence.
    """
#: attention-packed
def kernel_fn(q, k, v, segment_ids):
    """Causal attention of q [batch, heads, sequence, d], k, v [batch, kv_heads, sequence, d], or without first axes.

    segment_ids [batch, sequence] says which packed sequence a position belongs to. Query head h reads key/value head
    h // (heads // kv_heads). Raises ValueError where a block does not divide the sequence.
    """
#: not attention
    if q.ndim < 4:
#: attention-gqa attention-causal attention-suite
        return kernel_fn(q[None], k[None], v[None])[0]
#: attention-packed
        return kernel_fn(q[None], k[None], v[None], segment_ids.reshape(1, -1))[0]
#: not attention
    (batch, heads, sequence, d), kv_heads = q.shape, k.shape[1]
    for name, block in (("BQ", BQ), ("BKV", BKV)):
        if sequence % block:
            raise ValueError(f"expected {name} to divide the sequence of {sequence}, got {name}={block}")
    group = heads // kv_heads
#: attention-packed
    q_ids = jnp.broadcast_to(segment_ids[:, :, None], (batch, sequence, LANES))
    k_ids = jnp.broadcast_to(segment_ids[:, None, :], (batch, SUBLANES, sequence))
#: end
    accumulator = pltpu.VMEM((BQ, d), jnp.float32)
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
#: attention
        grid=(sequence // BQ, kv_sequence // BKV),
#: not attention
        grid=(batch, heads, sequence // BQ, sequence // BKV),
#: end
        in_specs=[
#: attention
            pl.BlockSpec((BQ, d), lambda i, j: (i, 0)),
            pl.BlockSpec((BKV, d), lambda i, j: (j, 0)),
            pl.BlockSpec((BKV, d), lambda i, j: (j, 0)),
#: not attention
            pl.BlockSpec((None, None, BQ, d), lambda b, h, i, j: (b, h, i, 0)),
            pl.BlockSpec((None, None, BKV, d), lambda b, h, i, j: (b, h // group, j, 0)),
            pl.BlockSpec((None, None, BKV, d), lambda b, h, i, j: (b, h // group, j, 0)),
#: attention-packed
            pl.BlockSpec((None, BQ, LANES), lambda b, h, i, j: (b, i, 0)),
            pl.BlockSpec((None, SUBLANES, BKV), lambda b, h, i, j: (b, 0, j)),
#: end
        ],
#: attention
        out_specs=pl.BlockSpec((BQ, d), lambda i, j: (i, 0)),
#: not attention
        out_specs=pl.BlockSpec((None, None, BQ, d), lambda b, h, i, j: (b, h, i, 0)),
#: end
        scratch_shapes=[accumulator, accumulator, accumulator],
        compiler_params=pltpu.CompilerParams(
#: attention
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
#: not attention
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
#: end
        ),
        name=KERNEL_NAME,
#: not attention-packed
    )(q, k, v)
#: attention attention-gqa attention-causal


#: attention attention-causal
def compute_flops(batch=1, heads=1, sequence=16384, head_dim=128):
#: attention-gqa
def compute_flops(batch=2, heads=32, sequence=2048, head_dim=128):
#: attention attention-gqa
    """FLOPs of one call: two matmuls, and five for every score (scale, subtract, exponential, sum, divide)."""
    return batch * heads * (4 * sequence * sequence * head_dim + 5 * sequence * sequence)
#: attention-causal
    """FLOPs of one call: two matmuls, and five for every score that is not masked (seven if capped)."""
    hidden = 0 if WINDOW is None else max(0, sequence - WINDOW)
    pairs = batch * heads * (sequence * (sequence + 1) - hidden * (hidden + 1)) // 2
    return 4 * pairs * head_dim + (5 if SOFT_CAP is None else 7) * pairs
#: attention attention-gqa attention-causal


#: attention attention-causal
def get_tiling_meta(batch=1, heads=1, sequence=16384, head_dim=128):
#: attention
    """Grid, buffers and traffic of one head: K and V are read once for every block of queries, Q and O once."""
    if batch * heads > 1:
        return {}
    grid = (sequence // BQ, sequence // BKV)
    once = 2 * sequence * head_dim
#: attention-gqa
def get_tiling_meta(batch=2, heads=32, kv_heads=8, sequence=2048, head_dim=128):
#: attention-gqa attention-causal
    """Grid, buffers and traffic: every query head reads its K and V once for every block of queries."""
    grid = (batch, heads, sequence // BQ, sequence // BKV)
#: attention-gqa
    queries = 2 * batch * heads * sequence * head_dim
#: attention-causal
    once = 2 * batch * heads * sequence * head_dim
#: attention attention-causal
    # A single block of keys stays in VMEM.
    reads = grid[-2] if grid[-1] > 1 else 1
#: attention-gqa
    # A single block of keys stays in VMEM for all heads of its group.
    keys = grid[2] * queries if grid[3] > 1 else queries * kv_heads // heads
#: attention attention-gqa attention-causal
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
#: attention attention-causal
        "inputs": {"q": once, "k": reads * once, "v": reads * once},
        "outputs": {"o": once},
#: attention
        # One block of float32 scores, in registers of 8 x 128.
        "vregs": BQ * BKV // 1024,
#: attention-gqa
        "inputs": {"q": queries, "k": keys, "v": keys},
        "outputs": {"o": queries},
#: attention attention-gqa attention-causal
    }
#: attention-packed
    )(q, k, v, q_ids, k_ids)
#: end
