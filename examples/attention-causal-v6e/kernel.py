"""Causal attention forward on a TPU v6e, softmax(scale Q K^T) V of the keys up to each query.

Online softmax over the blocks of keys that some query of the block sees; the others are neither
fetched nor computed, nor are they steps of the grid. A step is one long block of code, cut into tiles:
the matrix units make the scores of the next tile while the vector units are in the softmax of this
one. See the kernel.py at the top of the repository for what the judge takes from this file.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_attention"
PROBLEM_DESCRIPTION = "causal attention forward, one head, softmax scale 1/sqrt(head_dim)"

# Queries and keys of one block: as many of both, so that only blocks on the diagonal are hidden in part.
BLOCK = 2048
# Queries and keys of one tile. More queries: fewer changes of the weights in the matrix units. More keys: fewer
# reductions across lanes and rescalings. But a tile's float32 scores have to be kept, and there are 64 registers.
TILE_Q = 512
TILE_KV = 1024
# Queries of one tile of a block on the diagonal: more leave less of its hidden part out.
DIAGONAL_Q = 512
# Rows of a tile whose weights are made at a time.
ROWS = 64
LANES = 128
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20
# The score of a hidden key: far below any other.
HIDDEN = -1e30


def tiles_before():
    """Rows and keys of the tiles of a block that all queries see: all rows against some keys, then the next keys."""
    # So no tile waits for the one before it.
    return [
        (slice(row, row + TILE_Q), slice(key, key + TILE_KV))
        for key in range(0, BLOCK, TILE_KV)
        for row in range(0, BLOCK, TILE_Q)
    ]


def tiles_on_diagonal():
    """Those of a block on the diagonal that are not hidden as a whole, each cut off behind its last query's key."""
    return [
        (slice(row, row + DIAGONAL_Q), slice(key, min(key + TILE_KV, row + DIAGONAL_Q)))
        for key in range(0, BLOCK, TILE_KV)
        for row in range(key, BLOCK, DIAGONAL_Q)
    ]


def hide(rows, keys, scores):
    """Scores of a tile on the diagonal, those of later keys hidden."""
    # Both blocks begin at the same place, so places within them compare like places in the sequence.
    query = rows.start + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    key = keys.start + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    return jnp.where(key <= query, scores, HIDDEN)


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    """One step: block of queries against block of keys and values, all [BLOCK, d].

    m, l [BLOCK, LANES] and acc [BLOCK, d] float32 live in VMEM over all key blocks of one query block: the
    running maximum of each row's scores (the same in every lane), the sum of its weights (lane i has
    every LANES-th of them, from i on) and the output not yet divided.
    """
    pair, step, last = pl.program_id(0), pl.program_id(1), pl.num_programs(1) - 1
    first = (step == 0) | (step == pair + 1)
    on_diagonal = (step == pair) | (step == last)
    # exp(scale x) = 2^(factor x). The hardware has powers of two, so exp would multiply once more for every score.
    factor = scale * math.log2(math.e)

    def score(rows, keys):
        return jax.lax.dot_general(
            q_ref[rows], k_ref[keys], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )

    def absorb(rows, keys, scores):
        """Takes the tile's scores and values into its rows of m, l and acc."""
        old_max, sums, values = m_ref[rows], l_ref[rows], acc_ref[rows]
        if keys.start == 0:
            # What is there in the first step is another block's. A select costs less here than a branch that writes.
            old_max = jnp.where(first, -jnp.inf, old_max)
            sums = jnp.where(first, 0.0, sums)
            values = jnp.where(first, 0.0, values)
        new_max = jnp.maximum(old_max, scores.max(axis=1, keepdims=True))
        # What was summed up so far was relative to the old maximum.
        rescale = jnp.exp2((old_max - new_max) * factor)
        weights, sums_of_rows = [], []
        for row in range(0, rows.stop - rows.start, ROWS):
            some = slice(row, row + ROWS)
            w = jnp.exp2((scores[some] - new_max[some, :1]) * factor)
            # Lane by lane: the lanes are added up once, at the end.
            added = sum(w[:, key : key + LANES] for key in range(0, keys.stop - keys.start, LANES))
            sums_of_rows.append(sums[some] * rescale[some] + added)
            weights.append(w.astype(v_ref.dtype))
        m_ref[rows] = new_max
        l_ref[rows] = jnp.concatenate(sums_of_rows)
        product = jnp.dot(jnp.concatenate(weights), v_ref[keys], preferred_element_type=jnp.float32)
        acc_ref[rows] = values * rescale + product

    def absorb_all(tiles, causal):
        """Each tile's scores are asked for before the softmax of the one before it."""
        scores = score(*tiles[0])
        for (rows, keys), following in zip(tiles, [*tiles[1:], None], strict=True):
            ready = scores
            if following:
                scores = score(*following)
            if causal and keys.stop > rows.start:
                ready = hide(rows, keys, ready)
            absorb(rows, keys, ready)

    @pl.when(jnp.logical_not(on_diagonal))
    def before():
        absorb_all(tiles_before(), causal=False)

    @pl.when(on_diagonal)
    def diagonal():
        absorb_all(tiles_on_diagonal(), causal=True)
        o_ref[...] = (acc_ref[...] / l_ref[...].sum(axis=1, keepdims=True)).astype(o_ref.dtype)


def kernel_fn(q, k, v):
    """Causal attention of q, k, v [sequence, d]. Raises ValueError where a block does not divide the sequence."""
    sequence, d = q.shape
    if sequence % (2 * BLOCK):
        raise ValueError(f"expected 2 BLOCK to divide the sequence of {sequence}, got BLOCK={BLOCK}")
    blocks = sequence // BLOCK

    # Block i of queries needs the i + 1 blocks of keys up to its own. Together with the i-th from the end that makes
    # blocks + 1 steps for each i: a rectangular grid without a step that does nothing.
    def query_block(i, step):
        return jnp.where(step <= i, i, blocks - 1 - i), 0

    def key_block(i, step):
        return jnp.where(step <= i, step, step - i - 1), 0

    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(blocks // 2, blocks + 1),
        in_specs=[
            pl.BlockSpec((BLOCK, d), query_block),
            pl.BlockSpec((BLOCK, d), key_block),
            pl.BlockSpec((BLOCK, d), key_block),
        ],
        out_specs=pl.BlockSpec((BLOCK, d), query_block),
        scratch_shapes=[
            pltpu.VMEM((BLOCK, LANES), jnp.float32),
            pltpu.VMEM((BLOCK, LANES), jnp.float32),
            pltpu.VMEM((BLOCK, d), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(sequence=16384, head_dim=128):
    """FLOPs of one call: two matmuls and five for every score, of the pairs that the mask lets through."""
    pairs = sequence * (sequence + 1) // 2
    return 4 * pairs * head_dim + 5 * pairs


def get_tiling_meta(sequence=16384, head_dim=128):
    """Grid, buffers and traffic: each block of queries reads the keys and values up to its own, Q and O cross once."""
    blocks = sequence // BLOCK
    once = 2 * sequence * head_dim
    # Block i of queries needs i + 1 blocks of keys; the first is still there after block 0, which needs no other.
    keys = 2 * (blocks * (blocks + 1) // 2 - 1) * BLOCK * head_dim
    return {
        "grid": (blocks // 2, blocks + 1),
        "buffers": {
            "q": ((BLOCK, head_dim), "bfloat16"),
            "k": ((BLOCK, head_dim), "bfloat16"),
            "v": ((BLOCK, head_dim), "bfloat16"),
            "o": ((BLOCK, head_dim), "bfloat16"),
            "m": ((BLOCK, LANES), "float32"),
            "l": ((BLOCK, LANES), "float32"),
            "acc": ((BLOCK, head_dim), "float32"),
        },
        "inputs": {"q": once, "k": keys, "v": keys},
        "outputs": {"o": once},
    }
