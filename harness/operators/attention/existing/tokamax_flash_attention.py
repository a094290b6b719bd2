"""Attention forward by the flash attention of the package tokamax: what an experiment changes.

Wraps: tokamax:dot_product_attention
Wraps: tokamax._src.ops.attention.pallas_mosaic_tpu:PallasMosaicTpuFlashAttention
"""

from tokamax._src.ops.attention.base import Mask
from tokamax._src.ops.attention.pallas_mosaic_tpu import Config, PallasMosaicTpuFlashAttention
from tokamax._src.ops.experimental.tpu.splash_attention import splash_attention_kernel as splash

KERNEL_NAME = "flash attention of tokamax"
PROBLEM_DESCRIPTION = "attention forward"

# Rows of q, and rows of k and v that are fetched and computed with at once.
BLOCK_Q = 512
BLOCK_KV = 512
BLOCK_KV_COMPUTE = 512
# Which axis of q, k and v is minor: 1 the head's, 2 the sequence's.
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
    # The package has the heads behind the sequence, and turns them round again itself.
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
    # Traced for a chip that is not there, it would ask in vain which device this is.
    attend = PallasMosaicTpuFlashAttention(config=config, bypass_device_check=True)
    o = attend(q, k, v, logits_scale=SCALE, logits_soft_cap=SOFT_CAP, mask=Mask(is_causal=CAUSAL))
    return o.swapaxes(1, 2).reshape(shape)
