"""Causal attention backward on a TPU v6e: dq, dk and dv of softmax(scale Q K^T) V from its residuals, in one kernel.

What an experiment changes. Query heads that share keys come one after the other: their keys, values and the sums of dk
and dv stay in VMEM. A step is AT_ONCE whole heads, one long block of code, cut into tiles, of which those that no query
sees are left out. Scores are [queries, keys], and all gradients are summed transposed: Q^T dS, dO^T P and K^T dS^T fill a
256 x 256 matrix unit that dS^T Q, P^T dO and dS K leave half empty.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_attention_backward_of_groups"
PROBLEM_DESCRIPTION = "dq, dk, dv of causal attention from its residuals, softmax scale 1/sqrt(head_dim)"

# Query heads of a step; divides those that read the same keys.
AT_ONCE = 1
# Queries and keys of a tile, which is worked on at a time, and how many tiles ahead its products are asked for. Where
# the diagonal crosses it, it is cut into squares of TK.
TQ = 512
TK = 256
DEPTH = 2
# By how many tiles dq comes later than dk and dv.
LAG = 1
# Transposed tiles that there is room for at a time.
TURNS = 4
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20
# What is prepared at a time: as many rows as a transposition takes.
CHUNK = 128


def dot(a, b, axes=(1, 0)):
    """The product of two blocks along these axes, float32."""
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), preferred_element_type=jnp.float32)


def cut(start, stop, size):
    """The slices of this size, the last of them perhaps shorter, from start to stop."""
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def tiles_of(sequence):
    """Queries and keys of the tiles that are not hidden as a whole: all queries against some keys, then others.

    The first keys, then the last, the second, the last but one: few queries see late keys, and what is to be made before
    or written after the tiles of some keys hides behind them only where they are many.
    """
    tiles, blocks = [], cut(0, sequence, TK)
    for number in range(len(blocks)):
        keys = blocks[-(number // 2) - 1 if number % 2 else number // 2]
        for queries in cut(0, sequence, TQ):
            if queries.start >= keys.stop:
                tiles.append((queries, keys))
            else:
                tiles += [(own, keys) for own in cut(queries.start, queries.stop, TK) if own.start >= keys.start]
    return tiles


def gradients(
    q_ref, k_ref, v_ref, o_ref, do_ref, lse_ref, dq_ref, dk_ref, dv_ref,
    q_t, k_t, v_t, do_t, ds_t, lse_all, delta_all, dq_acc, dk_acc, dv_acc, *, scale,
):  # fmt: skip
    """One step, some heads that read the same keys: all are [heads, sequence, d], lse [heads, 1, sequence], k, v, dk and
    dv [sequence, d].

    q_t, k_t, v_t, do_t [.., d, sequence] are transposed; lse_all (of base 2) and delta_all [heads, sequence, d] hold the
    same in all columns. ds_t [TURNS, keys, queries] are transposed gradients of scores; dq_acc, dk_acc and dv_acc
    [.., d, sequence] float32 the sums, transposed, of which the latter two live over all steps of the same keys.
    """
    heads, sequence, d = q_ref.shape
    # The hardware has powers of two, so exp would multiply once more for every score.
    to_base_2 = math.log2(math.e)
    begun = set()
    prepared = set()

    def prepare(name, rows, action):
        """Does the action for those chunks of these rows that it was not done for."""
        for chunk in cut(rows.start, rows.stop, CHUNK):
            if (name, chunk.start) not in prepared:
                prepared.add((name, chunk.start))
                action(chunk)

    def prepare_keys(rows):
        k_t[:, rows], v_t[:, rows] = k_ref[rows].T, v_ref[rows].T

    def prepare_queries(head, rows):
        do_t[head, :, rows], q_t[head, :, rows] = do_ref[head, rows].T, q_ref[head, rows].T
        lse_all[head, rows] = jnp.broadcast_to(lse_ref[head, :, rows] * to_base_2, (d, CHUNK)).T
        of_weights = o_ref[head, rows].astype(jnp.float32) * do_ref[head, rows].astype(jnp.float32)
        delta_all[head, rows] = jnp.broadcast_to(of_weights.sum(axis=1, keepdims=True), (CHUNK, d))

    @pl.when(pl.program_id(1) == 0)
    def start():
        dk_acc[...], dv_acc[...] = jnp.zeros_like(dk_acc), jnp.zeros_like(dv_acc)

    def products(head, queries, keys):
        """Scores, not yet scaled, and do v^T; of what is first asked for, all that is needed is made."""
        prepare(head, queries, functools.partial(prepare_queries, head))
        prepare("keys", keys, prepare_keys)
        return dot(q_ref[head, queries], k_t[:, keys]), dot(do_ref[head, queries], v_t[:, keys])

    def absorb(turn, head, queries, keys, scores, of_weights):
        """Takes what these queries and keys have to do with each other into the gradients of both."""
        repeats = (keys.stop - keys.start) // d
        lse, delta = (jnp.concatenate([ref[head, queries]] * repeats, axis=1) for ref in (lse_all, delta_all))
        weights = jnp.exp2(scores * (scale * to_base_2) - lse)
        if keys.stop > queries.start:
            query = queries.start + jax.lax.broadcasted_iota(jnp.int32, weights.shape, 0)
            key = keys.start + jax.lax.broadcasted_iota(jnp.int32, weights.shape, 1)
            weights = jnp.where(key <= query, weights, 0.0)
        of_scores = (weights * (of_weights - delta)).astype(q_ref.dtype)
        dv_acc[:, keys] += dot(do_t[head, :, queries], weights.astype(do_ref.dtype))
        dk_acc[:, keys] += dot(q_t[head, :, queries], of_scores)
        # Through VMEM, so that the cross-lane units transpose: the matrix units' own port takes twice as long for it.
        place = (turn, slice(keys.stop - keys.start), slice(queries.stop - queries.start))
        ds_t[place] = of_scores.T
        return head, queries, keys, place

    def absorb_keys(head, queries, keys, place):
        """The part of dq, later than the rest of its tile, whose gradients of scores are transposed meanwhile."""
        product = dot(k_t[:, keys], ds_t[place])
        for columns in cut(queries.start, queries.stop, CHUNK):
            # What is first there is written.
            part = product[:, columns.start - queries.start : columns.stop - queries.start]
            is_begun = (head, columns.start) in begun
            dq_acc[head, :, columns] = dq_acc[head, :, columns] + part if is_begun else part
            begun.add((head, columns.start))

    def finish(ref, acc, columns, factor, rest):
        """Writes those rows of a gradient that are in none of the slices of the rest: they are complete."""
        for rows in cut(columns.start, columns.stop, CHUNK):
            if not any(later.start <= rows.start < later.stop for later in rest):
                ref[rows] = (acc[:, rows].T * factor).astype(ref.dtype)

    tiles = [(head, *tile) for head in range(heads) for tile in tiles_of(sequence)]
    transposed = []
    ahead = [products(*tile) for tile in tiles[:DEPTH]]
    for number, tile in enumerate(tiles):
        ahead += [products(*later) for later in tiles[number + DEPTH : number + DEPTH + 1]]
        transposed.append(absorb(number % TURNS, *tile, *ahead.pop(0)))
        rest = tiles[number + 1 :]
        # Until the last head that reads the keys, what is written is not complete.
        finish(dk_ref, dk_acc, tile[2], scale, [keys for _, _, keys in rest])
        finish(dv_ref, dv_acc, tile[2], 1.0, [keys for _, _, keys in rest])
        while len(transposed) > (LAG if rest else 0):
            head, queries, keys, place = transposed.pop(0)
            absorb_keys(head, queries, keys, place)
            later = [some for other, some, *_ in (*transposed, *rest) if other == head]
            finish(dq_ref.at[head], dq_acc.at[head], queries, scale, later)


def kernel_fn(q, k, v, o, lse, do):
    """dq of q, o, do [heads, sequence, d], dk and dv of k, v [kv_heads, sequence, d]."""
    (heads, sequence, d), kv_heads = q.shape, len(k)
    steps = heads // kv_heads // AT_ONCE
    rows = pl.BlockSpec((AT_ONCE, sequence, d), lambda h, i: (h * steps + i, 0, 0))
    sums = pl.BlockSpec((AT_ONCE, 1, sequence), lambda h, i: (h * steps + i, 0, 0))
    shared = pl.BlockSpec((None, sequence, d), lambda h, i: (h, 0, 0))
    column, high = (d, sequence), (AT_ONCE, sequence, d)
    return pl.pallas_call(
        functools.partial(gradients, scale=1 / math.sqrt(d)),
        out_shape=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (q, k, v)],
        grid=(kv_heads, steps),
        in_specs=[rows, shared, shared, rows, rows, sums],
        out_specs=[rows, shared, shared],
        scratch_shapes=[
            pltpu.VMEM((AT_ONCE, *column), q.dtype),
            *[pltpu.VMEM(column, q.dtype)] * 2,
            pltpu.VMEM((AT_ONCE, *column), q.dtype),
            pltpu.VMEM((TURNS, TK, TQ), q.dtype),
            *[pltpu.VMEM(high, jnp.float32)] * 2,
            pltpu.VMEM((AT_ONCE, *column), jnp.float32),
            *[pltpu.VMEM(column, jnp.float32)] * 2,
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(q, k, v, o, do, lse.reshape(-1, 1, sequence))


def compute_flops(heads=32, sequence=4096, head_dim=128):
    """FLOPs of one call: five products over head_dim for each visible pair, 5 for its softmax, delta of each query."""
    pairs = heads * sequence * (sequence + 1) // 2
    return 10 * pairs * head_dim + 5 * pairs + 2 * heads * sequence * head_dim
