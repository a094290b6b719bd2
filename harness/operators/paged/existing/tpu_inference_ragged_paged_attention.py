"""Ragged paged attention with the update of its cache by version 3 of tpu-inference; experiments change this file.

Wraps: tpu_inference.kernels.ragged_paged_attention.v3.kernel:ragged_paged_attention
"""

import jax.numpy as jnp
from tpu_inference.kernels.ragged_paged_attention.v3.kernel import ragged_paged_attention

KERNEL_NAME = "ragged_paged_attention v3 of tpu-inference"
PROBLEM_DESCRIPTION = "attention of many sequences over keys and values in pages, the newest written there first"

# Queries and keys fetched at once, then queries and keys computed with at once: for sequences that decode, and for all
# others. None: the package's choice, which depends on the attached chip.
D_BLOCK_SIZES = None
M_BLOCK_SIZES = None
# How much VMEM the compiler may give the kernel, in bytes; None: all that the chip has.
VMEM_LIMIT_BYTES = None
SCALE = 1.0


def kernel_fn(q, kv_pages, new_kv, kv_lens, page_indices, cu_q_lens, num_seqs):
    """Attention of q [tokens, heads, d] over the pages of each sequence, and the pages with new_kv in their slots."""
    packing = 4 // kv_pages.dtype.itemsize
    pages, size, combined, d = kv_pages.shape
    cache = kv_pages.reshape(pages, size, combined // packing, packing, d)
    # Each key is next to its value, as in the package's own layout, so XLA sees that it need not separate the two.
    newest = new_kv.reshape(len(new_kv), -1, 2 * d)
    # `decoding` is the number of sequences with one query that come before all others.
    place = jnp.arange(len(kv_lens), dtype=jnp.int32)
    is_decoding = (cu_q_lens[1:] - cu_q_lens[:-1] == 1) & (place < num_seqs[0])
    decoding = jnp.min(jnp.where(is_decoding, len(kv_lens), place))
    distribution = jnp.stack([decoding, decoding, num_seqs[0]]).astype(jnp.int32)
    o, cache = ragged_paged_attention(
        q,
        newest[..., :d],
        newest[..., d:],
        cache,
        kv_lens,
        page_indices.reshape(-1),
        cu_q_lens,
        distribution,
        sm_scale=SCALE,
        d_block_sizes=D_BLOCK_SIZES,
        m_block_sizes=M_BLOCK_SIZES,
        vmem_limit_bytes=VMEM_LIMIT_BYTES,
    )
    return o, cache.reshape(kv_pages.shape)
