"""Causal attention forward on a TPU v6e, softmax(scale Q K^T) V of the keys up to each query.

Online softmax over the blocks of keys that some query of the block sees; the others are neither fetched nor computed,
nor are they steps of the grid. A step is one long block of code, cut into tiles, and all of it transposed: scores are
[keys, queries], so that the softmax of a query runs down a column, and V^T P fills a 256 x 256 matrix unit that P V
leaves half empty. See the kernel.py at the top of the repository for what the judge takes from it.
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
# Keys and queries of a tile, which is worked on at a time, and how many tiles ahead scores are asked for.
TK = 512
TQ = 512
DEPTH = 2
# Rows of ones below V^T, one packed register of them: their product with the weights is the sum of the weights.
ONES = 16
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20
# The score of a hidden key: far below any other.
HIDDEN = -1e30


def tiles_before():
    """Keys and queries of the tiles of a block that all queries see: all queries against some keys, then the next."""
    # So no tile waits for the one before it.
    return [
        (slice(key, key + TK), slice(query, query + TQ)) for key in range(0, BLOCK, TK) for query in range(0, BLOCK, TQ)
    ]


def tiles_on_diagonal():
    """Those of a block on the diagonal that are not hidden as a whole, each cut off behind its last query's key."""
    return [
        (slice(keys.start, min(keys.stop, queries.stop)), queries)
        for keys, queries in tiles_before()
        if queries.stop > keys.start
    ]


def hide(keys, queries, scores):
    """Scores [keys, queries] of a tile on the diagonal, those of later keys hidden."""
    # Both blocks begin at the same place, so places within them compare like places in the sequence.
    key = keys.start + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
    query = queries.start + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    return jnp.where(key <= query, scores, HIDDEN)


def attend(q_ref, k_ref, v_ref, o_ref, v_t_ref, m_ref, acc_ref, *, scale):
    """One step: block of queries against block of keys and values, all [BLOCK, d]; scores are [keys, queries].

    m [1, BLOCK] and acc [d + ONES, BLOCK] float32 live in VMEM over all key blocks of one query block: the running
    maximum of each query, and the output and (in the rows from d on) the sum of its weights, transposed and not
    yet divided. v_t is [d + ONES, BLOCK].
    """
    pair, step, last = pl.program_id(0), pl.program_id(1), pl.num_programs(1) - 1
    d = v_ref.shape[1]
    first = (step == 0) | (step == pair + 1)
    on_diagonal = (step == pair) | (step == last)
    # exp(scale x) = 2^(factor x). The hardware has powers of two, so exp would multiply once more for every score.
    factor = scale * math.log2(math.e)

    def scored(keys, queries):
        scores = jax.lax.dot_general(
            k_ref[keys], q_ref[queries], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        return scores * factor

    def absorb(keys, queries, scores):
        """Takes the tile's scores and values into its queries of m and acc."""
        old_max, values = m_ref[:, queries], acc_ref[:, queries]
        if keys.start == 0:
            # What is there in the first step is another block's. A select costs less here than a branch that writes.
            old_max = jnp.where(first, -jnp.inf, old_max)
            values = jnp.where(first, 0.0, values)
        new_max = jnp.maximum(old_max, scores.max(axis=0, keepdims=True))
        weights = jnp.exp2(scores - new_max)
        # What was summed up so far was relative to the old maximum.
        rescale = jnp.exp2(old_max - new_max)
        m_ref[:, queries] = new_max
        product = jnp.dot(v_t_ref[:, keys], weights.astype(v_ref.dtype), preferred_element_type=jnp.float32)
        acc_ref[:, queries] = values * rescale + product

    def absorb_all(tiles, causal):
        """Scores are asked for DEPTH tiles before their softmax."""
        v_t_ref[:d] = v_ref[...].T
        v_t_ref[d:] = jnp.ones_like(v_t_ref[d:])
        ahead = [scored(*tile) for tile in tiles[:DEPTH]]
        for number, (keys, queries) in enumerate(tiles):
            ahead += [scored(*tile) for tile in tiles[number + DEPTH : number + DEPTH + 1]]
            scores = ahead.pop(0)
            if causal and keys.stop > queries.start:
                scores = hide(keys, queries, scores)
            absorb(keys, queries, scores)

    @pl.when(jnp.logical_not(on_diagonal))
    def before():
        absorb_all(tiles_before(), causal=False)

    @pl.when(on_diagonal)
    def diagonal():
        absorb_all(tiles_on_diagonal(), causal=True)
        o_ref[...] = (acc_ref[:d] / acc_ref[d : d + 1]).T.astype(o_ref.dtype)


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
            pltpu.VMEM((d + ONES, BLOCK), v.dtype),
            pltpu.VMEM((1, BLOCK), jnp.float32),
            pltpu.VMEM((d + ONES, BLOCK), jnp.float32),
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
            "v_t": ((head_dim + ONES, BLOCK), "bfloat16"),
            "m": ((1, BLOCK), "float32"),
            "acc": ((head_dim + ONES, BLOCK), "float32"),
        },
        "inputs": {"q": once, "k": keys, "v": keys},
        "outputs": {"o": once},
    }
