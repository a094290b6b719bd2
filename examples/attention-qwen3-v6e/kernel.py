"""Causal grouped-query attention forward on a TPU v6e, softmax(scale Q K^T) V of the keys up to each query.

All keys and values of a head lie in VMEM, the values transposed once. A step takes a block of queries of all heads of a
group: it loops over the blocks of keys that all of them see, and then takes the block on the diagonal. Both are long
blocks of code, cut into tiles, and all of it transposed: scores are [keys, queries], so that the softmax of a query
runs down a column, and V^T P fills a 256 x 256 matrix unit that P V leaves half empty. See the kernel.py at the top of
the repository for what the judge takes from it.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_grouped_attention"
PROBLEM_DESCRIPTION = "causal grouped-query attention forward, softmax scale 1/sqrt(head_dim)"

# Queries of one step, of each head of a group, and keys of one turn of the loop.
BQ = 1024
BK = 1024
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


def attend(q_ref, k_ref, v_ref, o_ref, v_t_ref, q_scaled_ref, m_ref, acc_ref, *, scale):
    """One step: a block of queries [group, BQ, d] against keys and values [sequence, d], up to each query's own.

    Scores are [keys, queries]. m [group, 1, BQ] and acc [group, d + ONES, BQ] float32 are, over the tiles of keys, the
    running maximum of each query, and the output and (in the rows from d on) the sum of its weights, transposed
    and not yet divided. v_t is [d + ONES, sequence].
    """
    group, (sequence, d) = q_ref.shape[0], v_ref.shape
    block = pl.program_id(2)
    # exp(scale x) = 2^(factor x). The hardware has powers of two, so exp would multiply once more for every score.
    factor = scale * math.log2(math.e)

    @pl.when(block == 0)
    def transpose():
        v_t_ref[:d] = v_ref[...].T
        v_t_ref[d:] = jnp.ones_like(v_t_ref[d:])

    q_scaled_ref[...] = (q_ref[...].astype(jnp.float32) * factor).astype(q_ref.dtype)
    m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
    acc_ref[...] = jnp.zeros_like(acc_ref)

    def absorb(tiles, start, causal):
        """Takes tiles (head, keys, queries) of the block of keys from `start` on; asks for scores DEPTH tiles before."""

        def of_sequence(keys):
            return pl.ds(pl.multiple_of(start + keys.start, TK), keys.stop - keys.start)

        def scored(head, keys, queries):
            return jax.lax.dot_general(
                k_ref[of_sequence(keys)],
                q_scaled_ref[head, queries],
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )

        ahead = [scored(*tile) for tile in tiles[:DEPTH]]
        for number, (head, keys, queries) in enumerate(tiles):
            ahead += [scored(*tile) for tile in tiles[number + DEPTH : number + DEPTH + 1]]
            scores = ahead.pop(0)
            if causal and keys.stop > queries.start:
                # Both blocks begin at the same place, so places within them compare like places in the sequence.
                key = keys.start + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
                query = queries.start + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
                scores = jnp.where(key <= query, scores, HIDDEN)
            old_max = m_ref[head, :, queries]
            new_max = jnp.maximum(old_max, scores.max(axis=0, keepdims=True))
            weights = jnp.exp2(scores - new_max)
            # What was summed up so far was relative to the old maximum.
            rescale = jnp.exp2(old_max - new_max)
            product = jnp.dot(
                v_t_ref[:, of_sequence(keys)], weights.astype(v_ref.dtype), preferred_element_type=jnp.float32
            )
            product = acc_ref[head, :, queries] * rescale + product
            if causal and keys.stop >= queries.stop:
                o_ref[head, queries] = (product[:d] / product[d : d + 1]).T.astype(o_ref.dtype)
            else:
                m_ref[head, :, queries], acc_ref[head, :, queries] = new_max, product

    def tiles(keys):
        """All queries of all heads against some keys before any against the next: no tile waits for the one before."""
        return [
            (head, slice(key, key + TK), slice(query, query + TQ))
            for key in range(0, keys, TK)
            for head in range(group)
            for query in range(0, BQ, TQ)
        ]

    @pl.loop(0, block * (BQ // BK))
    def before(turn):
        absorb(tiles(BK), turn * BK, causal=False)

    # Tiles that are hidden as a whole are left out, the others cut off behind their last query's key.
    on_diagonal = [
        (head, slice(keys.start, min(keys.stop, queries.stop)), queries)
        for head, keys, queries in tiles(BQ)
        if queries.stop > keys.start
    ]
    absorb(on_diagonal, block * BQ, causal=True)


def kernel_fn(q, k, v):
    """Causal attention of q [batch, heads, sequence, d], k, v [batch, kv_heads, sequence, d], or without first axes.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where BQ does not
    divide the sequence.
    """
    if q.ndim < 4:
        return kernel_fn(q[None], k[None], v[None])[0]
    (batch, heads, sequence, d), kv_heads = q.shape, k.shape[1]
    if sequence % BQ or BQ % BK:
        raise ValueError(f"expected BQ to divide the sequence of {sequence} and BK to divide BQ, got BQ={BQ}, BK={BK}")
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
        scratch_shapes=[
            pltpu.VMEM((d + ONES, sequence), v.dtype),
            pltpu.VMEM((group, BQ, d), q.dtype),
            pltpu.VMEM((group, 1, BQ), jnp.float32),
            pltpu.VMEM((group, d + ONES, BQ), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            # The first block of queries transposes the values for the others.
            dimension_semantics=("parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=VMEM_LIMIT,
        ),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(batch=1, heads=32, sequence=8192, head_dim=128):
    """FLOPs of one call: two matmuls and five for every score, of the pairs that the mask lets through."""
    pairs = batch * heads * sequence * (sequence + 1) // 2
    return 4 * pairs * head_dim + 5 * pairs
