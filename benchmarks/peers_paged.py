"""JAX's two kernels for paged attention, and the configurations to try of each."""

import itertools
from dataclasses import replace

import jax
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention

from harness.operators import PagedAttention

# Pages of a compute block, all divisors of a sequence's 128; and whether a step takes a whole sequence.
PAGED = tuple(itertools.product((1, 2, 4, 8, 16, 32, 64, 128), (0, 1)))
# Queries of a block, and pages.
RAGGED = tuple(itertools.product((1, 2, 4, 8), (2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 44, 48, 52, 56, 64, 96, 128)))
# The same for sequences with many queries, in pages of 128 keys.
RAGGED_MIXED = tuple(itertools.product((32, 40, 48), (12, 16, 18)))
# JAX's default limit would refuse the largest blocks; a v6e has 128 MiB.
_VMEM_LIMIT = 100 * 2**20


def paged(
    q: jax.Array, k: jax.Array, v: jax.Array, lengths: jax.Array, table: jax.Array, blocks: tuple[int, ...]
) -> jax.Array:
    """Attention of q [sequences, heads, d] over k, v [kv_heads, pages, page_size, d], in blocks of PAGED."""
    pages, inline = blocks
    scaled = (q * q.shape[-1] ** -0.5).astype(q.dtype)  # the kernel has no scale
    return paged_attention(scaled, k, v, lengths, table, pages_per_compute_block=pages, inline_seq_dim=bool(inline))


def ragged_paged(
    q: jax.Array,
    kv: jax.Array,
    lengths: jax.Array,
    table: jax.Array,
    starts: jax.Array,
    count: jax.Array,
    blocks: tuple[int, ...],
) -> jax.Array:
    """Attention of q [tokens, heads, d] over kv [pages, page_size, 2 kv_heads, d], in blocks of RAGGED."""
    queries, pages = blocks
    return ragged_paged_attention(
        q,
        kv,
        lengths,
        table,
        starts,
        count,
        sm_scale=q.shape[-1] ** -0.5,
        num_queries_per_block=queries,
        num_kv_pages_per_block=pages,
        vmem_limit_bytes=_VMEM_LIMIT,
    )


def as_ragged(problem: PagedAttention) -> PagedAttention:
    """The same lengths and queries with keys and values of all heads in one page, as the ragged kernel takes them."""
    return replace(problem, tokens=problem.sequences)
