"""ejkernel's forward kernels for the TPU, called by their interfaces, at shapes of served and trained models."""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from known_cases import Case, Program, called, integers, lengths, of, starts

_HEADS, _KV_HEADS, _HEAD_DIM, _PAGE, _SEQUENCES, _EACH, _PAGES = 32, 8, 128, 64, 16, 32, 512
_LATENT, _ROPE = 512, 64
_DECODE, _MIXED = [1] * _SEQUENCES, [1] * 14 + [300, 198]


def _of(kernel: str, operands: dict[str, Any], **options: Any) -> Program:
    return called(f"ejkernel.kernels._pallas.tpu.{kernel}", kernel, operands, **options)


def _tables(queries: list[int]) -> dict[str, Any]:
    """Lengths, pages and starts of sequences with these numbers of queries; decoding sequences come first."""
    count, decoding = len(queries), queries.count(1)
    return {
        "kv_lens": lengths(queries),
        "block_tables": integers(np.arange(count * _EACH)),
        "query_start_loc": starts(queries),
        "distribution": integers([decoding, decoding, count]),
    }


def _attention(kernel: str, sequence: int = 2048, **options: Any) -> Program:
    heads_first = kernel == "blocksparse_attention"
    shapes = {"query": _HEADS, "key": _KV_HEADS, "value": _KV_HEADS}
    operands = {
        name: of(1, heads, sequence, _HEAD_DIM) if heads_first else of(1, sequence, heads, _HEAD_DIM)
        for name, heads in shapes.items()
    }
    return _of(kernel, operands, **options)


def _ragged_v2(queries: list[int]) -> Program:
    tables = _tables(queries)
    operands = {
        "queries": of(sum(queries), _HEADS, _HEAD_DIM),
        "kv_pages": of(_PAGES, _PAGE, 2 * _KV_HEADS, _HEAD_DIM),
        "context_lens": tables["kv_lens"],
        "block_tables": tables["block_tables"].reshape(len(queries), -1),
        "query_start_loc": tables["query_start_loc"],
        "num_seqs": integers([len(queries)]),
    }
    # Its two buffers of 32 pages fill the half of VMEM that a v5e kernel gets by default.
    return _of("ragged_page_attention_v2", operands, softmax_scale=0.088, vmem_limit_bytes=32 << 20)


def _ragged_v3(queries: list[int]) -> Program:
    tokens = sum(queries)
    newest = of(tokens, _KV_HEADS, _HEAD_DIM)
    operands = {
        "queries": of(tokens, _HEADS, _HEAD_DIM),
        "keys": newest,
        "values": newest,
        "kv_cache": of(_PAGES, _PAGE, _KV_HEADS, 2, _HEAD_DIM),
    }
    return _of("ragged_page_attention_v3", operands | _tables(queries), softmax_scale=0.088)


def _latent(kernel: str, queries: list[int], **options: Any) -> Program:
    tokens = sum(queries)
    operands = {
        "queries_nope": of(tokens, 16, _LATENT),
        "queries_pe": of(tokens, 16, _ROPE),
        "keys_values": of(tokens, _LATENT),
        "keys_pe": of(tokens, _ROPE),
        "kv_cache": of(_PAGES, _PAGE // 2, 2, _LATENT + 128),
    }
    return _of(kernel, operands | _tables(queries), softmax_scale=0.1, **options)


def _paged(*, prefill: bool = False) -> Program:
    cache = of(_KV_HEADS, _PAGES, _PAGE, _HEAD_DIM)
    operands = {
        "query": of(512 if prefill else _SEQUENCES, _HEADS, _HEAD_DIM),
        "key_cache": cache,
        "value_cache": cache,
    }
    if prefill:
        tables = {"context_len": integers([1536]), "page_indices": integers(range(_EACH))}
        return _of("prefill_page_attention", operands | tables)
    tables = _tables(_DECODE)
    counts = {"context_lens": tables["kv_lens"], "block_tables": tables["block_tables"].reshape(_SEQUENCES, -1)}
    return _of("page_attention", operands | counts)


def _decode() -> Program:
    operands = {
        "query": of(_SEQUENCES, _HEADS, _HEAD_DIM),
        "key": of(_SEQUENCES, 2048, _KV_HEADS, _HEAD_DIM),
        "value": of(_SEQUENCES, 2048, _KV_HEADS, _HEAD_DIM),
        "sequence_start": integers([0] * _SEQUENCES),
        "sequence_end": integers(_tables(_DECODE)["kv_lens"]),
    }
    return _of("ragged_decode_attention", operands)


def _grouped(kernel: str) -> Program:
    operands = {"lhs": of(4096, 2048), "rhs": of(8, 2048, 1024), "group_sizes": integers([512] * 8)}
    return _of(kernel, operands, preferred_element_type=jnp.bfloat16)


def _delta(*, ragged: bool = False) -> Program:
    if not ragged:
        heads = of(1, 2048, 16, 128)
        gates = {name: of(1, 2048, 16, dtype=jnp.float32) for name in ("beta", "decay")}
        return _of("gated_delta_rule", {"query": heads, "key": heads, "value": heads, **gates})
    tokens = sum(_MIXED)
    heads = of(tokens, 16, 128)
    gates = {name: of(tokens, 16, dtype=jnp.float32) for name in ("beta", "decay")}
    operands = {
        "query": heads,
        "key": heads,
        "value": heads,
        **gates,
        "recurrent_state": of(_SEQUENCES + 1, 16, 128, 128, dtype=jnp.float32),
        "query_start_loc": _tables(_MIXED)["query_start_loc"],
        "state_indices": integers(range(1, _SEQUENCES + 1)),
    }
    return _of("ragged_gated_delta_rule", operands)


def _cross_entropy() -> Program:
    operands = {"logits": of(2048, 32768), "targets": integers(np.arange(2048) % 32768)}
    return _of("fused_cross_entropy", operands)


def _divergence() -> Program:
    return _of("fused_kl_divergence", {"student_logits": of(2048, 32768), "teacher_logits": of(2048, 32768)})


# Each block of rows has targets, so its branch is taken.
ASSUMED = {"cross-entropy": "always", "divergence of logits": "always"}
_OLD = "the package's fault: it allows any JAX 0.10, but 0.10.1 is the last with pltpu.repeat"
_NAMED = "the package's fault: it knows only chips named `TPU v` and a digit, but v7x is named TPU7x"
_XLA = "the package multiplies with XLA outside any kernel, which the judge refuses"
_SLOW = "the compiler's fault: it takes one minute for v6e, but many for v7x (cross-entropy: more than nine)"
# Found by reading the package. A reason that holds on only one chip is under the kernel and the chip.
EXPLAINED: dict[str | tuple[str, str], str] = {
    "flash causal": _OLD,
    ("flash causal", "v5e"): f"{_OLD}. A limit of the simulator: the dump of 0.10.1's libtpu does not say which "
    "result of a division (quotient or remainder) XLA's copies use, and on v5e a copy divides",
    "block-sparse causal": _OLD,
    "ragged paged v2, decode": _NAMED,
    "ragged paged v2, mixed": _NAMED,
    "ring on one device": _XLA,
    "gated delta rule": _XLA,
    "gated delta rule, ragged": _XLA,
    ("gated delta rule, ragged", "v5e"): f"{_XLA}. A limit of the simulator: on v5e the conditions of XLA's loops come "
    "from vector registers",
    "cross-entropy": _SLOW,
    "divergence of logits": _SLOW,
    "paged prefill": "the package's fault: it starts to fetch the first pages of head 0 only (_pallas_impl_fwd.py line "
    "331), so the next head waits for ever; both buffers share one semaphore (line 309), so a wait does not tell which "
    "buffer is filled",
}
_MLA = "multi_latent_ragged_page_attention"
CASES: dict[str, Case] = {
    "flash causal": partial(_attention, "flash_attention", causal=True),
    "block-sparse causal": partial(_attention, "blocksparse_attention", causal=True),
    "ring on one device": partial(_attention, "ring_attention", causal=True),
    "ragged paged v2, decode": partial(_ragged_v2, _DECODE),
    "ragged paged v2, mixed": partial(_ragged_v2, _MIXED),
    "ragged paged v3, decode": partial(_ragged_v3, _DECODE),
    "ragged paged v3, mixed": partial(_ragged_v3, _MIXED),
    "latent ragged paged": partial(_latent, _MLA, _DECODE, num_kv_pages_per_block=3, num_queries_per_block=4),
    "latent ragged paged v2": partial(_latent, f"{_MLA}_v2", _DECODE),
    "paged": _paged,
    "paged prefill": partial(_paged, prefill=True),
    "ragged decode": _decode,
    "grouped matmul": partial(_grouped, "grouped_matmul"),
    "grouped matmul v2": partial(_grouped, "grouped_matmulv2"),
    "grouped matmul v3": partial(_grouped, "grouped_matmulv3"),
    "gated delta rule": _delta,
    "gated delta rule, ragged": partial(_delta, ragged=True),
    "cross-entropy": _cross_entropy,
    "divergence of logits": _divergence,
}
