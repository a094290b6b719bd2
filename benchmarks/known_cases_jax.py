"""The Pallas operations that JAX ships for one TPU (jax.experimental.pallas.ops.tpu), forward and backward."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu import flash_attention as flash_module
from jax.experimental.pallas.ops.tpu.matmul import matmul
from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm, tgmm
from jax.experimental.pallas.ops.tpu.megablox.ops import gmm as differentiable_gmm
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention
from jax.experimental.pallas.ops.tpu.paged_attention.quantization_utils import QuantizedTensor
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention
from jax.experimental.pallas.ops.tpu.random.philox import philox_random_bits
from jax.experimental.pallas.ops.tpu.random.threefry import plthreefry_random_bits
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash_module
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from known_cases import Case, Program, gradient, integers, of, starts

HEADS, SEQUENCE, HEAD_DIM = 8, 4096, 128
# Blocks that fit the VMEM of every chip; the kernels' own defaults are 128, which nobody uses.
_BLOCK, _COMPUTE = 1024, 512
_ATTENTION = {name: of(HEADS, SEQUENCE, HEAD_DIM) for name in "qkv"}


def _flash(*, causal: bool, segments: bool = False, backward: bool = False) -> Program:
    """JAX's flash attention, [heads, sequence, head_dim] with a batch of one."""
    blocks = flash_module.BlockSizes(
        block_q=_BLOCK,
        block_k_major=_BLOCK,
        block_k=_COMPUTE,
        block_b=1,
        block_q_major_dkv=_BLOCK,
        block_k_major_dkv=_BLOCK,
        block_k_dkv=_COMPUTE,
        block_q_dkv=_COMPUTE,
        block_k_major_dq=_BLOCK,
        block_k_dq=_COMPUTE,
        block_q_dq=_BLOCK,
    )

    def attention(q: jax.Array, k: jax.Array, v: jax.Array, segment_ids: jax.Array | None = None) -> Any:
        ids = None if segment_ids is None else flash_module.SegmentIds(segment_ids, segment_ids)
        scale = HEAD_DIM**-0.5
        call = partial(flash_module.flash_attention, causal=causal, sm_scale=scale, block_sizes=blocks)
        return call(q[None], k[None], v[None], segment_ids=ids)[0]

    named = _ATTENTION | ({"segment_ids": of(1, SEQUENCE, dtype=jnp.int32)} if segments else {})
    return Program(gradient(attention, 3) if backward else attention, named)


def _splash(
    mask: str, *, key_heads: int = HEADS, backward: bool = False, fused: bool = True, heads: int = HEADS
) -> Program:
    """JAX's splash attention; its masks become scalar-prefetch tables."""
    shape = (SEQUENCE, SEQUENCE)
    head_mask: masks.Mask = {
        "full": masks.FullMask(shape),
        "causal": masks.CausalMask(shape),
        "local": masks.LocalMask(shape, (1024, 0), 0),
    }[mask]
    blocks = splash_module.BlockSizes(
        block_q=_BLOCK,
        block_kv=_BLOCK,
        block_kv_compute=_COMPUTE,
        block_q_dkv=_BLOCK,
        block_kv_dkv=_BLOCK,
        block_kv_dkv_compute=_COMPUTE,
        block_q_dq=None if fused else _BLOCK,
        block_kv_dq=None if fused else _BLOCK,
        use_fused_bwd_kernel=fused,
    )
    make = splash_module.make_splash_mqa if key_heads == 1 else splash_module.make_splash_mha
    kernel = make(masks.MultiHeadMask([head_mask] * heads), head_shards=1, q_seq_shards=1, block_sizes=blocks)
    keys = of(SEQUENCE, HEAD_DIM) if key_heads == 1 else of(key_heads, SEQUENCE, HEAD_DIM)

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> Any:
        return kernel(q, k, v)

    named = {"q": of(heads, SEQUENCE, HEAD_DIM), "k": keys, "v": keys}
    return Program(gradient(attention, 3) if backward else attention, named)


# Sixteen sequences of different lengths, as they are decoded together, with pages in no regular order.
_LENGTHS = [2048, 300, 1500, 77, 999, 1024, 1, 2000, 512, 640, 1777, 128, 64, 1333, 1900, 256]
_PAGE, _PAGES_EACH = 64, 32


def _page_indices() -> np.ndarray[Any, Any]:
    order = np.random.default_rng(0).permutation(len(_LENGTHS) * _PAGES_EACH)
    return integers(order.reshape(len(_LENGTHS), _PAGES_EACH))


def _paged(*, quantized: bool = False, inline: bool = True) -> Program:
    pages = (HEADS, len(_LENGTHS) * _PAGES_EACH, _PAGE, HEAD_DIM)

    def attention(
        q: jax.Array, k_pages: jax.Array, v_pages: jax.Array, lengths: jax.Array, page_indices: jax.Array
    ) -> Any:
        return paged_attention(
            q, k_pages, v_pages, lengths, page_indices, pages_per_compute_block=8, inline_seq_dim=inline
        )

    def narrow(
        q: jax.Array,
        k_weight: jax.Array,
        k_scales: jax.Array,
        v_weight: jax.Array,
        v_scales: jax.Array,
        lengths: jax.Array,
        page_indices: jax.Array,
    ) -> Any:
        keys, values = QuantizedTensor(k_weight, k_scales), QuantizedTensor(v_weight, v_scales)
        return attention(q, keys, values, lengths, page_indices)

    tables = {"lengths": integers(_LENGTHS), "page_indices": _page_indices()}
    queries = {"q": of(len(_LENGTHS), 4 * HEADS, HEAD_DIM)}
    if not quantized:
        return Program(attention, queries | {"k_pages": of(*pages), "v_pages": of(*pages)} | tables)
    weight, scales = of(*pages, dtype=jnp.int8), of(*pages[:-1], 1, dtype=jnp.float32)
    halves = {"k_weight": weight, "k_scales": scales, "v_weight": weight, "v_scales": scales}
    return Program(narrow, queries | halves | tables)


def _ragged_paged(query_lengths: list[int], *, window: int | None = None) -> Program:
    """Attention of each sequence's newest tokens over all of its keys: one token while decoding, many in a prefill."""
    query_starts = starts(query_lengths)
    lengths = np.maximum(_LENGTHS, query_lengths)

    def attention(
        q: jax.Array,
        kv_pages: jax.Array,
        kv_lens: jax.Array,
        page_indices: jax.Array,
        cu_q_lens: jax.Array,
        num_seqs: jax.Array,
    ) -> Any:
        call = partial(ragged_paged_attention, sm_scale=HEAD_DIM**-0.5, sliding_window=window)
        blocks = {"num_kv_pages_per_block": 8, "num_queries_per_block": 32, "vmem_limit_bytes": 32 << 20}
        return call(q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs, **blocks)

    return Program(
        attention,
        {
            "q": of(int(query_starts[-1]), 4 * HEADS, HEAD_DIM),
            "kv_pages": of(len(_LENGTHS) * _PAGES_EACH, _PAGE, 2 * HEADS, HEAD_DIM),
            "kv_lens": integers(lengths),
            "page_indices": _page_indices(),
            "cu_q_lens": query_starts,
            "num_seqs": integers([len(_LENGTHS)]),
        },
    )


# Eight experts, unevenly loaded, one of them not at all.
GROUPS = [1024, 256, 0, 700, 68, 1000, 536, 512]
_TILES = (512, 512, 512)


def _grouped(kind: str) -> Program:
    rows, inner, columns = sum(GROUPS), 2048, 1024
    left, right = of(rows, inner), of(len(GROUPS), inner, columns)

    def forward(lhs: jax.Array, rhs: jax.Array, group_sizes: jax.Array) -> Any:
        return gmm(lhs, rhs, group_sizes, jnp.bfloat16, _TILES)

    def transposed(lhs: jax.Array, rhs: jax.Array, group_sizes: jax.Array) -> Any:
        return gmm(lhs, rhs, group_sizes, jnp.bfloat16, _TILES, transpose_rhs=True)

    def weights(lhs: jax.Array, rhs: jax.Array, group_sizes: jax.Array) -> Any:
        return tgmm(lhs, rhs, group_sizes, jnp.bfloat16, _TILES)

    def trained(lhs: jax.Array, rhs: jax.Array, group_sizes: jax.Array) -> Any:
        return differentiable_gmm(lhs, rhs, group_sizes, jnp.bfloat16, _TILES)

    sizes = {"group_sizes": integers(GROUPS)}
    return {
        "forward": Program(forward, {"lhs": left, "rhs": right} | sizes),
        "transposed": Program(transposed, {"lhs": left, "rhs": of(len(GROUPS), columns, inner)} | sizes),
        "weights": Program(weights, {"lhs": of(inner, rows), "rhs": of(rows, columns)} | sizes),
        "backward": Program(gradient(trained, 2), {"lhs": left, "rhs": right} | sizes),
    }[kind]


def _matmul() -> Program:
    return Program(partial(matmul, block_shape=(512, 1024), block_k=1024), {"x": of(4096, 4096), "y": of(4096, 4096)})


def _bits(function: Callable[..., Any]) -> Program:
    def bits(key: jax.Array) -> Any:
        return function(key, 32, (2048, 1024))

    return Program(bits, {"key": integers([0, 42]).astype(np.uint32)})


CASES: dict[str, Case] = {
    "flash full": partial(_flash, causal=False),
    "flash causal": partial(_flash, causal=True),
    "flash segments": partial(_flash, causal=True, segments=True),
    "flash backward": partial(_flash, causal=True, backward=True),
    "splash full": partial(_splash, "full"),
    "splash causal": partial(_splash, "causal"),
    "splash local": partial(_splash, "local"),
    "splash one key head": partial(_splash, "causal", key_heads=1),
    "splash backward": partial(_splash, "causal", backward=True),
    "splash backward, two kernels": partial(_splash, "causal", backward=True, fused=False),
    "paged attention": _paged,
    "paged attention int8": partial(_paged, quantized=True),
    "paged attention, sequences in the grid": partial(_paged, inline=False),
    "ragged paged decode": partial(_ragged_paged, [1] * 16),
    "ragged paged mixed": partial(_ragged_paged, [1] * 12 + [512, 700, 1, 256]),
    "megablox gmm": partial(_grouped, "forward"),
    "megablox gmm transposed": partial(_grouped, "transposed"),
    "megablox tgmm": partial(_grouped, "weights"),
    "megablox backward": partial(_grouped, "backward"),
    "matmul": _matmul,
    "threefry": partial(_bits, plthreefry_random_bits),
    "philox": partial(_bits, philox_random_bits),
}
