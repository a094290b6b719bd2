"""Paged attention, one query for each sequence, on a TPU: the one file that an experiment changes.

The honest naive kernel to start from: sequence by sequence and block by block of its pages, with all heads at once.
A table says where the pages are, so the kernel copies them to VMEM itself.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_paged_attention"
PROBLEM_DESCRIPTION = "attention of one query of each sequence over keys and values in pages"

# Pages of a block.
PAGES_PER_BLOCK = 4
# Blocks that have room in VMEM: one is worked on while the others are on their way.
SLOTS = 1
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def dot(a, b, axes):
    """The products of two blocks [kv_heads, ...] along these axes, head by head, float32."""
    # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    axes = ((axes[:1], axes[1:]), ((0,), (0,)))
    return jax.lax.dot_general(a, b, axes, precision, preferred_element_type=jnp.float32)


def attend(
    total_ref, length_ref, table_ref, q_ref, k_pages, v_pages, o_ref, kv_ref, next_ref, done_ref, arrived, *, scale
):  # fmt: skip
    """One step: a sequence's queries [1, kv_heads, group, d] against its pages, by online softmax.

    kv [SLOTS, 2, kv_heads, PAGES_PER_BLOCK, page_size, d] has room for keys and values of blocks, next the sequence
    and the block that are to be fetched next, done the number of blocks worked on, of `total` in all.
    """
    sequence = pl.program_id(0)
    _, _, kv_heads, _, page_size, d = kv_ref.shape
    length, size = length_ref[sequence], PAGES_PER_BLOCK * page_size

    def fetch(number):
        """Starts to copy the next block, the one of this number among the blocks of all sequences."""
        sequence, block = next_ref[0], next_ref[1]
        slot, last = number % SLOTS, (length_ref[sequence] - 1) // page_size
        first = block * PAGES_PER_BLOCK

        @pl.loop(first, first + PAGES_PER_BLOCK)
        def copy(number):
            # Beyond the last page that one is copied again: every block is full.
            page = table_ref[sequence, jnp.minimum(number, last)]
            for part, pages in enumerate((k_pages, v_pages)):
                place = kv_ref.at[slot, part, :, number - first]
                pltpu.make_async_copy(pages.at[:, page], place, arrived.at[slot]).start()

        is_last = first + PAGES_PER_BLOCK > last
        next_ref[0] = jnp.where(is_last, sequence + 1, sequence)
        next_ref[1] = jnp.where(is_last, 0, block + 1)

    @pl.when(sequence == 0)
    def begin():
        next_ref[0] = next_ref[1] = done_ref[0] = 0

    def work(block, sums):
        top, total, acc = sums
        done = done_ref[0]
        done_ref[0] = done + 1
        # The first block of all finds every slot empty.
        pl.loop(jnp.where(done == 0, 0, done + SLOTS - 1), jnp.minimum(done + SLOTS, total_ref[0]))(fetch)
        slot = done % SLOTS
        # One wait for all copies of a block: a semaphore counts bytes.
        pltpu.make_async_copy(kv_ref.at[slot], kv_ref.at[slot], arrived.at[slot]).wait()
        keys, values = (kv_ref[slot, part].reshape(kv_heads, size, d) for part in range(2))
        scores = dot(q_ref[0], keys, (2, 2)) * scale
        key = block * size + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 2)
        scores = jnp.where(key < length, scores, -jnp.inf)
        new = jnp.maximum(top, scores.max(axis=2, keepdims=True))
        weights = jnp.exp(scores - new)
        rescale = jnp.exp(top - new)
        total = total * rescale + weights.sum(axis=2, keepdims=True)
        acc = acc * rescale + dot(weights.astype(values.dtype), values, (2, 1))
        return new, total, acc

    acc = jnp.zeros(q_ref.shape[1:], jnp.float32)
    total = jnp.zeros((*acc.shape[:2], 1), jnp.float32)
    _, total, acc = jax.lax.fori_loop(0, (length - 1) // size + 1, work, (total - jnp.inf, total, acc))
    o_ref[0] = (acc / total).astype(o_ref.dtype)


def kernel_fn(q, k_pages, v_pages, lengths, page_indices):
    """Attention of q [sequences, heads, d] over the pages of each sequence."""
    sequences, heads, d = q.shape
    kv_heads, _, page_size, _ = k_pages.shape
    group = heads // kv_heads
    rows = pl.BlockSpec((1, kv_heads, group, d), lambda sequence, *_: (sequence, 0, 0, 0))
    total = jnp.sum((lengths - 1) // (PAGES_PER_BLOCK * page_size) + 1, dtype=jnp.int32)
    in_place = pl.BlockSpec(memory_space=pl.ANY)
    out = pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct((sequences, kv_heads, group, d), q.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(sequences,),
            in_specs=[rows, in_place, in_place],
            out_specs=rows,
            scratch_shapes=[
                pltpu.VMEM((SLOTS, 2, kv_heads, PAGES_PER_BLOCK, page_size, d), k_pages.dtype),
                pltpu.SMEM((2,), jnp.int32),
                pltpu.SMEM((1,), jnp.int32),
                pltpu.SemaphoreType.DMA((SLOTS,)),
            ],
        ),
        # A step fetches for later ones, so that they have to run in order.
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(total[None], lengths, page_indices, q.reshape(sequences, kv_heads, group, d), k_pages, v_pages)
    return out.reshape(q.shape)
