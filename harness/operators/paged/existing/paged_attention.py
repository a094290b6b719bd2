"""Paged attention, one query for each sequence, by the kernel that comes with JAX; experiments change this file.

Wraps: jax.experimental.pallas.ops.tpu.paged_attention:paged_attention
Wraps: jax.experimental.pallas.ops.tpu.paged_attention.paged_attention_kernel:paged_attention
"""

from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention

KERNEL_NAME = "paged_attention of JAX"
PROBLEM_DESCRIPTION = "attention of one query of each sequence over keys and values in pages"

# Pages of one sequence that are fetched and computed with at once.
PAGES_PER_COMPUTE_BLOCK = 8
# True: one grid step loops over all pages of a sequence.
INLINE_SEQ_DIM = True
SCALE = 1.0


def kernel_fn(q, k_pages, v_pages, lengths, page_indices):
    """Attention of q [sequences, heads, d] over the pages of each sequence."""
    # The kernel has no argument for the scale.
    q = (q * SCALE).astype(q.dtype)
    return paged_attention(
        q,
        k_pages,
        v_pages,
        lengths,
        page_indices,
        pages_per_compute_block=PAGES_PER_COMPUTE_BLOCK,
        inline_seq_dim=INLINE_SEQ_DIM,
    )
