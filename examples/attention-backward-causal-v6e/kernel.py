"""Causal attention backward on a TPU v6e: dq, dk and dv of softmax(scale Q K^T) V from its residuals, in one kernel.

What an experiment changes. All of a head lies in VMEM, and a step is a whole head: one long block of code, cut into
tiles, of which those that no query sees are left out. Scores stand transposed, [keys, queries], so that lse and delta
are rows. The gradients are summed in VMEM.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_attention_backward"
PROBLEM_DESCRIPTION = "dq, dk, dv of causal attention from its residuals, softmax scale 1/sqrt(head_dim)"

# Queries and keys of a tile, which is worked on at a time, and of both of a tile on the diagonal.
TQ = 512
TK = 512
DIAGONAL = 512
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), preferred_element_type=jnp.float32)


def cut(start, stop, size):
    """The slices of this size, the last of them perhaps shorter, from start to stop."""
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def tiles_of(sequence):
    """Queries and keys of the tiles that are not hidden as a whole: all queries against some keys, then the next."""
    tiles = []
    for keys in cut(0, sequence, TK):
        for queries in cut(0, sequence, TQ):
            if queries.start >= keys.stop:
                tiles.append((queries, keys))
            elif queries.stop > keys.start:
                for k in cut(keys.start, keys.stop, DIAGONAL):
                    tiles += [(q, k) for q in cut(queries.start, queries.stop, DIAGONAL) if q.stop > k.start]
    return tiles


def gradients(
    q_ref, k_ref, v_ref, o_ref, do_ref, lse_ref, dq_ref, dk_ref, dv_ref, delta_ref, dq_acc, dk_acc, dv_acc, *, scale
):
    """One step, a head: all are [sequence, d], but for lse and delta [1, sequence]; the acc are float32."""
    begun = set()
    for queries in cut(0, len(q_ref), 128):
        products = o_ref[queries].astype(jnp.float32) * do_ref[queries].astype(jnp.float32)
        delta_ref[:, queries] = products.T.sum(axis=0, keepdims=True)

    def add(acc, rows, product):
        """Adds to rows of a sum; what is first there is written."""
        places = {(id(acc), place) for place in range(rows.start, rows.stop, 128)}
        acc[rows] = acc[rows] + product if places & begun else product
        begun.update(places)

    def absorb(queries, keys):
        """Takes what these queries and keys have to do with each other into the gradients of both."""
        scores = dot(k_ref[keys], q_ref[queries], (1, 1)) * scale
        weights = jnp.exp(scores - lse_ref[:, queries])
        if keys.stop > queries.start:
            key = keys.start + jax.lax.broadcasted_iota(jnp.int32, weights.shape, 0)
            query = queries.start + jax.lax.broadcasted_iota(jnp.int32, weights.shape, 1)
            weights = jnp.where(key <= query, weights, 0.0)
        differences = dot(v_ref[keys], do_ref[queries], (1, 1)) - delta_ref[:, queries]
        of_scores = (weights * differences).astype(q_ref.dtype)
        add(dv_acc, keys, dot(weights.astype(do_ref.dtype), do_ref[queries], (1, 0)))
        add(dk_acc, keys, dot(of_scores, q_ref[queries], (1, 0)))
        add(dq_acc, queries, dot(of_scores, k_ref[keys], (0, 0)))

    for tile in tiles_of(len(q_ref)):
        absorb(*tile)
    dq_ref[...] = (dq_acc[...] * scale).astype(dq_ref.dtype)
    dk_ref[...] = (dk_acc[...] * scale).astype(dk_ref.dtype)
    dv_ref[...] = dv_acc[...].astype(dv_ref.dtype)


def kernel_fn(q, k, v, o, lse, do):
    """dq, dk, dv of [sequence, d], or of [heads, sequence, d]."""
    shape, (sequence, d) = q.shape, q.shape[-2:]
    q, k, v, o, do = (array.reshape(-1, sequence, d) for array in (q, k, v, o, do))
    heads, scale = len(q), 1 / math.sqrt(d)
    rows = pl.BlockSpec((None, sequence, d), lambda h: (h, 0, 0))
    sums = pl.BlockSpec((None, 1, sequence), lambda h: (h, 0, 0))
    found = pl.pallas_call(
        functools.partial(gradients, scale=scale),
        out_shape=[jax.ShapeDtypeStruct(q.shape, q.dtype)] * 3,
        grid=(heads,),
        in_specs=[rows, rows, rows, rows, rows, sums],
        out_specs=[rows] * 3,
        scratch_shapes=[pltpu.VMEM((1, sequence), jnp.float32)] + [pltpu.VMEM((sequence, d), jnp.float32)] * 3,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(q, k, v, o, do, lse.reshape(-1, 1, sequence))
    return tuple(array.reshape(shape) for array in found)


def compute_flops(heads=8, sequence=4096, head_dim=128):
    """FLOPs of one call: five products over head_dim for each visible pair, 5 for its softmax, delta of each query."""
    pairs = heads * sequence * (sequence + 1) // 2
    return 10 * pairs * head_dim + 5 * pairs + 2 * heads * sequence * head_dim
