"""Causal attention backward on a TPU v6e: dq, dk and dv of softmax(scale Q K^T) V from its residuals, in one kernel.

What an experiment changes. All of a head lies in VMEM, and a step is a whole head: one long block of code, cut into
tiles, of which those that no query sees are left out. Scores are [queries, keys], and all gradients are summed transposed:
Q^T dS, dO^T P and K^T dS^T fill a 256 x 256 matrix unit that dS^T Q, P^T dO and dS K leave half empty.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_attention_backward"
PROBLEM_DESCRIPTION = "dq, dk, dv of causal attention from its residuals, softmax scale 1/sqrt(head_dim)"

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
    """One step, a head: all are [sequence, d], but for lse [1, sequence].

    q_t, k_t, v_t, do_t [d, sequence] are transposed; lse_all (of base 2) and delta_all [sequence, d] hold the same in all columns.
    ds_t [TURNS, keys, queries] are transposed gradients of scores; dq_acc, dk_acc and dv_acc [d, sequence] float32 the
    sums, transposed.
    """
    sequence, d = q_ref.shape
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

    def prepare_queries(rows):
        do_t[:, rows], q_t[:, rows] = do_ref[rows].T, q_ref[rows].T
        lse_all[rows] = jnp.broadcast_to(lse_ref[:, rows] * to_base_2, (d, CHUNK)).T
        of_weights = o_ref[rows].astype(jnp.float32) * do_ref[rows].astype(jnp.float32)
        delta_all[rows] = jnp.broadcast_to(of_weights.sum(axis=1, keepdims=True), (CHUNK, d))

    def add(acc, columns, product):
        """Adds to these columns of a sum; what is first there is written."""
        places = {(id(acc), place) for place in range(columns.start, columns.stop, CHUNK)}
        acc[:, columns] = acc[:, columns] + product if places & begun else product
        begun.update(places)

    def products(queries, keys):
        """Scores, not yet scaled, and do v^T; of what is first asked for, all that is needed is made."""
        prepare("queries", queries, prepare_queries)
        prepare("keys", keys, prepare_keys)
        return dot(q_ref[queries], k_t[:, keys]), dot(do_ref[queries], v_t[:, keys])

    def absorb(turn, queries, keys, scores, of_weights):
        """Takes what these queries and keys have to do with each other into the gradients of both."""
        repeats = (keys.stop - keys.start) // d
        lse, delta = (jnp.concatenate([ref[queries]] * repeats, axis=1) for ref in (lse_all, delta_all))
        weights = jnp.exp2(scores * (scale * to_base_2) - lse)
        if keys.stop > queries.start:
            query = queries.start + jax.lax.broadcasted_iota(jnp.int32, weights.shape, 0)
            key = keys.start + jax.lax.broadcasted_iota(jnp.int32, weights.shape, 1)
            weights = jnp.where(key <= query, weights, 0.0)
        of_scores = (weights * (of_weights - delta)).astype(q_ref.dtype)
        add(dv_acc, keys, dot(do_t[:, queries], weights.astype(do_ref.dtype)))
        add(dk_acc, keys, dot(q_t[:, queries], of_scores))
        # Through VMEM, so that the cross-lane units transpose: the matrix units' own port takes twice as long for it.
        place = (turn, slice(keys.stop - keys.start), slice(queries.stop - queries.start))
        ds_t[place] = of_scores.T
        return queries, keys, place

    def absorb_keys(queries, keys, place):
        """The part of dq, later than the rest of its tile, whose gradients of scores are transposed meanwhile."""
        add(dq_acc, queries, dot(k_t[:, keys], ds_t[place]))

    def finish(ref, acc, columns, factor, rest):
        """Writes those rows of a gradient that are in none of the slices of the rest: they are complete."""
        for rows in cut(columns.start, columns.stop, CHUNK):
            if not any(later.start <= rows.start < later.stop for later in rest):
                ref[rows] = (acc[:, rows].T * factor).astype(ref.dtype)

    tiles = tiles_of(sequence)
    transposed = []
    ahead = [products(*tile) for tile in tiles[:DEPTH]]
    for number, tile in enumerate(tiles):
        ahead += [products(*later) for later in tiles[number + DEPTH : number + DEPTH + 1]]
        transposed.append(absorb(number % TURNS, *tile, *ahead.pop(0)))
        rest = tiles[number + 1 :]
        finish(dk_ref, dk_acc, tile[1], scale, [later for _, later in rest])
        finish(dv_ref, dv_acc, tile[1], 1.0, [later for _, later in rest])
        while len(transposed) > (LAG if rest else 0):
            queries, keys, place = transposed.pop(0)
            absorb_keys(queries, keys, place)
            finish(dq_ref, dq_acc, queries, scale, [one[0] for one in (*transposed, *rest)])


def kernel_fn(q, k, v, o, lse, do):
    """dq, dk, dv of [sequence, d], or of [heads, sequence, d]."""
    shape, (sequence, d) = q.shape, q.shape[-2:]
    q, k, v, o, do = (array.reshape(-1, sequence, d) for array in (q, k, v, o, do))
    rows = pl.BlockSpec((None, sequence, d), lambda h: (h, 0, 0))
    columns, wide, high = (
        pltpu.VMEM(size, dtype)
        for size, dtype in (((d, sequence), q.dtype), ((d, sequence), jnp.float32), ((sequence, d), jnp.float32))
    )
    found = pl.pallas_call(
        functools.partial(gradients, scale=1 / math.sqrt(d)),
        out_shape=[jax.ShapeDtypeStruct(q.shape, q.dtype)] * 3,
        grid=(len(q),),
        in_specs=[rows] * 5 + [pl.BlockSpec((None, 1, sequence), lambda h: (h, 0, 0))],
        out_specs=[rows] * 3,
        scratch_shapes=[columns] * 4 + [pltpu.VMEM((TURNS, TK, TQ), q.dtype)] + [high] * 2 + [wide] * 3,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(q, k, v, o, do, lse.reshape(-1, 1, sequence))
    return tuple(array.reshape(shape) for array in found)


def compute_flops(heads=4, sequence=4096, head_dim=256):
    """FLOPs of one call: five products over head_dim for each visible pair, 5 for its softmax, delta of each query."""
    pairs = heads * sequence * (sequence + 1) // 2
    return 10 * pairs * head_dim + 5 * pairs + 2 * heads * sequence * head_dim
