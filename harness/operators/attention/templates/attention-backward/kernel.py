#: for attention-backward attention-training
#: attention-backward
"""Attention backward on a TPU: the one file that an experiment changes.

The honest naive kernels to start from: one for dq, one for dk and dv, each of which makes the weights again from q, k
and lse. Scores stand transposed, [BKV, BQ], so that lse and delta are rows.
"""
#: attention-training
"""Causal attention of a training step on a TPU, forward and backward: the one file that an experiment changes.

The honest naive kernels to start from: online softmax for o; one kernel for dq, and one for dk and dv, each of which
makes the weights again from q, k and lse. kernel_fn and backward_fn are two members of one suite.
"""
#: end

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

#: attention-backward
KERNEL_NAME = "naive_attention_backward"
PROBLEM_DESCRIPTION = "dq, dk, dv of softmax(Q K^T / sqrt(head_dim)) V, from its residuals"
#: attention-training
KERNEL_NAME = "naive_attention"
PROBLEM_DESCRIPTION = "causal attention, o forward; dq, dk, dv backward from its residuals"
#: end

#: attention-backward
CAUSAL = False
#: attention-training
CAUSAL = True
# Blocks of queries and of keys: of the forward kernel, and of the two backward.
#: end
BQ = 256
BKV = 256
#: attention-backward
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
#: attention-training
BACKWARD_BQ = 256
BACKWARD_BKV = 256
# How much VMEM the compiler may give the kernels, in bytes; None: its default (16 MiB on v5e).
#: end
VMEM_LIMIT = None
#: attention-training
# The score of a hidden key: finite, so that a row which sees no key of a block computes no inf - inf.
HIDDEN = -1e30
OPTIONS = pltpu.CompilerParams(
    dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
)  # fmt: skip


def require_blocks(sequence, **blocks):
    """Raises ValueError where one of them does not divide the sequence."""
    for name, block in blocks.items():
        if sequence % block:
            raise ValueError(f"expected {name} to divide the sequence of {sequence}, got {name}={block}")
#: end


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), precision, preferred_element_type=jnp.float32)
#: attention-training


def attend(q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    """One step of o: a block of queries [BQ, d] against a block of keys and values [BKV, d].

    m, l, acc [BQ, d] float32 live in VMEM over all key blocks of one query block: the running
    maximum and sum of each row (the same in every column) and the output not yet divided.
    """
    block, step, steps = pl.program_id(1), pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    scores = dot(q_ref[...], k_ref[...], (1, 1)) * scale
    if CAUSAL:
        query, key = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in (0, 1))
        # Each query sees the first key, so that no row's maximum stays at HIDDEN.
        scores = jnp.where(step * BKV + key <= block * BQ + query, scores, HIDDEN)
    old_max = m_ref[:, :1]
    new_max = jnp.maximum(old_max, scores.max(axis=1, keepdims=True))
    weights = jnp.exp(scores - new_max)
    # What was summed up so far was relative to the old maximum.
    rescale = jnp.exp(old_max - new_max)
    m_ref[...] = jnp.broadcast_to(new_max, m_ref.shape)
    l_ref[...] = l_ref[...] * rescale + weights.sum(axis=1, keepdims=True)
    acc_ref[...] = acc_ref[...] * rescale + dot(weights.astype(v_ref.dtype), v_ref[...], (1, 0))

    @pl.when(step == steps - 1)
    def finish():
        o_ref[...] = (acc_ref[...] / l_ref[:, :1]).astype(o_ref.dtype)
#: end


def score_gradients(q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, first_query, first_key, scale):
    """Weights p and gradients ds of the scores of one block, both [BKV, BQ] float32."""
    scores = dot(k_ref[...], q_ref[...], (1, 1)) * scale
    weights = jnp.exp(scores - lse_ref[...])
    if CAUSAL:
        key, query = (jax.lax.broadcasted_iota(jnp.int32, weights.shape, axis) for axis in (0, 1))
        weights = jnp.where(first_key + key <= first_query + query, weights, 0.0)
    return weights, weights * (dot(v_ref[...], do_ref[...], (1, 1)) - delta_ref[...])


def queries(q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, dq_ref, acc_ref, *, scale):
    """One step of dq: a block of queries against a block of keys; acc [BQ, d] float32 lives over all of them."""
    block, step, steps = pl.program_id(1), pl.program_id(2), pl.num_programs(2)

    @pl.when(step == 0)
    def start():
        acc_ref[...] = jnp.zeros_like(acc_ref)

    _, gradients = score_gradients(
#: attention-backward
        q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, block * BQ, step * BKV, scale
#: attention-training
        q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, block * BACKWARD_BQ, step * BACKWARD_BKV, scale
#: end
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
#: attention-backward
        q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, of_queries * BQ, block * BKV, scale
#: attention-training
        q_ref, k_ref, v_ref, do_ref, lse_ref, delta_ref, of_queries * BACKWARD_BQ, block * BACKWARD_BKV, scale
#: end
    )  # fmt: skip
    dv_acc_ref[...] += dot(weights.astype(do_ref.dtype), do_ref[...], (1, 0))
    dk_acc_ref[...] += dot(gradients.astype(q_ref.dtype), q_ref[...], (1, 0))

    @pl.when(step == steps - 1)
    def finish():
        dk_ref[...] = (dk_acc_ref[...] * scale).astype(dk_ref.dtype)
        dv_ref[...] = dv_acc_ref[...].astype(dv_ref.dtype)


#: attention-backward
def kernel_fn(q, k, v, o, lse, do):
#: attention-training
def kernel_fn(q, k, v):
    """o of q [heads, sequence, d] and k, v [kv_heads, sequence, d], or without the first axis.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where a block divides no sequence.
    """
    shape, (sequence, d) = q.shape, q.shape[-2:]
    require_blocks(sequence, BQ=BQ, BKV=BKV)
    q, k, v = (array.reshape(-1, sequence, d) for array in (q, k, v))
    group = len(q) // len(k)
    queries_of = pl.BlockSpec((None, BQ, d), lambda h, i, j: (h, i, 0))
    keys_of = pl.BlockSpec((None, BKV, d), lambda h, i, j: (h // group, j, 0))
    o = pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(len(q), sequence // BQ, sequence // BKV),
        in_specs=[queries_of, keys_of, keys_of],
        out_specs=queries_of,
        scratch_shapes=[pltpu.VMEM((BQ, d), jnp.float32)] * 3,
        compiler_params=OPTIONS,
        name=KERNEL_NAME,
    )(q, k, v)
    return o.reshape(shape)


def backward_fn(q, k, v, o, lse, do):
#: end
    """dq, dk, dv of q, o, do [heads, sequence, d], k, v [kv_heads, sequence, d], lse, or without the first axis.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where a block divides no sequence.
    """
    shapes, (sequence, d) = (q.shape, k.shape, v.shape), q.shape[-2:]
#: attention-backward
    for name, block in (("BQ", BQ), ("BKV", BKV)):
        if sequence % block:
            raise ValueError(f"expected {name} to divide {sequence}, got {name}={block}")
#: attention-training
    require_blocks(sequence, BACKWARD_BQ=BACKWARD_BQ, BACKWARD_BKV=BACKWARD_BKV)
#: end
    q, k, v, o, do = (array.reshape(-1, sequence, d) for array in (q, k, v, o, do))
    group, scale = len(q) // len(k), 1 / math.sqrt(d)
    delta = jnp.sum(o.astype(jnp.float32) * do.astype(jnp.float32), axis=-1)
    lse, delta = (array.reshape(-1, 1, sequence) for array in (lse, delta))
#: attention-backward
    options = pltpu.CompilerParams(
        dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
    )  # fmt: skip
#: end

    def call(body, name, of_queries, of_keys, outputs, grid, scratch):
        """One of the two kernels; the index maps say which head and block of queries and of keys a step is about."""
#: attention-backward
        query_rows = pl.BlockSpec((None, BQ, d), lambda *step: (*of_queries(*step), 0))
        key_rows = pl.BlockSpec((None, BKV, d), lambda *step: (*of_keys(*step), 0))
        sums = pl.BlockSpec((None, 1, BQ), lambda *step: (of_queries(*step)[0], 0, of_queries(*step)[1]))
#: attention-training
        query_rows = pl.BlockSpec((None, BACKWARD_BQ, d), lambda *step: (*of_queries(*step), 0))
        key_rows = pl.BlockSpec((None, BACKWARD_BKV, d), lambda *step: (*of_keys(*step), 0))
        sums = pl.BlockSpec((None, 1, BACKWARD_BQ), lambda *step: (of_queries(*step)[0], 0, of_queries(*step)[1]))
#: end
        return pl.pallas_call(
            functools.partial(body, scale=scale),
            out_shape=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in outputs],
            grid=grid,
            in_specs=[query_rows, key_rows, key_rows, query_rows, sums, sums],
            out_specs=[query_rows if body is queries else key_rows] * len(outputs),
            scratch_shapes=[pltpu.VMEM((scratch, d), jnp.float32)] * len(outputs),
#: attention-backward
            compiler_params=options,
#: attention-training
            compiler_params=OPTIONS,
#: end
            name=f"{KERNEL_NAME}_{name}",
        )(q, k, v, do, lse, delta)

#: attention-backward
    blocks = (sequence // BQ, sequence // BKV)
    grid = (len(q), *blocks)
    (dq,) = call(queries, "dq", lambda h, i, j: (h, i), lambda h, i, j: (h // group, j), [q], grid, BQ)

    def of_queries(h, i, j):
        """One head after the other that reads the keys, block by block."""
        return h * group + j // blocks[0], j % blocks[0]

    grid, body = (len(k), blocks[1], group * blocks[0]), functools.partial(keys, group=group)
    dk, dv = call(body, "dkv", of_queries, lambda h, i, j: (h, i), [k, v], grid, BKV)
#: attention-training
    blocks = (sequence // BACKWARD_BQ, sequence // BACKWARD_BKV)
    grid = (len(q), *blocks)
    (dq,) = call(queries, "dq", lambda h, i, j: (h, i), lambda h, i, j: (h // group, j), [q], grid, BACKWARD_BQ)

    def of_queries(h, i, j):
        """One head after the other that reads the keys, block by block."""
        return h * group + j // blocks[0], j % blocks[0]

    grid, body = (len(k), blocks[1], group * blocks[0]), functools.partial(keys, group=group)
    dk, dv = call(body, "dkv", of_queries, lambda h, i, j: (h, i), [k, v], grid, BACKWARD_BKV)
#: end
    return tuple(array.reshape(shape) for array, shape in zip((dq, dk, dv), shapes, strict=True))
#: attention-backward


def compute_flops(heads=2, sequence=4096, head_dim=128, causal=False):
    """FLOPs of one call: five products over head_dim for each pair, 5 for its softmax, and delta for each query."""
    pairs = heads * (sequence * (sequence + 1) // 2 if causal else sequence**2)
    return 10 * pairs * head_dim + 5 * pairs + 2 * heads * sequence * head_dim


def get_tiling_meta():
    """Nothing: the tiling of two kernels is what their traces show."""
    return {}
#: end
