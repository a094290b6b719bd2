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

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_attention"
PROBLEM_DESCRIPTION = "attention forward, not causal, softmax scale 1/sqrt(head_dim)"

BQ = 128
BKV = 256
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    """One step: block of queries [BQ, d] against block of keys and values [BKV, d].

    m, l, acc [BQ, d] float32 live in VMEM over all key blocks of one query block: the running
    maximum and sum of each row (the same in every column) and the output not yet divided.
    """
    step, steps = pl.program_id(1), pl.num_programs(1)

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
    accumulator = pltpu.VMEM((BQ, d), jnp.float32)
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(sequence // BQ, kv_sequence // BKV),
        in_specs=[
            pl.BlockSpec((BQ, d), lambda i, j: (i, 0)),
            pl.BlockSpec((BKV, d), lambda i, j: (j, 0)),
            pl.BlockSpec((BKV, d), lambda i, j: (j, 0)),
        ],
        out_specs=pl.BlockSpec((BQ, d), lambda i, j: (i, 0)),
        scratch_shapes=[accumulator, accumulator, accumulator],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(batch=1, heads=1, sequence=16384, head_dim=128):
    """FLOPs of one call: two matmuls, and five for every score (scale, subtract, exponential, sum, divide)."""
    return batch * heads * (4 * sequence * sequence * head_dim + 5 * sequence * sequence)


def get_tiling_meta(batch=1, heads=1, sequence=16384, head_dim=128):
    """Grid, buffers and traffic of one head: K and V are read once for every block of queries, Q and O once."""
    if batch * heads > 1:
        return {}
    grid = (sequence // BQ, sequence // BKV)
    once = 2 * sequence * head_dim
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
        "inputs": {"q": once, "k": grid[0] * once, "v": grid[0] * once},
        "outputs": {"o": once},
        # One block of float32 scores, in registers of 8 x 128.
        "vregs": BQ * BKV // 1024,
    }
