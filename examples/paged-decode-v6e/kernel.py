"""Paged attention, one query for each sequence, on a TPU v6e: the one file that an experiment changes.

A step of the grid is a sequence. Pages are copied by hand, one transfer for all heads of a page, while the sequence
before is worked on. Online softmax over chunks of CHUNK pages, head by head.
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
# Pages that are multiplied at once.
CHUNK = 16
# How much VMEM the compiler may give the kernel, in bytes; a v6e has 128 MiB.
VMEM_LIMIT = 100 * 2**20


def dot(a, b, axes):
    """The product of two blocks along these axes, float32."""
    return jax.lax.dot_general(a, b, ((axes[:1], axes[1:]), ((), ())), preferred_element_type=jnp.float32)


def attend(length_ref, table_ref, q_ref, k_pages, v_pages, o_ref, kv_ref, arrived, *, scale):
    """One step: a sequence's queries [1, kv_heads, group, d] against all of its pages.

    kv [SLOTS, 2, kv_heads, pages, page_size, d] has room for the keys and values of SLOTS sequences.
    """
    sequence, sequences = pl.program_id(0), pl.num_programs(0)
    _, _, kv_heads, room, size, d = kv_ref.shape
    group = q_ref.shape[2]
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

    def attend_chunk(chunk, carry):
        first = chunk * CHUNK
        key = first * size + jax.lax.broadcasted_iota(jnp.int32, (group, CHUNK * size), 1)
        row = first * size + jax.lax.broadcasted_iota(jnp.int32, (CHUNK * size, d), 0)
        found = []
        for head, (old, total, acc) in enumerate(carry):
            keys, values = (
                kv_ref[slot, number, head, pl.ds(first, CHUNK)].reshape(CHUNK * size, d) for number in range(2)
            )
            scores = jnp.where(key < length, dot(q_ref[0, head], keys, (1, 1)), -jnp.inf)
            new = jnp.maximum(old, scores.max(axis=1, keepdims=True))
            weights, rescale = jnp.exp2((scores - new) * factor), jnp.exp2((old - new) * factor)
            # Beyond the last page lies what nobody wrote, or no number.
            values = jnp.where(row < length, values, jnp.zeros_like(values))
            total = total * rescale + weights.sum(axis=1, keepdims=True)
            found.append((new, total, acc * rescale + dot(weights.astype(values.dtype), values, (1, 0))))
        return tuple(found)

    start = (
        jnp.full((group, 1), -jnp.inf, jnp.float32), jnp.zeros((group, 1), jnp.float32),
        jnp.zeros((group, d), jnp.float32),
    )  # fmt: skip
    chunks = jax.lax.div(count + CHUNK - 1, CHUNK)
    found = jax.lax.fori_loop(0, chunks, attend_chunk, (start,) * kv_heads)
    for head, (_, total, acc) in enumerate(found):
        o_ref[0, head] = (acc / total).astype(o_ref.dtype)


def kernel_fn(q, k_pages, v_pages, lengths, page_indices):
    """Attention of q [sequences, heads, d] over the pages of each sequence."""
    sequences, heads, d = q.shape
    kv_heads, _, page_size, _ = k_pages.shape
    room = pl.cdiv(page_indices.shape[1], CHUNK) * CHUNK
    group = heads // kv_heads
    rows = pl.BlockSpec((1, kv_heads, group, d), lambda sequence, *_: (sequence, 0, 0, 0))
    in_place = pl.BlockSpec(memory_space=pl.ANY)
    out = pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct((sequences, kv_heads, group, d), q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(sequences,),
            in_specs=[rows, in_place, in_place],
            out_specs=rows,
            scratch_shapes=[
                pltpu.VMEM((SLOTS, 2, kv_heads, room, page_size, d), k_pages.dtype),
                pltpu.SemaphoreType.DMA((SLOTS,)),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(lengths, page_indices, q.reshape(sequences, kv_heads, group, d), k_pages, v_pages)
    return out.reshape(q.shape)
