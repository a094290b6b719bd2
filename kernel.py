"""Attention forward on a TPU v5e, softmax(scale Q K^T) V: the one file that an experiment changes.

Each step is one long block without branches, cut into tiles: the matrix units make the scores of the
next tile while the vector units are in the softmax of this one. The judge takes three
things from here:

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

KERNEL_NAME = "look_ahead_attention"
PROBLEM_DESCRIPTION = "attention forward, one head, not causal, softmax scale 1/sqrt(head_dim)"

# Queries and keys of one step.
BQ = 4096
BKV = 4096
# Queries and keys of one tile. More queries: fewer changes of the weights in the matrix units. More keys: fewer
# reductions across lanes and rescalings. But a tile's float32 scores have to be kept, and there are 64 registers.
TILE_Q = 512
TILE_KV = 1024
# Rows of a tile whose weights are made at a time.
ROWS = 64
LANES = 128
# How much VMEM the compiler may give the kernel, in bytes; a v5e has 128 MiB.
VMEM_LIMIT = 100 * 2**20


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    """One step: block of queries [BQ, d] against block of keys and values [BKV, d].

    m, l [BQ, LANES] and acc [BQ, d] float32 live in VMEM over all key blocks of one query block: the running
    maximum of each row's scores (the same in every lane), the sum of its weights (lane i has every
    LANES-th of them, from i on) and the output not yet divided.
    """
    step, steps = pl.program_id(1), pl.num_programs(1)
    # exp(scale x) = 2^(factor x). Applied to the scores: queries that are scaled first are rounded once more.
    factor = scale * math.log2(math.e)
    # All rows against some keys before any row against the next: no tile waits for the one before it.
    tiles = [
        (slice(row, row + TILE_Q), slice(key, key + TILE_KV))
        for key in range(0, BKV, TILE_KV)
        for row in range(0, BQ, TILE_Q)
    ]

    def score(rows, keys):
        scores = jax.lax.dot_general(
            q_ref[rows], k_ref[keys], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        return scores, scores.max(axis=1, keepdims=True)

    def absorb(rows, keys, scores, tile_max):
        """Takes the tile's scores and values into its rows of m, l and acc."""
        old_max, sums, values = m_ref[rows], l_ref[rows], acc_ref[rows]
        if keys.start == 0:
            # What is there in the first step is another block's. A select costs less here than a branch that writes.
            old_max = jnp.where(step == 0, -jnp.inf, old_max)
            sums = jnp.where(step == 0, 0.0, sums)
            values = jnp.where(step == 0, 0.0, values)
        new_max = jnp.maximum(old_max, tile_max)
        # What was summed up so far was relative to the old maximum.
        rescale = jnp.exp2((old_max - new_max) * factor)
        weights, sums_of_rows = [], []
        for row in range(0, TILE_Q, ROWS):
            some = slice(row, row + ROWS)
            w = jnp.exp2((scores[some] - new_max[some, :1]) * factor)
            # Lane by lane: the lanes are added up once, at the end.
            added = sum(w[:, key : key + LANES] for key in range(0, TILE_KV, LANES))
            sums_of_rows.append(sums[some] * rescale[some] + added)
            weights.append(w.astype(v_ref.dtype))
        m_ref[rows] = new_max
        l_ref[rows] = jnp.concatenate(sums_of_rows)
        product = jnp.dot(jnp.concatenate(weights), v_ref[keys], preferred_element_type=jnp.float32)
        acc_ref[rows] = values * rescale + product

    scored = score(*tiles[0])
    for tile, following in zip(tiles, [*tiles[1:], None], strict=True):
        ready = scored
        if following:
            scored = score(*following)
        absorb(*tile, *ready)

    @pl.when(step == steps - 1)
    def finish():
        o_ref[...] = (acc_ref[...] / l_ref[...].sum(axis=1, keepdims=True)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    """Attention of q [sequence, d] over k, v [kv_sequence, d]. Raises ValueError where a block does not divide them."""
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
            pltpu.VMEM((BQ, LANES), jnp.float32),
            pltpu.VMEM((BQ, LANES), jnp.float32),
            pltpu.VMEM((BQ, d), jnp.float32),
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
            "m": ((BQ, LANES), "float32"),
            "l": ((BQ, LANES), "float32"),
            "acc": ((BQ, head_dim), "float32"),
        },
        "inputs": {"q": once, "k": grid[0] * once, "v": grid[0] * once},
        "outputs": {"o": once},
    }
