"""tokamax's operations for the TPU, forward and backward, as its own entry points lay out their operands."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from known_cases import Case, Program, gradient, integers, of, starts
from known_cases_jax import GROUPS, HEAD_DIM, HEADS, SEQUENCE
from tokamax._src.ops.attention import pallas_mosaic_tpu as flash
from tokamax._src.ops.attention import pallas_mosaic_tpu_vjp as flash_vjp
from tokamax._src.ops.attention.base import Mask
from tokamax._src.ops.batched_rpa import pallas_mosaic_tpu as batched
from tokamax._src.ops.deepseek_rope import pallas_mosaic_tpu as rope
from tokamax._src.ops.experimental.tpu.splash_attention import base as splash_masks
from tokamax._src.ops.experimental.tpu.splash_attention import pallas_mosaic_tpu as splash
from tokamax._src.ops.experimental.tpu.splash_attention import pallas_mosaic_tpu_vjp as splash_vjp
from tokamax._src.ops.gated_linear_unit.base import GatedLinearUnit
from tokamax._src.ops.linear_softmax_cross_entropy_loss import pallas_mosaic_tpu as cross_entropy
from tokamax._src.ops.mhc import pallas_mosaic_tpu as hyper
from tokamax._src.ops.normalization.base import Normalization
from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu as ragged
from tokamax._src.ops.ragged_dot import pallas_mosaic_tpu_v2 as ragged_v2
from tokamax._src.ops.router_topk import pallas_mosaic_tpu as router
from tokamax._src.ops.triangle_multiplication.base import TriangleMultiplication

_BLOCK, _COMPUTE = 1024, 512
# In ahead-of-time compilation there is no device to ask.
_AHEAD = {"bypass_device_check": True}
_LAYOUTS = {f"{name}_layout": splash.QKVLayout.HEAD_DIM_MINOR for name in "qkv"}
_FORWARD = {"block_q": _BLOCK, "block_kv": _BLOCK, "block_kv_compute": _COMPUTE, "use_experimental_scheduler": False}
_BACKWARD = {"block_q_dkv": _BLOCK, "block_kv_dkv": _BLOCK, "block_kv_dkv_compute": _COMPUTE}


def _flash(*, causal: bool, backward: bool = False) -> Program:
    """Operands [batch, sequence, heads, head_dim]; transposes around the kernel are the operation's own."""
    vjp = flash_vjp.PallasMosaicTpuFlashAttentionVjp(config=flash_vjp.Config(**_BACKWARD), **_AHEAD)
    config = flash.Config(**_FORWARD, **_LAYOUTS)
    operation = flash.PallasMosaicTpuFlashAttention(config=config, vjp=vjp, **_AHEAD)

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return operation(q, k, v, mask=Mask(is_causal=causal))

    operands = {name: of(1, SEQUENCE, HEADS, HEAD_DIM) for name in "qkv"}
    return Program(gradient(attention, 3) if backward else attention, operands)


def _splash(*, causal: bool, backward: bool = False) -> Program:
    """Operands [heads, sequence, head_dim]."""
    vjp = splash_vjp.PallasMosaicTpuSplashAttentionVjp(config=splash_vjp.Config(**_BACKWARD), **_AHEAD)
    config = splash.Config(**_FORWARD, **_LAYOUTS)
    operation = splash.PallasMosaicTpuSplashAttention(config=config, vjp=vjp, **_AHEAD)
    mask = splash_masks.CAUSAL_MASK if causal else splash_masks.FULL_MASK

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return operation(q, k, v, mask=mask, return_residuals=False)

    operands = {name: of(HEADS, SEQUENCE, HEAD_DIM) for name in "qkv"}
    return Program(gradient(attention, 3) if backward else attention, operands)


def _ragged_dot(operation: Callable[..., Any], *, backward: bool = False) -> Program:
    """A grouped matmul whose group sizes are an operand."""

    def dot(lhs: jax.Array, rhs: jax.Array, group_sizes: jax.Array) -> Any:
        return operation(lhs, rhs, group_sizes=group_sizes)

    operands = {"lhs": of(sum(GROUPS), 2048), "rhs": of(len(GROUPS), 2048, 1024), "group_sizes": integers(GROUPS)}
    return Program(gradient(dot, 2) if backward else dot, operands)


def _ragged_v1(*, narrow: bool = False, backward: bool = False) -> Program:
    config = ragged.Config(tile_m=512, tile_k=512, tile_n=512)
    quantized = {"qdtype": "int8"} if narrow else {}
    operation = ragged.PallasMosaicTpuRaggedDot(config=config, **quantized, **_AHEAD)
    if backward:
        inner = ragged.PallasMosaicTpuRaggedDot(config=config, **_AHEAD)
        vjp = partial(ragged.base.vjp, dlhs_ragged_dot=inner, drhs_ragged_dot=inner)
        operation = ragged.PallasMosaicTpuRaggedDot(config=config, vjp=vjp, **_AHEAD)
    return _ragged_dot(operation, backward=backward)


def _ragged_v2(*, backward: bool = False) -> Program:
    config = ragged_v2.Config(tile_m=512, tile_k=512, tile_n=512)
    inner = ragged_v2.PallasMosaicTpuV2RaggedDot(config=config, num_actual_groups=len(GROUPS), **_AHEAD)
    vjp = partial(ragged_v2.base.vjp, dlhs_ragged_dot=inner, drhs_ragged_dot=inner)
    return _ragged_dot(ragged_v2.PallasMosaicTpuV2RaggedDot(config=config, vjp=vjp, **_AHEAD), backward=backward)


def _cross_entropy(*, backward: bool = False) -> Program:
    """The loss of a language model's last layer, without its logits in memory."""
    config = cross_entropy.Config(b_block_size=1024, h_block_size=512, v_block_size=1024)
    operation = cross_entropy.PallasMosaicTpuLinearSoftmaxCrossEntropyLoss(config=config, **_AHEAD)
    object.__setattr__(
        operation, "vjp", cross_entropy.PallasMosaicTpuLinearSoftmaxCrossEntropyLossVjp(config=config, **_AHEAD)
    )

    def loss(x: jax.Array, w: jax.Array, labels: jax.Array) -> Any:
        return operation(x, labels, w, reduction="mean")

    operands = {"x": of(4096, 2048), "w": of(2048, 32768), "labels": of(4096, dtype=jnp.int32)}
    return Program(gradient(loss, 2) if backward else loss, operands)


def _rope() -> Program:
    operation = rope.PallasTpuDeepseekRope(config=rope.Config(tile_n=64), **_AHEAD)
    positions = integers(np.random.default_rng(2).integers(0, 65536, 1024))

    def rotated(x: jax.Array, positions: jax.Array, cos_sin_cache: jax.Array) -> Any:
        return operation(x, positions, cos_sin_cache, mode="rope")

    cache = of(65536, 64, dtype=jnp.float32)
    return Program(rotated, {"x": of(1024, 512), "positions": positions, "cos_sin_cache": cache})


def _router() -> Program:
    operation = router.PallasTpuRouterTopK(config=router.Config(block_rows=256), **_AHEAD)
    return Program(lambda scores: operation(scores, 8), {"scores": of(4096, 256, dtype=jnp.float32)})


_STREAMS, _HIDDEN, _TOKENS = 4, 2048, 1024
_GATES = {
    "rms_eps": 1e-6,
    "hc_pre_eps": 1e-6,
    "hc_sinkhorn_eps": 1e-6,
    "hc_post_mult_value": 2.0,
    "sinkhorn_repeat": 20,
}
_PRE = {
    "residual": of(_TOKENS, _STREAMS * _HIDDEN),
    "fn": of(_STREAMS * (_STREAMS + 2), _STREAMS * _HIDDEN, dtype=jnp.float32),
    "hc_scale": of(3, dtype=jnp.float32),
    "hc_base": of(_STREAMS * (_STREAMS + 2), dtype=jnp.float32),
}
_POST = {
    "x": of(_TOKENS, _HIDDEN),
    "residual": of(_TOKENS, _STREAMS * _HIDDEN),
    "post_layer_mix": of(_TOKENS, _STREAMS, dtype=jnp.float32),
    "comb_res_mix": of(_TOKENS, _STREAMS, _STREAMS, dtype=jnp.float32),
}


def _hyper_connections(kind: str) -> Program:
    config = hyper.Config(token_block_size=64)

    def pre(residual: jax.Array, fn: jax.Array, hc_scale: jax.Array, hc_base: jax.Array) -> Any:
        return hyper.PallasTpuMhcPre(config=config, **_AHEAD)(residual, fn, hc_scale, hc_base, **_GATES)

    def post(x: jax.Array, residual: jax.Array, post_layer_mix: jax.Array, comb_res_mix: jax.Array) -> Any:
        return hyper.PallasTpuMhcPost(config=config, **_AHEAD)(x, residual, post_layer_mix, comb_res_mix)

    return Program(pre, _PRE) if kind == "pre" else Program(post, _POST)


def _batched_paged(query_lengths: list[int]) -> Program:
    """Decoding sequences first, then prefilling ones, as the operation requires."""
    count, page, each = len(query_lengths), 256, 8
    lengths = [max(length, 640 + 100 * number) for number, length in enumerate(query_lengths)]
    decoding = query_lengths.count(1)
    tokens, key_heads = sum(query_lengths), 8
    operation = batched.PallasTpuBatchedRpa(config=batched.Config(), **_AHEAD)

    def attention(
        queries: jax.Array,
        keys: jax.Array,
        values: jax.Array,
        kv_cache: jax.Array,
        kv_lens: jax.Array,
        page_indices: jax.Array,
        cu_q_lens: jax.Array,
        distribution: jax.Array,
    ) -> Any:
        return operation(queries, keys, values, kv_cache, kv_lens, page_indices, cu_q_lens, distribution)

    return Program(
        attention,
        {
            "queries": of(tokens, 32, HEAD_DIM),
            "keys": of(tokens, key_heads, HEAD_DIM),
            "values": of(tokens, key_heads, HEAD_DIM),
            "kv_cache": of(count * each, page, 2 * key_heads, HEAD_DIM),
            "kv_lens": integers(lengths),
            "page_indices": integers(range(count * each)),
            "cu_q_lens": starts(query_lengths),
            "distribution": integers([decoding, decoding, count]),
        },
    )


def _normalization() -> Program:
    operation = Normalization(**_AHEAD)
    row = of(4096, dtype=jnp.float32)
    return Program(
        lambda x, scale, offset: operation(x, scale, offset), {"x": of(4096, 4096), "scale": row, "offset": row}
    )


def _gated_linear_unit() -> Program:
    operation = GatedLinearUnit(**_AHEAD)
    operands = {"x": of(2048, 2048), "weights": of(2048, 2, 4096)}
    return Program(lambda x, weights: operation(x, weights, activation=jax.nn.silu), operands)


def _triangle_multiplication() -> Program:
    operation = TriangleMultiplication(**_AHEAD)
    side, width = 384, 64
    scales = {f"layernorm_{place}": of(width) for place in ("in_scale", "in_offset", "out_scale", "out_offset")}

    def multiplied(*operands: jax.Array) -> Any:
        return operation(*operands, "outgoing")

    operands = {
        "x": of(side, side, width),
        "mask": of(side, side, dtype=jnp.bool_),
        "projection_in_weights": of(width, 2, width),
        "gate_in_weights": of(width, 2, width),
        "projection_out_weights": of(width, width),
        "gate_out_weights": of(width, width),
    }
    return Program(multiplied, operands | scales)


CASES: dict[str, Case] = {
    "flash full": partial(_flash, causal=False),
    "flash causal": partial(_flash, causal=True),
    "flash backward": partial(_flash, causal=True, backward=True),
    "splash full": partial(_splash, causal=False),
    "splash causal": partial(_splash, causal=True),
    "splash backward": partial(_splash, causal=True, backward=True),
    "ragged dot": _ragged_v1,
    "ragged dot int8": partial(_ragged_v1, narrow=True),
    "ragged dot backward": partial(_ragged_v1, backward=True),
    "ragged dot v2": _ragged_v2,
    "ragged dot v2 backward": partial(_ragged_v2, backward=True),
    "cross-entropy": _cross_entropy,
    "cross-entropy backward": partial(_cross_entropy, backward=True),
    "rope": _rope,
    "router top k": _router,
    "hyper-connections before": partial(_hyper_connections, "pre"),
    "hyper-connections behind": partial(_hyper_connections, "post"),
    "batched ragged paged decode": partial(_batched_paged, [1] * 16),
    "batched ragged paged mixed": partial(_batched_paged, [1] * 6 + [512, 300]),
    "normalization": _normalization,
    "gated linear unit": _gated_linear_unit,
    "triangle multiplication": _triangle_multiplication,
}
