"""Paged attention, one query for each sequence, on a TPU: the one file that an experiment changes.

The honest naive kernel to start from: sequence by sequence and page by page, with all heads of a page at once.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_paged_attention"
PROBLEM_DESCRIPTION = "attention of one query of each sequence over keys and values in pages"

# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), precision, preferred_element_type=jnp.float32)


def attend(length_ref, table_ref, q_ref, k_ref, v_ref, o_ref, m_ref, l_ref, acc_ref, *, scale):
    """One step: a sequence's queries [1, kv_heads, group, d] against one of its pages [kv_heads, 1, page_size, d]."""
    page, pages = pl.program_id(1), pl.num_programs(1)
    length = length_ref[pl.program_id(0)]
    _, kv_heads, group, _ = q_ref.shape
    size = k_ref.shape[2]

    @pl.when(page == 0)
    def begin():
        m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(page * size < length)
    def work():
        key = page * size + jax.lax.broadcasted_iota(jnp.int32, (group, size), 1)
        for head in range(kv_heads):
            scores = dot(q_ref[0, head], k_ref[head, 0], (1, 1)) * scale
            scores = jnp.where(key < length, scores, -jnp.inf)
            old = m_ref[head, :, :1]
            new = jnp.maximum(old, scores.max(axis=1, keepdims=True))
            weights = jnp.exp(scores - new)
            rescale = jnp.exp(old - new)
            m_ref[head] = jnp.broadcast_to(new, m_ref.shape[1:])
            l_ref[head] = l_ref[head] * rescale + weights.sum(axis=1, keepdims=True)
            acc_ref[head] = acc_ref[head] * rescale + dot(weights.astype(v_ref.dtype), v_ref[head, 0], (1, 0))

    @pl.when(page == pages - 1)
    def finish():
        o_ref[0] = (acc_ref[...] / l_ref[:, :, :1]).astype(o_ref.dtype)


def kernel_fn(q, k_pages, v_pages, lengths, page_indices):
    """Attention of q [sequences, heads, d] over the pages of each sequence."""
    sequences, heads, d = q.shape
    kv_heads, _, page_size, _ = k_pages.shape
    pages = page_indices.shape[1]
    group = heads // kv_heads

    def of_page(sequence, page, lengths, table):
        # Beyond the last page nothing is fetched again.
        return 0, table[sequence, jnp.minimum(page, (lengths[sequence] - 1) // page_size)], 0, 0

    rows = pl.BlockSpec((1, kv_heads, group, d), lambda sequence, page, *_: (sequence, 0, 0, 0))
    keys = pl.BlockSpec((kv_heads, 1, page_size, d), of_page)
    out = pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct((sequences, kv_heads, group, d), q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(sequences, pages),
            in_specs=[rows, keys, keys],
            out_specs=rows,
            scratch_shapes=[pltpu.VMEM((kv_heads, group, 128), jnp.float32)] * 2
            + [pltpu.VMEM((kv_heads, group, d), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(lengths, page_indices, q.reshape(sequences, kv_heads, group, d), k_pages, v_pages)
    return out.reshape(q.shape)
