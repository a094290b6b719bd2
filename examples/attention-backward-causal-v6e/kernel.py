"""Causal attention backward on a TPU v6e: dq, dk and dv of softmax(scale Q K^T) V from its residuals, in one kernel.

What an experiment changes. Scores stand transposed, [keys, queries], so that lse and delta are rows. A step is one
block of keys against one of queries; dk and dv are summed over the queries of a block of keys, dq of the whole head
stays in VMEM over all blocks of keys. Blocks that no query sees are neither fetched nor computed.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "causal_attention_backward"
PROBLEM_DESCRIPTION = "dq, dk, dv of causal attention from its residuals, softmax scale 1/sqrt(head_dim)"

# Queries and keys of a block.
BQ = 1024
BKV = 1024
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), preferred_element_type=jnp.float32)


def gradients(q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, dq_ref, dk_ref, dv_ref, dq_acc, dk_acc, dv_acc, *, scale):
    """One step: queries [BQ, d] against keys [BKV, d]; the acc are float32: dq [sequence, d], dk and dv [BKV, d]."""
    block, step, blocks, steps = pl.program_id(1), pl.program_id(2), pl.num_programs(1), pl.num_programs(2)
    first_query, first_key = step * BQ, block * BKV
    queries = pl.ds(pl.multiple_of(first_query, BQ), BQ)

    @pl.when(step == 0)
    def start():
        dk_acc[...] = jnp.zeros_like(dk_acc)
        dv_acc[...] = jnp.zeros_like(dv_acc)

    @pl.when(block == 0)
    def start_queries():
        dq_acc[queries] = jnp.zeros_like(dq_acc[queries])

    @pl.when(first_key < first_query + BQ)
    def work():
        scores = dot(k_ref[...], q_ref[...], (1, 1)) * scale
        weights = jnp.exp(scores - lse_ref[...])
        key, query = (jax.lax.broadcasted_iota(jnp.int32, weights.shape, axis) for axis in (0, 1))
        weights = jnp.where(first_key + key <= first_query + query, weights, 0.0)
        of_scores = (weights * (dot(v_ref[...], do_ref[...], (1, 1)) - delta_ref[...])).astype(q_ref.dtype)
        dv_acc[...] += dot(weights.astype(do_ref.dtype), do_ref[...], (1, 0))
        dk_acc[...] += dot(of_scores, q_ref[...], (1, 0))
        dq_acc[queries] += dot(of_scores, k_ref[...], (0, 0))

    @pl.when(step == steps - 1)
    def finish():
        dk_ref[...] = (dk_acc[...] * scale).astype(dk_ref.dtype)
        dv_ref[...] = dv_acc[...].astype(dv_ref.dtype)

    @pl.when((step == steps - 1) & (block == blocks - 1))
    def finish_queries():
        dq_ref[...] = (dq_acc[...] * scale).astype(dq_ref.dtype)


def kernel_fn(q, k, v, o, lse, do):
    """dq, dk, dv of [sequence, d], or of [heads, sequence, d]. Raises ValueError where a block divides no sequence."""
    shape, (sequence, d) = q.shape, q.shape[-2:]
    for name, block in (("BQ", BQ), ("BKV", BKV)):
        if sequence % block:
            raise ValueError(f"expected {name} to divide {sequence}, got {name}={block}")
    q, k, v, o, do = (array.reshape(-1, sequence, d) for array in (q, k, v, o, do))
    heads, scale = len(q), 1 / math.sqrt(d)
    delta = jnp.sum(o.astype(jnp.float32) * do.astype(jnp.float32), axis=-1)
    lse, delta = (array.reshape(-1, 1, sequence) for array in (lse, delta))

    # Steps that do nothing name the block that is there already, so that none is fetched for them.
    def visible(block, step):
        return jnp.maximum(step, block * BKV // BQ)

    query_rows = pl.BlockSpec((None, BQ, d), lambda h, i, j: (h, visible(i, j), 0))
    key_rows = pl.BlockSpec((None, BKV, d), lambda h, i, j: (h, i, 0))
    sums = pl.BlockSpec((None, 1, BQ), lambda h, i, j: (h, 0, visible(i, j)))
    found = pl.pallas_call(
        functools.partial(gradients, scale=scale),
        out_shape=[jax.ShapeDtypeStruct(q.shape, q.dtype)] * 3,
        grid=(heads, sequence // BKV, sequence // BQ),
        in_specs=[query_rows, key_rows, key_rows, query_rows, sums, sums],
        out_specs=[pl.BlockSpec((None, sequence, d), lambda h, i, j: (h, 0, 0)), key_rows, key_rows],
        scratch_shapes=[pltpu.VMEM((rows, d), jnp.float32) for rows in (sequence, BKV, BKV)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(q, k, v, do, lse, delta)
    return tuple(array.reshape(shape) for array in found)


def compute_flops(heads=8, sequence=4096, head_dim=128):
    """FLOPs of one call: five products over head_dim for each visible pair, 5 for its softmax, delta of each query."""
    pairs = heads * sequence * (sequence + 1) // 2
    return 10 * pairs * head_dim + 5 * pairs + 2 * heads * sequence * head_dim
