"""Causal attention backward on a TPU v6e: dq, dk and dv of softmax(scale Q K^T) V from its residuals, in one kernel.

What an experiment changes. All of a head lies in VMEM, and a step is a whole head: one long block of code, cut into
tiles, of which those that no query sees are left out. Scores are [queries, keys], and dk and dv are summed transposed:
Q^T dS and dO^T P fill a 256 x 256 matrix unit that dS^T Q and P^T dO leave half empty.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_attention_backward"
PROBLEM_DESCRIPTION = "dq, dk, dv of causal attention from its residuals, softmax scale 1/sqrt(head_dim)"

# Queries and keys of a tile, which is worked on at a time, and how many tiles ahead scores are asked for.
TILE = 256
DEPTH = 3
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
    """Queries and keys of the tiles that are not hidden as a whole: all queries against some keys, then the next."""
    tiles = cut(0, sequence, TILE)
    return [(queries, keys) for keys in tiles for queries in tiles if queries.start >= keys.start]


def gradients(
    q_ref, k_ref, v_ref, o_ref, do_ref, lse_ref, dq_ref, dk_ref, dv_ref,
    q_t, k_t, v_t, do_t, lse_all, delta_all, dq_acc, dk_acc, dv_acc, *, scale,
):  # fmt: skip
    """One step, a head: all are [sequence, d], but for lse [1, sequence].

    q_t, k_t, v_t, do_t [d, sequence] are transposed; lse_all (of base 2) and delta_all [sequence, d] hold the same in all columns.
    dq_acc [sequence, d], dk_acc and dv_acc [d, sequence] are the sums, float32.
    """
    sequence, d = q_ref.shape
    # The hardware has powers of two, so exp would multiply once more for every score.
    to_base_2 = math.log2(math.e)
    begun = set()
    for rows in cut(0, sequence, CHUNK):
        for ref, transposed in ((q_ref, q_t), (k_ref, k_t), (v_ref, v_t), (do_ref, do_t)):
            transposed[:, rows] = ref[rows].T
        lse_all[rows] = jnp.broadcast_to(lse_ref[:, rows] * to_base_2, (d, CHUNK)).T
        products = o_ref[rows].astype(jnp.float32) * do_ref[rows].astype(jnp.float32)
        delta_all[rows] = jnp.broadcast_to(products.sum(axis=1, keepdims=True), (CHUNK, d))

    def add(acc, rows, product, axis):
        """Adds to these rows, or columns, of a sum; what is first there is written."""
        places = {(id(acc), place) for place in range(rows.start, rows.stop, CHUNK)}
        at = (rows, slice(None)) if axis == 0 else (slice(None), rows)
        acc[at] = acc[at] + product if places & begun else product
        begun.update(places)

    def products(queries, keys):
        """Scores, not yet scaled, and do v^T."""
        return dot(q_ref[queries], k_t[:, keys]), dot(do_ref[queries], v_t[:, keys])

    def absorb(queries, keys, scores, of_weights):
        """Takes what these queries and keys have to do with each other into the gradients of both."""
        repeats = (keys.stop - keys.start) // d
        lse, delta = (jnp.concatenate([ref[queries]] * repeats, axis=1) for ref in (lse_all, delta_all))
        weights = jnp.exp2(scores * (scale * to_base_2) - lse)
        if keys.stop > queries.start:
            query = queries.start + jax.lax.broadcasted_iota(jnp.int32, weights.shape, 0)
            key = keys.start + jax.lax.broadcasted_iota(jnp.int32, weights.shape, 1)
            weights = jnp.where(key <= query, weights, 0.0)
        of_scores = (weights * (of_weights - delta)).astype(q_ref.dtype)
        add(dv_acc, keys, dot(do_t[:, queries], weights.astype(do_ref.dtype)), 1)
        add(dk_acc, keys, dot(q_t[:, queries], of_scores), 1)
        add(dq_acc, queries, dot(of_scores, k_ref[keys]), 0)

    tiles = tiles_of(sequence)
    ahead = [products(*tile) for tile in tiles[:DEPTH]]
    for number, tile in enumerate(tiles):
        ahead += [products(*later) for later in tiles[number + DEPTH : number + DEPTH + 1]]
        absorb(*tile, *ahead.pop(0))
    dq_ref[...] = (dq_acc[...] * scale).astype(dq_ref.dtype)
    dk_ref[...] = (dk_acc[...].T * scale).astype(dk_ref.dtype)
    dv_ref[...] = dv_acc[...].T.astype(dv_ref.dtype)


def kernel_fn(q, k, v, o, lse, do):
    """dq, dk, dv of [sequence, d], or of [heads, sequence, d]."""
    shape, (sequence, d) = q.shape, q.shape[-2:]
    q, k, v, o, do = (array.reshape(-1, sequence, d) for array in (q, k, v, o, do))
    rows = pl.BlockSpec((None, sequence, d), lambda h: (h, 0, 0))
    sums = pl.BlockSpec((None, 1, sequence), lambda h: (h, 0, 0))
    columns, wide, high = (
        pltpu.VMEM(size, dtype)
        for size, dtype in (((d, sequence), q.dtype), ((d, sequence), jnp.float32), ((sequence, d), jnp.float32))
    )
    found = pl.pallas_call(
        functools.partial(gradients, scale=1 / math.sqrt(d)),
        out_shape=[jax.ShapeDtypeStruct(q.shape, q.dtype)] * 3,
        grid=(len(q),),
        in_specs=[rows, rows, rows, rows, rows, sums],
        out_specs=[rows] * 3,
        scratch_shapes=[columns] * 4 + [high] * 3 + [wide] * 2,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(q, k, v, o, do, lse.reshape(-1, 1, sequence))
    return tuple(array.reshape(shape) for array in found)


def compute_flops(heads=8, sequence=4096, head_dim=128):
    """FLOPs of one call: five products over head_dim for each visible pair, 5 for its softmax, delta of each query."""
    pairs = heads * sequence * (sequence + 1) // 2
    return 10 * pairs * head_dim + 5 * pairs + 2 * heads * sequence * head_dim
