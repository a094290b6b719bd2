"""Causal attention backward by the splash attention that comes with JAX: what an experiment changes."""

import math

from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

KERNEL_NAME = "splash_attention backward of JAX"
PROBLEM_DESCRIPTION = "dq, dk, dv of causal attention from its residuals, softmax scale 1/sqrt(head_dim)"

# Queries, keys, and keys at a time.
BLOCK_Q = 1024
BLOCK_KV = 1024
BLOCK_KV_COMPUTE = 1024
# One kernel for all three gradients, or one for dq and one for dk and dv.
FUSED = True


def kernel_fn(q, k, v, o, lse, do):
    """dq of q, o, do [heads, sequence, d], dk and dv of k, v [kv_heads, sequence, d]."""
    heads, sequence, d = q.shape
    of_q, of_kv = min(BLOCK_Q, sequence), min(BLOCK_KV, sequence)
    sizes = splash.BlockSizes(
        block_q=of_q,
        block_kv=of_kv,
        block_q_dkv=of_q,
        block_kv_dkv=of_kv,
        block_kv_dkv_compute=min(BLOCK_KV_COMPUTE, of_kv),
        block_q_dq=None if FUSED else of_q,
        block_kv_dq=None if FUSED else of_kv,
        use_fused_bwd_kernel=FUSED,
    )
    mask = masks.MultiHeadMask([masks.CausalMask((sequence, sequence))] * heads)
    kernel = splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=sizes)
    # It knows no scale.
    scale = 1 / math.sqrt(d)
    residuals = (q * scale, k, v, None, None, o, lse, kernel.dq_mask_info, kernel.dkv_mask_info)
    # What its custom_vjp calls.
    gradients = splash._splash_attention_bwd(
        False, splash.DEFAULT_MASK_VALUE, False, sizes, None, kernel.kwargs["mask_function"], None, False, residuals, do
    )
    dq, dk, dv = gradients[3:6]
    return (dq * scale).astype(q.dtype), dk, dv
