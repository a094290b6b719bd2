"""Compiles one well-known attention kernel for a chip, dumping its schedules: a child of known_kernels.py."""

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding

from harness.hardware import chip

HEAD_DIM = 128
# Blocks that fit the VMEM of every chip; the kernels' own defaults are 128, which no one runs.
_BLOCK, _COMPUTE = 1024, 512

Attention = Callable[..., Any]


def flash(causal: bool, heads: int, sequence: int) -> Attention:
    """JAX's flash attention, [heads, sequence, head_dim] with a batch of one."""
    from jax.experimental.pallas.ops.tpu import flash_attention as module

    blocks = module.BlockSizes(block_q=_BLOCK, block_k_major=_BLOCK, block_k=_COMPUTE, block_b=1)
    scale = HEAD_DIM**-0.5

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        out = module.flash_attention(q[None], k[None], v[None], causal=causal, sm_scale=scale, block_sizes=blocks)
        return out[0]

    return attention


def splash(causal: bool, heads: int, sequence: int) -> Attention:
    """JAX's splash attention; its masks become scalar-prefetch tables."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    shape = (sequence, sequence)
    mask = masks.MultiHeadMask([masks.CausalMask(shape) if causal else masks.FullMask(shape) for _ in range(heads)])
    blocks = kernel.BlockSizes(block_q=_BLOCK, block_kv=_BLOCK, block_kv_compute=_COMPUTE)
    return kernel.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=blocks)  # type: ignore[no-any-return]


def tokamax(causal: bool, heads: int, sequence: int) -> Attention:
    """tokamax's splash attention."""
    from tokamax._src.ops.experimental.tpu.splash_attention import base, pallas_mosaic_tpu

    layout = pallas_mosaic_tpu.QKVLayout.HEAD_DIM_MINOR
    config = pallas_mosaic_tpu.Config(
        block_q=_BLOCK,
        block_kv=_BLOCK,
        block_kv_compute=_COMPUTE,
        q_layout=layout,
        k_layout=layout,
        v_layout=layout,
        use_experimental_scheduler=False,
    )
    attention = pallas_mosaic_tpu.PallasMosaicTpuSplashAttention(config=config, bypass_device_check=True)
    mask = base.CAUSAL_MASK if causal else base.FULL_MASK
    return lambda q, k, v: attention(q, k, v, mask=mask, return_residuals=False)


def main(kernel: str, chip_name: str, mask: str, heads: str, sequence: str) -> None:
    """Compiles; the environment says where the dumps go."""
    device = topologies.get_topology_desc(topology_name=chip(chip_name).topology, platform="tpu").devices[0]
    attention = {"flash": flash, "splash": splash, "tokamax": tokamax}[kernel](
        mask == "causal", int(heads), int(sequence)
    )
    operand = jax.ShapeDtypeStruct(
        (int(heads), int(sequence), HEAD_DIM), jnp.bfloat16, sharding=SingleDeviceSharding(device)
    )
    kind = AbstractDevice(device_kind=device.device_kind, num_cores=None, platform="tpu")
    with contextlib.ExitStack() as stack:
        if kernel == "tokamax":
            stack.enter_context(jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=kind)))
        jax.jit(attention).lower(operand, operand, operand).compile()


if __name__ == "__main__":
    main(*sys.argv[1:])
