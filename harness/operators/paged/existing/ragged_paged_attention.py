"""Ragged paged attention by the kernel that comes with JAX; experiments change this file.

Wraps: jax.experimental.pallas.ops.tpu.ragged_paged_attention:ragged_paged_attention
Wraps: jax.experimental.pallas.ops.tpu.ragged_paged_attention.kernel:ragged_paged_attention
"""

from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention

KERNEL_NAME = "ragged_paged_attention of JAX"
PROBLEM_DESCRIPTION = "attention of many sequences over keys and values in pages"

# Rows of q in a block, and pages of one sequence fetched at once. JAX's defaults depend on the attached device.
NUM_QUERIES_PER_BLOCK = 32
NUM_KV_PAGES_PER_BLOCK = 8
# How much VMEM the compiler may give the kernel, in bytes; None: its default.
VMEM_LIMIT_BYTES = None
SCALE = 1.0


def kernel_fn(q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs):
    """Attention of q [tokens, heads, d] over the pages of each sequence."""
    return ragged_paged_attention(
        q,
        kv_pages,
        kv_lens,
        page_indices,
        cu_q_lens,
        num_seqs,
        sm_scale=SCALE,
        num_queries_per_block=NUM_QUERIES_PER_BLOCK,
        num_kv_pages_per_block=NUM_KV_PAGES_PER_BLOCK,
        vmem_limit_bytes=VMEM_LIMIT_BYTES,
    )
