"""Attention forward on a TPU, softmax(scale Q K^T) V: the one file that an experiment changes.

Online softmax, one block of queries against one block of keys and values in each grid step, all of
it transposed: scores are [keys, queries], so that the softmax of a query runs down a column, and
V^T P fills a 256 x 256 matrix unit that P V leaves half empty. The judge takes three things from here:

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

KERNEL_NAME = "transposed_attention"
PROBLEM_DESCRIPTION = "attention forward, one head, not causal, softmax scale 1/sqrt(head_dim)"

BQ = 2048
BKV = 2048
# Keys and queries of a tile, which is worked on at a time, and how many tiles ahead scores are asked for.
TK = 512
TQ = 256
DEPTH = 4
# Rows of ones below V^T, one packed register of them: their product with the weights is the sum of the weights.
ONES = 16
# How much VMEM the compiler may give the kernel, in bytes; None: its default; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20


def attend(q_ref, k_ref, v_ref, o_ref, v_t_ref, m_ref, acc_ref, *, scale):
    """One step: block of queries [BQ, d] against block of keys and values [BKV, d]; scores are [BKV, BQ].

    m [1, BQ] and acc [d + ONES, BQ] float32 live in VMEM over all key blocks of one query block: the
    running maximum of each query, and the output and (in the rows from d on) the sum of its weights,
    transposed and not yet divided. v_t is [d + ONES, BKV].
    """
    step, steps = pl.program_id(1), pl.num_programs(1)
    d = v_ref.shape[1]

    @pl.when(step == 0)
    def start():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        v_t_ref[d:] = jnp.ones_like(v_t_ref[d:])
        acc_ref[...] = jnp.zeros_like(acc_ref)

    # exp(scale x) = 2^(factor x). The hardware has powers of two, so exp would multiply once more for every score.
    factor = scale * math.log2(math.e)
    v_t_ref[:d] = v_ref[...].T
    tiles = [(slice(k, k + TK), slice(q, q + TQ)) for k in range(0, BKV, TK) for q in range(0, BQ, TQ)]

    def scored(keys, queries):
        scores = jax.lax.dot_general(
            k_ref[keys], q_ref[queries], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        return scores * factor

    ahead = [scored(*tile) for tile in tiles[:DEPTH]]
    for number, (keys, queries) in enumerate(tiles):
        ahead += [scored(*tile) for tile in tiles[number + DEPTH : number + DEPTH + 1]]
        scores = ahead.pop(0)
        old_max = m_ref[:, queries]
        new_max = jnp.maximum(old_max, scores.max(axis=0, keepdims=True))
        weights = jnp.exp2(scores - new_max)
        # What was summed up so far was relative to the old maximum.
        rescale = jnp.exp2(old_max - new_max)
        m_ref[:, queries] = new_max
        values = jnp.dot(v_t_ref[:, keys], weights.astype(v_ref.dtype), preferred_element_type=jnp.float32)
        acc_ref[:, queries] = acc_ref[:, queries] * rescale + values

    @pl.when(step == steps - 1)
    def finish():
        o_ref[...] = (acc_ref[:d] / acc_ref[d : d + 1]).T.astype(o_ref.dtype)


def kernel_fn(q, k, v):
    """Attention of q [sequence, d] over k, v [kv_sequence, d]. Raises ValueError where blocks do not divide sequences."""
    (sequence, d), kv_sequence = q.shape, k.shape[0]
    for name, length, block in (("BQ", sequence, BQ), ("BKV", kv_sequence, BKV)):
        if length % block:
            raise ValueError(f"expected {name} to divide the sequence of {length}, got {name}={block}")
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
        scratch_shapes=[
            pltpu.VMEM((d + ONES, BKV), v.dtype),
            pltpu.VMEM((1, BQ), jnp.float32),
            pltpu.VMEM((d + ONES, BQ), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(sequence=16384, head_dim=128):
    """FLOPs of one call: two matmuls, and five for every score (scale, subtract, exponential, sum, divide)."""
    return 4 * sequence * sequence * head_dim + 5 * sequence * sequence


def get_tiling_meta(sequence=16384, head_dim=128):
    """Grid, buffers and traffic: K and V are read once for every block of queries, Q and O once."""
    grid = (sequence // BQ, sequence // BKV)
    once = 2 * sequence * head_dim
    return {
        "grid": grid,
        "buffers": {
            "q": ((BQ, head_dim), "bfloat16"),
            "k": ((BKV, head_dim), "bfloat16"),
            "v": ((BKV, head_dim), "bfloat16"),
            "o": ((BQ, head_dim), "bfloat16"),
            "v_t": ((head_dim + ONES, BKV), "bfloat16"),
            "m": ((1, BQ), "float32"),
            "acc": ((head_dim + ONES, BQ), "float32"),
        },
        "inputs": {"q": once, "k": grid[0] * once, "v": grid[0] * once},
        "outputs": {"o": once},
        # One block of float32 scores, in registers of 8 x 128.
        "vregs": BQ * BKV // 1024,
    }
