#: for ragged-paged-attention ragged-paged-attention-update
#: ragged-paged-attention
"""Ragged paged attention on a TPU: the one file that an experiment changes.

The honest naive kernel to start from. A block of BQ tokens holds queries of one sequence or of several neighbours. It
is visited once for each of them, and a visit walks through the pages of that sequence: online softmax, in which rows of
other sequences see nothing. Tables that XLA computes beforehand say which block and which sequence a visit is for.
"""
#: ragged-paged-attention-update
"""Ragged paged attention with the update of its cache on a TPU: the one file that an experiment changes.

The honest naive kernels to start from. The first copies the newest keys and values to their slots, token by token; the
pages are its input and its output, in the same memory. In the second, which attends, a block of BQ tokens holds queries
of one sequence or of several neighbours. It is visited once for each of them, and a visit walks through the pages of
that sequence: online softmax, in which rows of other sequences see nothing. Tables that XLA computes beforehand say
which block and which sequence a visit is for.
"""
#: end

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

#: ragged-paged-attention
KERNEL_NAME = "naive_ragged_paged_attention"
PROBLEM_DESCRIPTION = "attention of the newest tokens of many sequences over keys and values in pages"
#: ragged-paged-attention-update
KERNEL_NAME = "naive_ragged_paged_attention_update"
PROBLEM_DESCRIPTION = (
    "attention of the newest tokens of many sequences over keys and values in pages, written there first"
)
#: end

BQ = 32
# A score that no key has: exp(HIDDEN - x) is 0 for any score x.
HIDDEN = -1e30
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def visits(kv_lens, cu_q_lens, num_seqs, blocks):
    """Sequence and block of each visit, int32[blocks + sequences - 1], and how many there are, [1].

    Every sequence but the first begins in a block that is visited for the one before it too, or at its border. Visits
    that are left over repeat the last one, and do nothing.
    """
    sequences = kv_lens.shape[0]
    starts, ends = cu_q_lens[:-1], cu_q_lens[1:]
    first = starts // BQ
    count = jnp.where(jnp.arange(sequences) < num_seqs, (ends - 1) // BQ - first + 1, 0)
    done = jnp.cumsum(count, dtype=jnp.int32)
    visit = jnp.minimum(jnp.arange(blocks + sequences - 1, dtype=jnp.int32), done[-1] - 1)
    sequence = jnp.sum(visit[:, None] >= done[None, :], axis=1, dtype=jnp.int32)
    return sequence, first[sequence] + visit - (done - count)[sequence], done[-1:]
#: ragged-paged-attention-update


def write(len_ref, table_ref, start_ref, count_ref, new_ref, _, pages_ref, arrived):
    """Copies each token's keys and values [2 kv_heads, d] to its slot: all copies are started, then waited for."""
    size = pages_ref.shape[1]

    def of_each(act):
        def of_sequence(sequence, _):
            end = start_ref[sequence + 1]

            def of_token(token, _):
                # The last query is that of the last key.
                key = len_ref[sequence] - end + token
                slot = pages_ref.at[table_ref[sequence, key // size], key % size]
                act(pltpu.make_async_copy(new_ref.at[token], slot, arrived))
                return _

            return jax.lax.fori_loop(start_ref[sequence], end, of_token, _)

        jax.lax.fori_loop(0, count_ref[0], of_sequence, 0)

    of_each(lambda copy: copy.start())
    of_each(lambda copy: copy.wait())


def updated(kv_pages, new_kv, *tables):
    """The pages with each token's keys and values in its slot, in the same memory."""
    in_place = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        write,
        out_shape=jax.ShapeDtypeStruct(kv_pages.shape, kv_pages.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(tables),
            in_specs=[in_place] * 2,
            out_specs=in_place,
            scratch_shapes=[pltpu.SemaphoreType.DMA],
        ),
        # The tables count.
        input_output_aliases={len(tables) + 1: 0},
        name=f"{KERNEL_NAME}_write",
    )(*tables, new_kv, kv_pages)
#: end


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), precision, preferred_element_type=jnp.float32)


def attend(
    sequence_ref, block_ref, count_ref, len_ref, table_ref, start_ref, q_ref, kv_ref, o_ref, m_ref, l_ref, acc_ref,
    *, scale,
):  # fmt: skip
    """One step: a block of queries [kv_heads, BQ group, d] against one page [1, page_size, 2 kv_heads, d]."""
    visit, page, pages = pl.program_id(0), pl.program_id(1), pl.num_programs(1)
    sequence, block = sequence_ref[visit], block_ref[visit]
    kv_heads, rows, _ = q_ref.shape
    size = kv_ref.shape[1]
    group = rows // BQ
    length, start, end = len_ref[sequence], start_ref[sequence], start_ref[sequence + 1]
    is_new = (visit == 0) | (block != block_ref[jnp.maximum(visit - 1, 0)])

    @pl.when((page == 0) & is_new)
    def begin():
        m_ref[...] = jnp.full_like(m_ref, HIDDEN)
        l_ref[...] = jnp.zeros_like(l_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when((visit < count_ref[0]) & (page * size < length))
    def work():
        token = block * BQ + jax.lax.broadcasted_iota(jnp.int32, (rows, size), 0) // group
        key = page * size + jax.lax.broadcasted_iota(jnp.int32, (rows, size), 1)
        # The last query is that of the last key.
        is_seen = (token >= start) & (token < end) & (key <= length - end + token)
        for head in range(kv_heads):
            scores = dot(q_ref[head], kv_ref[0, :, 2 * head, :], (1, 1)) * scale
            scores = jnp.where(is_seen, scores, HIDDEN)
            old = m_ref[head, :, :1]
            new = jnp.maximum(old, scores.max(axis=1, keepdims=True))
            weights = jnp.where(is_seen, jnp.exp(scores - new), 0.0)
            rescale = jnp.exp(old - new)
            m_ref[head] = jnp.broadcast_to(new, m_ref.shape[1:])
            l_ref[head] = l_ref[head] * rescale + weights.sum(axis=1, keepdims=True)
            values = kv_ref[0, :, 2 * head + 1, :]
            acc_ref[head] = acc_ref[head] * rescale + dot(weights.astype(values.dtype), values, (1, 0))

    @pl.when(page == pages - 1)
    def finish():
        # The block stays in VMEM until its last visit. Rows of no sequence have seen nothing.
        total = l_ref[:, :, :1]
        o_ref[...] = (acc_ref[...] / jnp.where(total == 0.0, 1.0, total)).astype(o_ref.dtype)


#: ragged-paged-attention
def kernel_fn(q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs):
    """Attention of q [tokens, heads, d] over the pages of each sequence. Raises ValueError where BQ does not divide."""
#: ragged-paged-attention-update
def kernel_fn(q, kv_pages, new_kv, kv_lens, page_indices, cu_q_lens, num_seqs):
    """Attention of q [tokens, heads, d] over the pages of each sequence, and the pages with new_kv in their slots.

    Raises ValueError where BQ does not divide the tokens.
    """
#: end
    tokens, heads, d = q.shape
    _, page_size, combined, _ = kv_pages.shape
    kv_heads, pages = combined // 2, page_indices.shape[1]
    group = heads // kv_heads
    if tokens % BQ:
        raise ValueError(f"expected BQ to divide {tokens}, got BQ={BQ}")
#: ragged-paged-attention-update
    kv_pages = updated(kv_pages, new_kv, kv_lens, page_indices, cu_q_lens, num_seqs)
#: end
    sequence, block, count = visits(kv_lens, cu_q_lens, num_seqs, tokens // BQ)

    def of_queries(visit, page, sequence, block, *_):
        return 0, block[visit], 0

    def of_page(visit, page, sequence, block, count, lens, table, starts):
        last = (lens[sequence[visit]] - 1) // page_size
        # Beyond the last page nothing is fetched again.
        return table[sequence[visit], jnp.where(visit < count[0], jnp.minimum(page, last), last)], 0, 0, 0

    rows = (kv_heads, BQ * group, d)
    queries = q.reshape(tokens, kv_heads, group, d).swapaxes(0, 1).reshape(kv_heads, tokens * group, d)
    out = pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(queries.shape, q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=6,
            grid=(sequence.shape[0], pages),
            in_specs=[pl.BlockSpec(rows, of_queries), pl.BlockSpec((1, page_size, combined, d), of_page)],
            out_specs=pl.BlockSpec(rows, of_queries),
            scratch_shapes=[pltpu.VMEM((*rows[:2], 128), jnp.float32)] * 2 + [pltpu.VMEM(rows, jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(sequence, block, count, kv_lens, page_indices, cu_q_lens, queries, kv_pages)
#: ragged-paged-attention
    return out.reshape(kv_heads, tokens, group, d).swapaxes(0, 1).reshape(q.shape)
#: ragged-paged-attention-update
    return out.reshape(kv_heads, tokens, group, d).swapaxes(0, 1).reshape(q.shape), kv_pages
#: end
