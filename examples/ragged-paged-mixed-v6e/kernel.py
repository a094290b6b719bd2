"""Ragged paged attention, decode and prefill in one batch, on a TPU v6e: the one file that an experiment changes.

A step of the grid is a sequence, the last one first: those with many queries come last in a batch, and the pages of the
others arrive while they are worked on. Pages are copied by hand, each in one transfer, several sequences ahead. A word
of 32 bits holds a key's and a value's bfloat16 numbers; both are taken out of it in registers. The key/value heads lie
side by side in the matrix unit, 128 rows each, and every query head has zeros where the other heads' keys are. A
sequence's scores come first, then its weights, so that nothing is rescaled.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "ragged_paged_mixed"
PROBLEM_DESCRIPTION = "attention of many sequences, one query or many each, over keys and values in pages"

# Sequences whose pages have room in VMEM: one is worked on, the others' pages are on their way.
SLOTS = 8
# Pages that are multiplied at once, for one query and for blocks of them.
CHUNK = 4
# Queries of a sequence with many that are worked on at once.
BQ = 64
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), preferred_element_type=jnp.float32)


def attend(
    len_ref, table_ref, start_ref, count_ref, q_ref, kv_pages, o_ref, kv_ref, scores_ref, q_wide, sum_ref, acc_ref,
    arrived, *, scale, bq,
):  # fmt: skip
    """One step: a sequence's queries, of q [tokens, heads, d], against all of its pages.

    kv [SLOTS, pages, page_size, 2 kv_heads, d] has room for the pages of SLOTS sequences; scores [chunks, bq heads, keys
    of a chunk] float32, q_wide [bq heads, kv_heads d], sum [bq heads, keys of a chunk] float32 and acc [bq heads,
    kv_heads d] float32 for one block of queries.
    """
    step = pl.program_id(0)
    _, room, size, combined, d = kv_ref.shape
    kv_heads, keys = combined // 2, CHUNK * size
    tokens, heads, _ = q_ref.shape
    count = count_ref[0]
    # exp(scale x) = 2^(factor x).
    factor = scale * math.log2(math.e)

    def sequence_of(step):
        return count - 1 - step

    def pages_of(step):
        return jax.lax.div(len_ref[sequence_of(step)] + size - 1, size)

    def fetch(step):
        sequence, slot = sequence_of(step), jax.lax.rem(step, SLOTS)

        def of_page(page, _):
            place = table_ref[sequence, page]
            pltpu.make_async_copy(kv_pages.at[place], kv_ref.at[slot, page], arrived.at[slot]).start()
            return _

        jax.lax.fori_loop(0, pages_of(step), of_page, 0)

    @pl.when(step == 0)
    def begin():
        for first in range(SLOTS - 1):
            pl.when(first < count)(functools.partial(fetch, first))

    @pl.when(step + SLOTS - 1 < count)
    def prefetch():
        fetch(step + SLOTS - 1)

    @pl.when(step < count)
    def work():
        sequence, slot = sequence_of(step), jax.lax.rem(step, SLOTS)
        length, start, end = len_ref[sequence], start_ref[sequence], start_ref[sequence + 1]
        pages = pages_of(step)
        # A wait is for so many bytes, whatever transfers bring them: one for each power of two in the number of pages.
        for power in range(room.bit_length()):
            some = kv_ref.at[slot, pl.ds(0, min(1 << power, room))]

            @pl.when(jax.lax.bitwise_and(pages, 1 << power) != 0)
            def wait(some=some):
                pltpu.make_async_copy(some, some, arrived.at[slot]).wait()

        chunks = jax.lax.div(pages + CHUNK - 1, CHUNK)

        def clear(page, _):
            # What nobody wrote may be no number, and weighs nothing only if it is one.
            kv_ref[slot, page] = jnp.zeros((size, combined, d), kv_ref.dtype)
            return _

        jax.lax.fori_loop(pages, chunks * CHUNK, clear, 0)
        words_ref = kv_ref.bitcast(jnp.uint32).at[slot].reshape(room * size * kv_heads, d)

        def side_by_side(chunk, take):
            """The keys or values of a chunk, [keys, kv_heads d]."""
            halves, some = [], pl.ds(pl.multiple_of(chunk * (keys * kv_heads), keys * kv_heads), keys * kv_heads)
            for head in range(kv_heads):
                words = words_ref.at[some][head::kv_heads, :]
                halves.append(pltpu.bitcast(take(words), jnp.float32).astype(kv_ref.dtype))
            return jnp.concatenate(halves, axis=1)

        def of_own_head(shape):
            row, column = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in range(2))
            return jax.lax.div(jax.lax.rem(row, heads), heads // kv_heads) == jax.lax.div(column, d)

        def attend_block(first, queries):
            """Attends with so many queries from this row of q on; returns [queries, heads, d]."""
            rows = queries * heads
            own = of_own_head((rows, kv_heads * d))
            query = q_ref[pl.ds(first, queries)].reshape(rows, d).astype(jnp.float32)
            wide = jnp.where(own, jnp.concatenate([query] * kv_heads, axis=1), 0.0)
            q_wide[:rows] = wide.astype(q_wide.dtype)
            token = first + jax.lax.div(jax.lax.broadcasted_iota(jnp.int32, (rows, keys), 0), heads)
            # The last query is that of the last key.
            last = length - end + token
            key = jax.lax.broadcasted_iota(jnp.int32, (rows, keys), 1)
            seen = jax.lax.div(length - end + first + queries - 1, keys) + 1
            seen = jnp.minimum(seen, chunks)

            def score(chunk, top):
                scores = dot(q_wide[:rows], side_by_side(chunk, lambda words: words << 16), (1, 1))
                scores = jnp.where(key + chunk * keys <= last, scores, -jnp.inf)
                scores_ref[chunk, :rows] = scores
                return jnp.maximum(top, scores.max(axis=1, keepdims=True))

            top = jax.lax.fori_loop(0, seen, score, jnp.full((rows, 1), -jnp.inf, jnp.float32))
            sum_ref[:rows] = jnp.zeros((rows, keys), jnp.float32)
            acc_ref[:rows] = jnp.zeros((rows, kv_heads * d), jnp.float32)

            def weigh(chunk, _):
                weights = jnp.exp2((scores_ref[chunk, :rows] - top) * factor)
                sum_ref[:rows] += weights
                values = side_by_side(chunk, lambda words: words & jnp.uint32(0xFFFF0000))
                acc_ref[:rows] += dot(weights.astype(values.dtype), values, (1, 0))
                return _

            jax.lax.fori_loop(0, seen, weigh, 0)
            acc = jnp.where(own, acc_ref[:rows], 0.0)
            out = sum(acc[:, head * d : (head + 1) * d] for head in range(kv_heads))
            out = out / sum_ref[:rows].sum(axis=1, keepdims=True)
            return out.reshape(queries, heads, d).astype(o_ref.dtype)

        queries = end - start

        @pl.when(queries == 1)
        def decode():
            o_ref[pl.ds(start, 1)] = attend_block(start, 1)

        def keep(first, out):
            """Writes those rows of a block that are the sequence's own."""
            own, some = first + jax.lax.broadcasted_iota(jnp.int32, out.shape, 0), pl.ds(first, bq)
            kept = jnp.where((own >= start) & (own < end), *(x.astype(jnp.float32) for x in (out, o_ref[some])))
            o_ref[some] = kept.astype(o_ref.dtype)

        @pl.when(queries > 1)
        def prefill():
            def of_block(block, _):
                # The last block ends with the sequence, where that is longer than a block.
                first = jnp.maximum(jnp.minimum(start + block * bq, end - bq), 0)
                keep(first, attend_block(first, bq))
                return _

            jax.lax.fori_loop(0, jax.lax.div(queries + bq - 1, bq), of_block, 0)


def kernel_fn(q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs):
    """Attention of q [tokens, heads, d] over the pages of each sequence."""
    tokens, heads, d = q.shape
    _, page_size, combined, _ = kv_pages.shape
    kv_heads, bq = combined // 2, min(BQ, tokens)
    chunks = pl.cdiv(page_indices.shape[1], CHUNK)
    rows, keys = bq * heads, CHUNK * page_size
    every = pl.BlockSpec(q.shape, lambda *_: (0, 0, 0))
    in_place = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d), bq=bq),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(kv_lens.shape[0],),
            in_specs=[every, in_place],
            out_specs=every,
            scratch_shapes=[
                pltpu.VMEM((SLOTS, chunks * CHUNK, page_size, combined, d), kv_pages.dtype),
                pltpu.VMEM((chunks, rows, keys), jnp.float32),
                pltpu.VMEM((rows, kv_heads * d), q.dtype),
                pltpu.VMEM((rows, keys), jnp.float32),
                pltpu.VMEM((rows, kv_heads * d), jnp.float32),
                pltpu.SemaphoreType.DMA((SLOTS,)),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(kv_lens, page_indices, cu_q_lens, num_seqs, q, kv_pages)
