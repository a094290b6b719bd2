"""Attention forward by the splash attention of the package tokamax; experiments change this file.

Wraps: tokamax._src.ops.experimental.tpu.splash_attention:make_splash_mha_single_device
Wraps: tokamax._src.ops.experimental.tpu.splash_attention.splash_attention_kernel:make_splash_mha_single_device
Wraps: tokamax._src.ops.experimental.tpu.splash_attention.splash_attention_kernel:make_splash_mha
"""

import math

import jax
import jax.numpy as jnp
from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_kernel as splash
from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_mask as masks

KERNEL_NAME = "splash_attention of tokamax"
PROBLEM_DESCRIPTION = "attention forward"

# Rows of q in a block, rows of k and v fetched at once, and rows of k and v computed with at once.
BLOCK_Q = 512
BLOCK_KV = 512
BLOCK_KV_COMPUTE = 512
CAUSAL = False
WINDOW = None  # a number: each query sees only the last WINDOW of the keys that CAUSAL leaves; None: all of these
SOFT_CAP = None
SCALE = 1.0


def visible(queries, keys):
    """The mask of one head, from the numbers of its queries and keys."""
    first = keys - queries
    if WINDOW is not None:
        return masks.LocalMask((queries, keys), window_size=(WINDOW - 1, 0), offset=first)
    return masks.CausalMask((queries, keys), offset=first) if CAUSAL else masks.FullMask((queries, keys))


def kernel_fn(q, k, v):
    """Attention of q [batch, heads, sequence, d] over k, v [batch, kv_heads, ...], or without the first axes."""
    if q.ndim == 4:
        return jax.vmap(kernel_fn)(q, k, v)
    shape = q.shape
    q, k, v = (x.reshape((1,) * (3 - x.ndim) + x.shape) for x in (q, k, v))
    mask = visible(q.shape[1], k.shape[1])
    config = splash.SplashConfig(
        block_q=BLOCK_Q,
        block_kv=BLOCK_KV,
        block_kv_compute=BLOCK_KV_COMPUTE,
        attn_logits_soft_cap=SOFT_CAP,
        q_prescaled_log2e=True,
    )
    # The kernel has no argument for the scale, and computes powers of two: q takes both factors and is rounded once.
    q = (q.astype(jnp.float32) * (SCALE * math.log2(math.e))).astype(q.dtype)
    return splash.make_splash_mha_single_device(mask, config=config)(q, k, v).reshape(shape)
