"""Attention forward by the flash attention that comes with JAX; experiments change this file.

Wraps: jax.experimental.pallas.ops.tpu.flash_attention:flash_attention
"""

from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

KERNEL_NAME = "flash_attention of JAX"
PROBLEM_DESCRIPTION = "attention forward"

# Rows of q in a block, rows of k and v fetched at once, rows of k and v computed with at once, and batch entries.
BLOCK_Q = 512
BLOCK_K_MAJOR = 512
BLOCK_K = 512
BLOCK_B = 1
CAUSAL = False
SCALE = 1.0


def kernel_fn(q, k, v):
    """Attention of q [batch, heads, sequence, d] over k, v of as many heads, or without the first axes."""
    shape = q.shape
    q, k, v = (x.reshape((1,) * (4 - x.ndim) + x.shape) for x in (q, k, v))
    sizes = BlockSizes(block_q=BLOCK_Q, block_k_major=BLOCK_K_MAJOR, block_k=BLOCK_K, block_b=BLOCK_B)
    return flash_attention(q, k, v, causal=CAUSAL, sm_scale=SCALE, block_sizes=sizes).reshape(shape)
