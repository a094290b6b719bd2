"""Leaves out the gradients of scores of blocks of keys whose values are all zero.

Row: 12
Contest: backward
Caught by: correctness wrong-result
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_attention_backward"
PROBLEM_DESCRIPTION = "dq, dk, dv of softmax(Q K^T / sqrt(head_dim)) V, from its residuals"

CAUSAL = False
BQ = 128
BKV = 128
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), precision, preferred_element_type=jnp.float32)


def score_gradients(q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, first_query, first_key, scale):
    """Weights p and gradients ds of the scores of one block, both [BKV, BQ] float32."""
    scores = dot(k_ref[...], q_ref[...], (1, 1)) * scale
    weights = jnp.exp(scores - lse_ref[...])
    if CAUSAL:
        key, query = (jax.lax.broadcasted_iota(jnp.int32, weights.shape, axis) for axis in (0, 1))
        weights = jnp.where(first_key + key <= first_query + query, weights, 0.0)
    has_values = jnp.max(jnp.abs(v_ref[...].astype(jnp.float32)), axis=(0, 1), keepdims=True) > 0
    gradients = weights * (dot(v_ref[...], do_ref[...], (1, 1)) - delta_ref[...])
    return weights, jnp.where(has_values, gradients, 0.0)


def queries(q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, dq_ref, acc_ref, *, scale):
    """One step of dq: a block of queries against a block of keys; acc [BQ, d] float32 lives over all of them."""
    block, step, steps = pl.program_id(1), pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    _, gradients = score_gradients(
        q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, block * BQ, step * BKV, scale
    )  # fmt: skip
    acc_ref[...] += dot(gradients.astype(k_ref.dtype), k_ref[...], (0, 0))

    @pl.when(step == steps - 1)
    def finish():
        dq_ref[...] = (acc_ref[...] * scale).astype(dq_ref.dtype)


def keys(q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, dk_ref, dv_ref, dk_acc_ref, dv_acc_ref, *, scale, group):
    """One step of dk and dv: a block of keys against a block of queries of one of the `group` heads that read them.

    acc [BKV, d] float32 live over all blocks of all these heads.
    """
    block, step, steps = pl.program_id(1), pl.program_id(2), pl.num_programs(2)
    of_queries = step % (steps // group)

    @pl.when(step == 0)
    def start():
        dk_acc_ref[...] = jnp.zeros_like(dk_acc_ref)
        dv_acc_ref[...] = jnp.zeros_like(dv_acc_ref)

    weights, gradients = score_gradients(
        q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, of_queries * BQ, block * BKV, scale
    )  # fmt: skip
    dv_acc_ref[...] += dot(weights.astype(do_ref.dtype), do_ref[...], (1, 0))
    dk_acc_ref[...] += dot(gradients.astype(q_ref.dtype), q_ref[...], (1, 0))

    @pl.when(step == steps - 1)
    def finish():
        dk_ref[...] = (dk_acc_ref[...] * scale).astype(dk_ref.dtype)
        dv_ref[...] = dv_acc_ref[...].astype(dv_ref.dtype)


def kernel_fn(q, k, v, o, lse, do):
    """dq, dk, dv of q, o, do [heads, sequence, d], k, v [kv_heads, sequence, d], lse, or without the first axis.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where a block divides no sequence.
    """
    shapes, (sequence, d) = (q.shape, k.shape, v.shape), q.shape[-2:]
    for name, block in (("BQ", BQ), ("BKV", BKV)):
        if sequence % block:
            raise ValueError(f"expected {name} to divide {sequence}, got {name}={block}")
    q, k, v, o, do = (array.reshape(-1, sequence, d) for array in (q, k, v, o, do))
    group, scale = len(q) // len(k), 1 / math.sqrt(d)
    delta = jnp.sum(o.astype(jnp.float32) * do.astype(jnp.float32), axis=-1)
    lse, delta = (array.reshape(-1, 1, sequence) for array in (lse, delta))
    options = pltpu.CompilerParams(
        dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
    )  # fmt: skip

    def call(body, name, of_queries, of_keys, outputs, grid, scratch):
        """One of the two kernels; the index maps say which head and block of queries and of keys a step is about."""
        query_rows = pl.BlockSpec((None, BQ, d), lambda *step: (*of_queries(*step), 0))
        key_rows = pl.BlockSpec((None, BKV, d), lambda *step: (*of_keys(*step), 0))
        sums = pl.BlockSpec((None, 1, BQ), lambda *step: (of_queries(*step)[0], 0, of_queries(*step)[1]))
        return pl.pallas_call(
            functools.partial(body, scale=scale),
            out_shape=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in outputs],
            grid=grid,
            in_specs=[query_rows, key_rows, key_rows, query_rows, sums, sums],
            out_specs=[query_rows if body is queries else key_rows] * len(outputs),
            scratch_shapes=[pltpu.VMEM((scratch, d), jnp.float32)] * len(outputs),
            compiler_params=options,
            name=f"{KERNEL_NAME}_{name}",
        )(q, k, v, do, lse, delta)

    blocks = (sequence // BQ, sequence // BKV)
    grid = (len(q), *blocks)
    (dq,) = call(queries, "dq", lambda h, i, j: (h, i), lambda h, i, j: (h // group, j), [q], grid, BQ)

    def of_queries(h, i, j):
        """One head after the other that reads the keys, block by block."""
        return h * group + j // blocks[0], j % blocks[0]

    grid, body = (len(k), blocks[1], group * blocks[0]), functools.partial(keys, group=group)
    dk, dv = call(body, "dkv", of_queries, lambda h, i, j: (h, i), [k, v], grid, BKV)
    return tuple(array.reshape(shape) for array, shape in zip((dq, dk, dv), shapes, strict=True))


def compute_flops(heads=2, sequence=4096, head_dim=128, causal=False):
    """FLOPs of one call: five products over head_dim for each pair, 5 for its softmax, and delta for each query."""
    pairs = heads * (sequence * (sequence + 1) // 2 if causal else sequence**2)
    return 10 * pairs * head_dim + 5 * pairs + 2 * heads * sequence * head_dim


def get_tiling_meta():
    """Nothing: the tiling of two kernels is what their traces show."""
    return {}
