"""Attention forward by the splash attention that comes with JAX; experiments change this file.

Wraps: jax.experimental.pallas.ops.tpu.splash_attention:make_splash_mha_single_device
Wraps: jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel:make_splash_mha_single_device
Wraps: jax.experimental.pallas.ops.tpu.splash_attention:make_splash_mha
Wraps: jax.experimental.pallas.ops.tpu.splash_attention.splash_attention_kernel:make_splash_mha
"""

import jax
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

KERNEL_NAME = "splash_attention of JAX"
PROBLEM_DESCRIPTION = "attention forward"

# Rows of q in a block, rows of k and v fetched at once, and rows of k and v computed with at once.
BLOCK_Q = 2048
BLOCK_KV = 2048
BLOCK_KV_COMPUTE = 1024
CAUSAL = True
WINDOW = None
SOFT_CAP = None
SCALE = 0.08838834764831845


def kernel_fn(q, k, v):
    """Attention of q [batch, heads, sequence, d] over k, v [batch, kv_heads, ...], or without the first axes."""
    if q.ndim == 4:
        return jax.vmap(kernel_fn)(q, k, v)
    shape = q.shape
    q, k, v = (x.reshape((1,) * (3 - x.ndim) + x.shape) for x in (q, k, v))
    square = (q.shape[1], k.shape[1])
    offset = square[1] - square[0]
    mask = masks.CausalMask(square, offset=offset) if CAUSAL else masks.FullMask(square)
    if WINDOW is not None:
        mask = masks.LocalMask(square, window_size=(WINDOW - 1, 0), offset=offset)
    sizes = splash.BlockSizes(block_q=BLOCK_Q, block_kv=BLOCK_KV, block_kv_compute=BLOCK_KV_COMPUTE)
    heads = masks.MultiHeadMask([mask] * len(q))
    attend = splash.make_splash_mha_single_device(heads, block_sizes=sizes, attn_logits_soft_cap=SOFT_CAP)
    # The kernel has no argument for the scale.
    return attend(q * SCALE, k, v).reshape(shape)
