"""Causal attention forward in a window on a TPU v6e, softmax(scale Q K^T) V of the last WINDOW keys up to each query.

All keys and values of a head lie in VMEM, the values transposed once. A step takes a block of queries of all heads of a
group, a tile at a time, each against all keys that it sees: nothing is carried from tile to tile or rescaled. All of it
is transposed: scores are [keys, queries], so that the softmax of a query runs down a column, and V^T P fills the
matrix units. See the kernel.py at the top of the repository for what the judge takes from it.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "window_attention"
PROBLEM_DESCRIPTION = "causal grouped-query attention forward in a window, softmax scale 1/sqrt(head_dim)"

# Of the keys up to its own a query sees the last so many.
WINDOW = 1024
# Queries of one step, of each head of a group; at least WINDOW.
BQ = 2048
# Queries of a tile, which is worked on at a time, and how many tiles ahead scores are asked for.
TQ = 256
DEPTH = 2
# Rows of ones below V^T, one packed register of them: their product with the weights is the sum of the weights.
ONES = 16
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20
# The score of a hidden key: far below any other.
HIDDEN = -1e30


def attend(q_ref, k_ref, v_ref, o_ref, v_t_ref, *, scale):
    """One step: a block of queries [group, BQ, d] against the keys and values [sequence, d] of their windows.

    v_t is [d + ONES, sequence]: the values transposed, and rows of ones.
    """
    group, (sequence, d) = q_ref.shape[0], v_ref.shape
    block = pl.program_id(2)
    # exp(scale x) = 2^(factor x). The hardware has powers of two, so exp would multiply once more for every score.
    factor = scale * math.log2(math.e)

    @pl.when(block == 0)
    def transpose():
        v_t_ref[:d] = v_ref[...].T
        v_t_ref[d:] = jnp.ones_like(v_t_ref[d:])

    def attend_all(first_key):
        """All tiles of the block; no key lies before `first_key`, counted from the first query of the block."""
        tiles = [(head, slice(query, query + TQ)) for query in range(0, BQ, TQ) for head in range(group)]

        def keys_of(queries):
            start = max(queries.start - WINDOW, first_key)
            return start, pl.ds(pl.multiple_of(block * BQ + start, TQ), queries.stop - start)

        def scored(head, queries):
            # Rounded once for a query, not once for a score.
            scaled = (q_ref[head, queries].astype(jnp.float32) * factor).astype(q_ref.dtype)
            return jax.lax.dot_general(
                k_ref[keys_of(queries)[1]], scaled, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            )

        ahead = [scored(*tile) for tile in tiles[:DEPTH]]
        for number, (head, queries) in enumerate(tiles):
            ahead += [scored(*tile) for tile in tiles[number + DEPTH : number + DEPTH + 1]]
            scores = ahead.pop(0)
            start, keys = keys_of(queries)
            # The last TQ keys are hidden in part from the tile's queries, and so are the first, where all are there.
            key = jax.lax.broadcasted_iota(jnp.int32, (TQ, TQ), 0)
            query = jax.lax.broadcasted_iota(jnp.int32, (TQ, TQ), 1)
            pieces = [scores[: -TQ], jnp.where(key <= query, scores[-TQ:], HIDDEN)]
            if start == queries.start - WINDOW:
                pieces = [jnp.where(key > query, pieces[0][:TQ], HIDDEN), pieces[0][TQ:], pieces[1]]
            pieces = [piece for piece in pieces if len(piece)]
            largest = functools.reduce(jnp.maximum, [piece.max(axis=0, keepdims=True) for piece in pieces])
            weights = jnp.concatenate([jnp.exp2(piece - largest).astype(v_ref.dtype) for piece in pieces])
            product = jnp.dot(v_t_ref[:, keys], weights, preferred_element_type=jnp.float32)
            o_ref[head, queries] = (product[:d] / product[d : d + 1]).T.astype(o_ref.dtype)

    @pl.when(block == 0)
    def first():
        attend_all(0)

    @pl.when(block > 0)
    def others():
        attend_all(-WINDOW)


def kernel_fn(q, k, v):
    """Attention of q [batch, heads, sequence, d] over k, v [batch, kv_heads, sequence, d], or without the first axes.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where BQ does not
    divide the sequence.
    """
    if q.ndim < 4:
        return kernel_fn(q[None], k[None], v[None])[0]
    (batch, heads, sequence, d), kv_heads = q.shape, k.shape[1]
    if sequence % BQ or BQ < WINDOW:
        raise ValueError(f"expected BQ of {WINDOW} or more to divide the sequence of {sequence}, got BQ={BQ}")
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
        scratch_shapes=[pltpu.VMEM((d + ONES, sequence), v.dtype)],
        compiler_params=pltpu.CompilerParams(
            # The first block of queries transposes the values for the others.
            dimension_semantics=("parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=VMEM_LIMIT,
        ),
        name=KERNEL_NAME,
    )(q, k, v)


def compute_flops(batch=1, heads=16, sequence=8192, head_dim=256):
    """FLOPs of one call: two matmuls and five for every score, of the pairs that the mask lets through."""
    pairs = batch * heads * (sequence * WINDOW - WINDOW * (WINDOW - 1) // 2)
    return 4 * pairs * head_dim + 5 * pairs
