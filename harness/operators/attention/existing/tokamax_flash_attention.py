"""Attention forward by the flash attention of the package tokamax; experiments change this file.

Wraps: tokamax:dot_product_attention
Wraps: tokamax._src.ops.attention.pallas_mosaic_tpu:PallasMosaicTpuFlashAttention
"""

from tokamax._src.ops.attention.base import Mask
from tokamax._src.ops.attention.pallas_mosaic_tpu import Config, PallasMosaicTpuFlashAttention
from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_kernel as splash

KERNEL_NAME = "flash attention of tokamax"
PROBLEM_DESCRIPTION = "attention forward"

# Rows of q in a block, rows of k and v fetched at once, and rows of k and v computed with at once.
BLOCK_Q = 512
BLOCK_KV = 512
BLOCK_KV_COMPUTE = 512
# The minor axis of q, k and v: 1 is head_dim, 2 the sequence.
Q_LAYOUT = 1
K_LAYOUT = 1
V_LAYOUT = 1
USE_EXPERIMENTAL_SCHEDULER = True
CAUSAL = False
SOFT_CAP = None
SCALE = 1.0


def kernel_fn(q, k, v):
    """Attention of q [batch, heads, sequence, d] over k, v [batch, kv_heads, ...], or without the first axes."""
    shape = q.shape
    # The package takes [batch, sequence, heads, d], and swaps the two axes again itself.
    q, k, v = (x.reshape((1,) * (4 - x.ndim) + x.shape).swapaxes(1, 2) for x in (q, k, v))
    config = Config(
        block_q=BLOCK_Q,
        block_kv=BLOCK_KV,
        block_kv_compute=BLOCK_KV_COMPUTE,
        q_layout=splash.QKVLayout(Q_LAYOUT),
        k_layout=splash.QKVLayout(K_LAYOUT),
        v_layout=splash.QKVLayout(V_LAYOUT),
        use_experimental_scheduler=USE_EXPERIMENTAL_SCHEDULER,
    )
    # The kernel is traced for a chip that is not attached, so a check of the device would fail.
    attend = PallasMosaicTpuFlashAttention(config=config, bypass_device_check=True)
    o = attend(q, k, v, logits_scale=SCALE, logits_soft_cap=SOFT_CAP, mask=Mask(is_causal=CAUSAL))
    return o.swapaxes(1, 2).reshape(shape)
