"""Paged attention, one query for each sequence, on a TPU v6e: the one file that an experiment changes.

A step of the grid is a sequence. Pages are copied by hand, one transfer for all heads of a page, while the sequences
before are worked on; all of a sequence's scores come first, then its weights, so that nothing is ever rescaled. The
key/value heads of a chunk lie side by side in the matrix unit, 128 rows each, and every query head has zeros where the
other heads' keys are.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "paged_decode"
PROBLEM_DESCRIPTION = "attention of one query of each sequence over keys and values in pages"

# Sequences whose pages have room in VMEM: one is worked on, the others' pages are on their way.
SLOTS = 2
# Pages that are multiplied at once, and pages in one turn of a loop.
CHUNK = 4
GROUP = 32
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), preferred_element_type=jnp.float32)


def attend(length_ref, table_ref, q_ref, k_pages, v_pages, o_ref, kv_ref, scores_ref, arrived, *, scale):
    """One step: a sequence's queries, of q [sequences, heads, d], against all of its pages.

    kv [SLOTS, 2, kv_heads, pages, page_size, d] has room for the keys and values of SLOTS sequences, scores
    [chunks, heads, keys of a chunk] float32 for one sequence's.
    """
    sequence, sequences = pl.program_id(0), pl.num_programs(0)
    _, _, kv_heads, room, size, d = kv_ref.shape
    heads = q_ref.shape[1]
    slot, length = jax.lax.rem(sequence, SLOTS), length_ref[sequence]
    # exp(scale x) = 2^(factor x).
    factor = scale * math.log2(math.e)

    def pages_of(sequence):
        return jax.lax.div(length_ref[sequence] + size - 1, size)

    def fetch(sequence):
        slot = jax.lax.rem(sequence, SLOTS)

        def of_page(page, _):
            place = table_ref[sequence, page]
            for number, pages in enumerate((k_pages, v_pages)):
                pltpu.make_async_copy(pages.at[:, place], kv_ref.at[slot, number, :, page], arrived.at[slot]).start()
            return _

        jax.lax.fori_loop(0, pages_of(sequence), of_page, 0)

    @pl.when(sequence == 0)
    def begin():
        for first in range(SLOTS - 1):
            pl.when(first < sequences)(functools.partial(fetch, first))

    @pl.when(sequence + SLOTS - 1 < sequences)
    def prefetch():
        fetch(sequence + SLOTS - 1)

    count = pages_of(sequence)
    # A wait is for so many bytes, whatever transfers bring them: one for each power of two in the number of pages.
    for power in range(room.bit_length()):
        some = kv_ref.at[slot, :, :, pl.ds(0, min(1 << power, room))]

        @pl.when(jax.lax.bitwise_and(count, 1 << power) != 0)
        def wait(some=some):
            pltpu.make_async_copy(some, some, arrived.at[slot]).wait()

    groups = jax.lax.div(count + GROUP - 1, GROUP)

    def clear(page, _):
        # What nobody wrote may be no number, and weighs nothing only if it is one.
        kv_ref[slot, 1, :, page] = jnp.zeros((kv_heads, size, d), kv_ref.dtype)
        return _

    jax.lax.fori_loop(count, groups * GROUP, clear, 0)

    def side_by_side(number, chunk):
        some = pl.ds(chunk * CHUNK, CHUNK)
        return jnp.concatenate(
            [kv_ref[slot, number, head, some].reshape(CHUNK * size, d) for head in range(kv_heads)], axis=1
        )

    def of_own_head(shape):
        row, column = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in range(2))
        return jax.lax.div(row, heads // kv_heads) == jax.lax.div(column, d)

    wide = (heads, kv_heads * d)
    queries = jnp.concatenate([q_ref[sequence].astype(jnp.float32)] * kv_heads, axis=1)
    queries = jnp.where(of_own_head(wide), queries, 0.0).astype(q_ref.dtype)
    key = jax.lax.broadcasted_iota(jnp.int32, (heads, CHUNK * size), 1)

    def score(group, top):
        for chunk in [group * (GROUP // CHUNK) + number for number in range(GROUP // CHUNK)]:
            scores = dot(queries, side_by_side(0, chunk), (1, 1))
            scores = jnp.where(key < length - chunk * (CHUNK * size), scores, -jnp.inf)
            scores_ref[chunk] = scores
            top = jnp.maximum(top, scores)
        return top

    top = jax.lax.fori_loop(0, groups, score, jnp.full(key.shape, -jnp.inf, jnp.float32))
    top = top.max(axis=1, keepdims=True)

    def weigh(group, carry):
        total, acc = carry
        for chunk in [group * (GROUP // CHUNK) + number for number in range(GROUP // CHUNK)]:
            weights = jnp.exp2((scores_ref[chunk] - top) * factor)
            total += weights
            acc += dot(weights.astype(kv_ref.dtype), side_by_side(1, chunk), (1, 0))
        return total, acc

    start = jnp.zeros(key.shape, jnp.float32), jnp.zeros(wide, jnp.float32)
    total, acc = jax.lax.fori_loop(0, groups, weigh, start)
    acc = jnp.where(of_own_head(wide), acc, 0.0)
    out = sum(acc[:, head * d : (head + 1) * d] for head in range(kv_heads))
    o_ref[sequence] = (out / total.sum(axis=1, keepdims=True)).astype(o_ref.dtype)


def kernel_fn(q, k_pages, v_pages, lengths, page_indices):
    """Attention of q [sequences, heads, d] over the pages of each sequence."""
    sequences, heads, d = q.shape
    kv_heads, _, page_size, _ = k_pages.shape
    room = pl.cdiv(page_indices.shape[1], GROUP) * GROUP
    # All at once: the next step's would queue behind the pages that are on their way.
    every = pl.BlockSpec(q.shape, lambda *_: (0, 0, 0))
    in_place = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(sequences,),
            in_specs=[every, in_place, in_place],
            out_specs=every,
            scratch_shapes=[
                pltpu.VMEM((SLOTS, 2, kv_heads, room, page_size, d), k_pages.dtype),
                pltpu.VMEM((room // CHUNK, heads, CHUNK * page_size), jnp.float32),
                pltpu.SemaphoreType.DMA((SLOTS,)),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(lengths, page_indices, q, k_pages, v_pages)
