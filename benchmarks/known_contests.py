"""Contests for the rows of known_kernels.py whose operation is stated: the statement, and a thin kernel.py."""

from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.candidate import names, rewrite
from harness.loop import scaffold
from harness.operators import Suite
from harness.prepare import data

CHIP = "v6e"
_PROBLEMS = Path(__file__).parent / "known_problems"
_RAGGED = ("q", "kv_pages", "kv_lens", "page_indices", "cu_q_lens", "num_seqs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A template with its constants, and the package's function with the call that computes the template's outputs.

    If known_problems has a file with the name `like`, this file is the statement, and there is no template. `before`
    are lines of kernel_fn in front of that call, in which `existing` is the function.
    """

    like: str
    settings: dict[str, Any] = field(default_factory=dict)
    module: str
    function: str
    call: str
    before: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    chip: str = CHIP
    # The outcome of branches that depend on contents of vectors; "" if there are none.
    assume: str = ""

    @property
    def statement(self) -> Path | None:
        """The file of this contest's own problem; None if the problem is an operator's."""
        path = _PROBLEMS / f"{self.like.replace('-', '_')}.py"
        return path if path.is_file() else None

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the inputs."""
        if self.statement is None:
            stated = scaffold.text(self.like, "prepare.py")
            for name in set(self.settings) & set(names(stated)):
                stated = rewrite(stated, name, repr(self.settings[name]), "prepare.py")
            read = data.read(stated)
            assert read is not None, f"the template {self.like} is data"
            assert not isinstance(read[0], Suite), f"{self.like} is one problem"
            return tuple(array.name for array in read[0].statement().inputs)
        module = import_module(f"{_PROBLEMS.name}.{self.statement.stem}")
        before = {name: getattr(module, name) for name in self.settings}
        vars(module).update(self.settings)
        try:
            return tuple(array.name for array in module.problem().statement().inputs)
        finally:
            vars(module).update(before)

    @property
    def kernel(self) -> str:
        """The text of kernel.py."""
        head = (f"import {name}\n" if " " not in name else f"{name}\n" for name in self.imports)
        lines = (*self.before, f"return {self.call}")
        return (
            f'"""{self.function} of {self.module.partition(".")[0]}, unchanged."""\n\n'
            f"{''.join(head)}{chr(10) * bool(self.imports)}from {self.module} import {self.function} as existing\n\n\n"
            f"def kernel_fn({', '.join(self.arrays)}):\n" + "".join(f"    {line}\n" for line in lines)
        )


_JNP = "import jax.numpy as jnp"
_HEADS, _KV_HEADS, _HEAD_DIM, _PAGE = 4, 2, 128, 64
_CAUSAL = {"HEADS": 2, "SEQUENCE": 2048, "CAUSAL": True}
_GROUPS = {"M": 1024, "GROUPS": 4, "K": 512, "N": 512}
_PAGES = {
    "HEADS": _HEADS,
    "KV_HEADS": _KV_HEADS,
    "HEAD_DIM": _HEAD_DIM,
    "SEQUENCES": 8,
    "PAGES": 96,
    "PAGE_SIZE": _PAGE,
    "PAGES_PER_SEQUENCE": 12,
}
_TOKENS = _PAGES | {"TOKENS": 128}
# Keys and values of one sequence that lie together are one page.
_WHOLE = _PAGES | {"PAGES": 32, "PAGE_SIZE": 256, "PAGES_PER_SEQUENCE": 4}
_SCALE = _HEAD_DIM**-0.5
_BY_LENGTH = f"sm_scale={_SCALE!r}"

_DELTA = {"TIME": 256, "HEADS": 1}

# The number of sequences that decode, as servers of these packages state it: those with one query come first.
_DISTRIBUTION = (
    "place = jnp.arange(len(kv_lens), dtype=jnp.int32)",
    "is_decoding = (cu_q_lens[1:] - cu_q_lens[:-1] == 1) & (place < num_seqs[0])",
    "decoding = jnp.min(jnp.where(is_decoding, len(kv_lens), place))",
    "distribution = jnp.stack([decoding, decoding, num_seqs[0]]).astype(jnp.int32)",
    "pages, size, rows, d = kv_pages.shape",
    "newest = new_kv.reshape(len(new_kv), -1, 2 * d)",
)
_NEWEST = "newest[..., :d], newest[..., d:]"


def _updating(module: str, function: str, arguments: str, cache: str, back: str, **changes: Any) -> Contest:
    """Ragged attention that writes the newest keys and values; `cache` and `back` convert our pages to its and back."""
    tables = "kv_lens, page_indices.reshape(-1), cu_q_lens, distribution"
    return Contest(
        like="ragged-paged-attention-update",
        settings=_TOKENS | {"SUMS": "bfloat16"} | changes,
        module=module,
        function=function,
        imports=(_JNP,),
        before=(*_DISTRIBUTION, f"o, cache = existing(q, {_NEWEST}, {cache}, {tables}, {arguments})"),
        call=f"(o, {back})",
    )


def _packed_rows(module: str, function: str, scale: str, **changes: Any) -> Contest:
    return _updating(
        module,
        function,
        scale,
        "kv_pages.reshape(pages, size, rows // 2, 2, d)",
        "cache.reshape(kv_pages.shape)",
        **changes,
    )


def _grouped(
    module: str, function: str, options: str = "preferred_element_type=lhs.dtype", *, chip: str = CHIP
) -> Contest:
    return Contest(
        like="grouped-matmul",
        settings=_GROUPS,
        chip=chip,
        module=module,
        function=function,
        call=f"existing(lhs, rhs, group_sizes, {options})",
    )


_V2 = Contest(
    like="ragged-paged-attention",
    settings=_TOKENS,
    module="tpu_inference.kernels.ragged_paged_attention.v2.kernel",
    function="ragged_paged_attention",
    call=f"existing({', '.join(_RAGGED)}, {_BY_LENGTH}, vmem_limit_bytes=32 << 20)",
)
_V3 = "tpu_inference.kernels.ragged_paged_attention.v3"
_V3_MIXED = _packed_rows(f"{_V3}.kernel", "ragged_paged_attention", _BY_LENGTH)
_WEIGHTS = Contest(
    like="quantized-matmul",
    settings={"M": 256, "N": 1024, "K": 1024},
    module="tpu_inference.kernels.quantized_matmul.kernel",
    function="quantized_matmul_kernel",
    call="existing(a, q.T, scales.reshape(-1))",
)
# The kernel itself rounds rows of activations to the weights' type, which leaves values of that type unchanged.
_ROUNDING = replace(
    _WEIGHTS,
    like="quantized-matmul-int8",
    imports=(_JNP,),
    before=("c = existing(a.astype(jnp.float32), q.T, scales.reshape(-1), x_q_dtype=q.dtype)",),
    call="(c * row_scales).astype(jnp.bfloat16)",
)
# All blocks of a column have the column's scale.
_BY_BLOCKS = replace(
    _ROUNDING,
    module="tpu_inference.kernels.quantized_matmul.blockwise_kernel",
    before=(
        "blocks = jnp.broadcast_to(scales, (len(q) // 256, *scales.shape))",
        "c = existing(a.astype(jnp.bfloat16), q.T, blocks, x_q_dtype=q.dtype, block_size=256)",
    ),
)
_TPU_INFERENCE: dict[str, Contest] = {
    "quantized matmul by blocks, int8": _BY_BLOCKS,
    "quantized matmul by blocks, fp8": replace(_BY_BLOCKS, like="quantized-matmul-fp8"),
    "quantized matmul int8": _ROUNDING,
    "quantized matmul int8, weights only": _WEIGHTS,
    "quantized matmul int8, 16 rows": replace(_ROUNDING, settings=_ROUNDING.settings | {"M": 16}),
    "quantized matmul fp8": replace(_ROUNDING, like="quantized-matmul-fp8"),
    "quantized matmul fp8, tuned shape": replace(
        _ROUNDING, like="quantized-matmul-fp8", settings={"M": 512, "N": 512, "K": 2048}
    ),
    "ragged paged v2, decode": _V2,
    "ragged paged v2, mixed": _V2,
    "ragged paged v3, decode": _V3_MIXED,
    "ragged paged v3, mixed": _V3_MIXED,
    "ragged paged v3, head_dim 64": _updating(
        f"{_V3}.kernel_hd64",
        "ragged_paged_attention_hd64",
        f"sm_scale={64**-0.5!r}",
        "kv_pages.reshape(pages, size, rows // 4, 2, 2 * d)",
        "cache.reshape(kv_pages.shape)",
        HEAD_DIM=64,
    ),
    "ragged paged, batched": _packed_rows(
        "tpu_inference.kernels.experimental.batched_rpa.wrapper", "ragged_paged_attention", _BY_LENGTH
    ),
    "ragged paged, stacked": _updating(
        "tpu_inference.kernels.experimental.stacked_rpa.wrapper",
        "ragged_paged_attention",
        _BY_LENGTH,
        "kv_pages.transpose(0, 2, 3, 1)",
        "cache.transpose(0, 3, 1, 2)",
        PAGE_SIZE=128,
        PAGES_PER_SEQUENCE=6,
    ),
    "grouped matmul": _grouped(
        "tpu_inference.kernels.megablox.gmm", "gmm", "preferred_element_type=lhs.dtype, tiling=(256, 256, 256)"
    ),
    "flash causal": Contest(
        like="attention-causal",
        settings=_CAUSAL,
        module="tpu_inference.kernels.flash_attention.kernel",
        function="flash_attention",
        call=f"existing(q[None], k[None], v[None], causal=True, {_BY_LENGTH})[0]",
    ),
    "flash, encoder": Contest(
        like="attention",
        settings={"HEADS": 2, "SEQUENCE": 1024},
        module="tpu_inference.kernels.flash_attention.kernel",
        function="encoder_only_flash_attention",
        imports=(_JNP,),
        before=("q, k, v = (x.swapaxes(0, 1) for x in (q, k, v))",),
        call=f"existing(q, k, v, jnp.array([len(q)], jnp.int32), {_BY_LENGTH}).swapaxes(0, 1)",
    ),
}

_ROWS = {"TOKENS": 128, "HEADS": 4, "PAGES": 32, "PAGE_SIZE": 32, "PIECES": 16}
_CACHE_ROWS = Contest(
    like="cache-rows",
    settings=_ROWS,
    module="tpu_inference.kernels.ragged_paged_attention.v2.ragged_kv_cache_update",
    function="kv_cache_update",
    call="existing(new, slices, cache, count, page_size=32, num_slices_per_block=4)",
)
_TPU_INFERENCE["ragged paged v2, cache update"] = _CACHE_ROWS
_TPU_INFERENCE["quantized matmul by blocks, fp8, own tiles"] = replace(
    _BY_BLOCKS,
    like="quantized-matmul-fp8",
    imports=(_JNP, "from tpu_inference.kernels.quantized_matmul.tuned_block_sizes import TunedValue"),
    before=(
        _BY_BLOCKS.before[0],
        _BY_BLOCKS.before[1].replace("block_size=256", "block_size=256, tuned_value=TunedValue(256, 512, 512, 1)"),
    ),
)
_DEEPSEEK = "tpu_inference.kernels.experimental.deepseek_v4"
_TPU_INFERENCE |= {
    "hyper-connections before": Contest(
        like="hyper-mixes", module=f"{_DEEPSEEK}.mhc.pre_kernel", function="mhc_pre_mixes", call="existing(x, f)"
    ),
    "hyper-connections behind": Contest(
        like="hyper-streams",
        module=f"{_DEEPSEEK}.mhc.post_kernel",
        function="mhc_post_2d",
        call="existing(x, r, post, comb)",
    ),
    "rope of a norm": Contest(
        like="norm-rope", module=f"{_DEEPSEEK}.rope", function="qnorm_rope", call="existing(x, at, c)"
    ),
    "rope": Contest(
        like="norm-rope",
        settings={"NORM": False, "TOKENS": 1024},
        module=f"{_DEEPSEEK}.rope",
        function="rope",
        call="existing(x, at, c)",
    ),
}

_EJ = "ejkernel.kernels._pallas.tpu"


def _ej(kernel: str, like: str, settings: dict[str, Any], call: str, **more: Any) -> Contest:
    return Contest(like=like, settings=settings, module=f"{_EJ}.{kernel}", function=kernel, call=call, **more)


_TURNED = "q, k, v = (x.swapaxes(0, 1)[None] for x in (q, k, v))"
_TURNED_BACK = "existing(q, k, v, causal=True)[0].swapaxes(0, 1)"
_EJ_V2 = _ej(
    "ragged_page_attention_v2",
    "ragged-paged-attention",
    _TOKENS,
    f"existing({', '.join(_RAGGED)}, softmax_scale={_SCALE!r}, vmem_limit_bytes=32 << 20)",
)
_EJ_V3 = _packed_rows(f"{_EJ}.ragged_page_attention_v3", "ragged_page_attention_v3", f"softmax_scale={_SCALE!r}")
# Keys and values [sequences, keys, heads, head_dim] of pages that XLA gathers.
_GATHERED = (
    "k, v = (x[:, page_indices].reshape(len(x), len(q), -1, x.shape[-1]) for x in (k_pages, v_pages))",
    "k, v = (x.transpose(1, 2, 0, 3) for x in (k, v))",
)
_EJKERNEL: dict[str, Contest] = {
    "flash causal": _ej("flash_attention", "attention-causal", _CAUSAL, _TURNED_BACK, before=(_TURNED,)),
    "block-sparse causal": _ej(
        "blocksparse_attention", "attention-causal", _CAUSAL, "existing(q[None], k[None], v[None], causal=True)[0]"
    ),
    "ring on one device": _ej(
        "ring_attention", "attention-causal", _CAUSAL, f"{_TURNED_BACK}.astype(v.dtype)", before=(_TURNED,)
    ),
    "ragged paged v2, decode": _EJ_V2,
    "ragged paged v2, mixed": _EJ_V2,
    "ragged paged v3, decode": _EJ_V3,
    "ragged paged v3, mixed": _EJ_V3,
    "paged": _ej("page_attention", "paged-attention", _PAGES, "existing(q, k_pages, v_pages, lengths, page_indices)"),
    "paged prefill": _ej(
        "prefill_page_attention",
        "ragged-paged-attention",
        _TOKENS | {"SEQUENCES": 1},
        "existing(q, heads[0::2], heads[1::2], kv_lens, page_indices[0])",
        before=("heads = kv_pages.transpose(2, 0, 1, 3)",),
    ),
    "ragged decode": _ej(
        "ragged_decode_attention",
        "paged-attention",
        _WHOLE,
        "existing(q, k, v, jnp.zeros_like(lengths), lengths).astype(q.dtype)",
        imports=(_JNP,),
        before=_GATHERED,
    ),
    # On v6e XLA hands a part of these kernels' tables to the SparseCore, so there is no latency.
    "grouped matmul": _grouped(f"{_EJ}.grouped_matmul", "grouped_matmul", chip="v5e"),
    "grouped matmul v2": _grouped(f"{_EJ}.grouped_matmulv2", "grouped_matmulv2", chip="v5e"),
    "grouped matmul v3": _grouped(f"{_EJ}.grouped_matmulv3", "grouped_matmulv3"),
    # The package's outer function also looks for each row's best word, in XLA.
    "cross-entropy": Contest(
        like="logits-cross-entropy",
        module=f"{_EJ}.fused_cross_entropy._pallas_impl_fwd",
        function="_fused_ce_loss_pallas",
        imports=(_JNP, f"from {_EJ}.fused_cross_entropy._pallas_impl_fwd import _default_block_m, _default_block_v"),
        before=("tokens, words = logits.shape", "blocks = _default_block_v(words), _default_block_m()"),
        call="existing(logits, labels, jnp.ones(tokens, jnp.float32), -100, 0.0, 0.0, *blocks)[:, None]",
    ),
    "divergence of logits": _ej(
        "fused_kl_divergence", "logits-divergence", {}, 'existing(student, teacher, reduction="none")[:, None]'
    ),
    "gated delta rule": _ej(
        "gated_delta_rule",
        "gated-delta",
        _DELTA | {"KIND": "gated delta rule"},
        "existing(*(x[None] for x in (q, k, v, b, g)), use_qk_l2norm=False)[0][0]",
    ),
}
_JAXITE = {
    "matmul of whole numbers": Contest(
        like="integer-matmul",
        module="jaxite.jaxite_lib.polymul_kernel",
        function="i32_matmul",
        imports=("import jax", _JNP),
        before=("a, b = (jax.lax.bitcast_convert_type(values, jnp.int32) for values in (a, b))",),
        call="existing(a, b)",
    ),
    "product of polynomials": Contest(
        like="polynomial-product",
        module="jaxite.jaxite_lib.polymul_kernel",
        function="negacyclic_vector_matrix_polymul",
        imports=("import jax", _JNP),
        before=("v, m = (jax.lax.bitcast_convert_type(values, jnp.uint32) for values in (v, m))",),
        call="existing(v, m)",
    ),
}


def _scan(**settings: bool) -> Contest:
    reverse = ", reverse=True" if settings else ""
    return Contest(
        like="linear-scan",
        settings=dict(settings),
        module="recurrentgemma.jax.pallas",
        function="lru_pallas_scan",
        call=f"existing(x[None], a[None]{reverse})[0][0]",
    )


def _deltanet(kind: str, function: str, gates: str) -> Contest:
    """Runs one chunk after the other, with products in float32: by default they are rounded to bfloat16."""
    arrays = ", ".join(f"{name}[None]" for name in f"qkv{gates}")
    return Contest(
        like="gated-delta",
        settings=_DELTA | {"KIND": kind},
        module="deltanet_tpu",
        function=function,
        call=f'existing({arrays}, is_inference=True, precision="fp32")[0]',
    )


_DELTANET = {
    "gated delta rule 2": _deltanet("gated delta rule 2", "chunk_gdn2", "gbw"),
    "gated delta rule": _deltanet("gated delta rule", "chunk_gdn", "gb"),
    "delta attention": _deltanet("delta attention", "chunk_kda", "gb"),
    "gated linear attention": _deltanet("gated linear attention", "chunk_gla", "g"),
    "delta rule": _deltanet("delta rule", "chunk_delta_rule", "b"),
}
_GDN2 = {
    "gated delta rule 2": Contest(
        like="gated-delta",
        settings=_DELTA | {"KIND": "gated delta rule 2"},
        module="atomic_ops.gdn2_fwd",
        function="gdn2_pallas_forward",
        call="existing(*(x[None] for x in (q, k, v, w, b, g)), scale=q.shape[-1] ** -0.5)[0][0].astype(q.dtype)",
    )
}
# Settings of a call in which some sequences have many tokens; by default each has one.
_PREFILLS = {"TOKENS": 256, "SEQUENCES": 8, "SLOTS": 9}
_POOL_SIZES = "n_kq=2, n_v=4, d_k=128, d_v=128"
_AS_ROWS = "states.reshape(len(qkv), -1)"


def _pool(module: str, function: str, arguments: str = "", **settings: Any) -> Contest:
    """A gated delta rule with a pool of states, called as servers call it."""
    return Contest(
        like="packed-delta",
        settings=settings,
        module=module,
        function=function,
        before=(f"states, o = existing(qkv, b, a, states, a_log, dt, starts, at, counts, {arguments}{_POOL_SIZES})",),
        call=f"o, {_AS_ROWS}",
    )


def _fused_pool(module: str, function: str, **settings: Any) -> Contest:
    """As `_pool`, with the convolution before it, which has its own states."""
    arrays = "qkv, b, a, tails, states, weights, bias, a_log, dt, starts, at, counts, lengths, at"
    return Contest(
        like="packed-delta",
        settings={"TAPS": 4, **settings},
        module=module,
        function=function,
        before=(
            "lengths = starts[1:] - starts[:-1] + has",
            f"(tails, states), o = existing({arrays}, {_POOL_SIZES}, kernel_size=4)",
        ),
        call=f"o, {_AS_ROWS}, tails.reshape(len(qkv), -1)",
    )


_GDN = "tpu_inference.kernels.gdn"
_DECODE_ONLY = "ragged_gated_delta_rule_decode_only"
_TPU_INFERENCE |= {
    "gated delta rule v1, decode": _pool(f"{_GDN}.v1.fused_gdn_decode_kernel", _DECODE_ONLY, "apply_silu=True, "),
    "gated delta rule v2, decode": _pool(f"{_GDN}.v2.gdn_decode_kernel", _DECODE_ONLY, "apply_silu=True, "),
    "gated delta rule v2, scan": _pool(
        f"{_GDN}.v2.recurrent_scan_v2", "recurrent_scan", "has_initial_state=has, ", **_PREFILLS
    ),
    "gated delta rule v3, fused": _fused_pool(f"{_GDN}.v3.wrapper", "fused_conv1d_gdn"),
}
_TPU_INFERENCE["causal convolution"] = Contest(
    like="ragged-convolution",
    module="tpu_inference.kernels.causal_conv1d.causal_conv1d",
    function="ragged_causal_conv1d",
    # On v6e XLA hands its copies to the SparseCore, which has no known latency.
    chip="v5e",
    before=("y, after = existing(x, states, w, b, starts, at, counts, has != 0, kernel_size=w.shape[-1])",),
    call="y, after.reshape(len(x), -1)",
)
# The package's outer function uses XLA's products if a sequence has more than one token.
_EJKERNEL["gated delta rule, ragged"] = Contest(
    like="packed-delta",
    settings={"GATES_AS_INPUTS": True, "KEY_HEADS": 4},
    module=f"{_EJ}.ragged_gated_delta_rule",
    function="ragged_gated_delta_rule_decode",
    before=(
        "heads = qkv.reshape(len(qkv), 12, -1)",
        "q, k, v = heads[:, :4], heads[:, 4:8], heads[:, 8:]",
        "o, states = existing(q, k, v, b, a, states, at, use_qk_l2norm=False)",
    ),
    call=f"o.reshape(len(qkv), -1), {_AS_ROWS}",
)
_RECURRENT = {"scan": _scan(), "scan, reversed": _scan(REVERSE=True)}

_PRODUCT = Contest(
    like="matmul",
    settings={"M": 512, "N": 512, "K": 512},
    module="pallas_forge",
    function="tiled_matmul",
    call="existing(a, b)",
)
_FORGE: dict[str, Contest] = {
    "matmul": _PRODUCT,
    "matmul, blocks of 512": replace(
        _PRODUCT,
        settings={"M": 1024, "N": 1024, "K": 1024},
        call="existing(a, b, block_m=512, block_k=512, block_n=512)",
    ),
    "geglu": Contest(like="geglu", module="pallas_forge", function="fused_geglu", call="existing(x, w_gate, w_up)"),
    "rmsnorm of a sum": Contest(
        like="rmsnorm",
        settings={"ROWS": 1024, "COLUMNS": 1024},
        module="pallas_forge",
        function="fused_rmsnorm_residual",
        call="existing(x, r, w)",
    ),
    "swiglu": Contest(
        like="swiglu",
        settings={"TOKENS": 256, "MODEL": 512, "HIDDEN": 512},
        module="pallas_forge",
        function="fused_swiglu",
        call="existing(x, w_gate, w_up)",
    ),
}
_FLYWHEEL_FLASH = Contest(
    like="attention-causal",
    settings=_CAUSAL | {"HEADS": 4, "KV_HEADS": 2},
    module="flywheel_tpu",
    function="flash_attn_func",
    call="existing(q[None], k[None], v[None], causal=True)[0]",
    assume="never",
)
_FLYWHEEL_PAGES = Contest(
    like="ragged-paged-attention",
    settings=_TOKENS | {"PAGE_SIZE": 128, "PAGES_PER_SEQUENCE": 6},
    module="flywheel_tpu",
    function="flash_attn_varlen_func",
    before=(
        "longest = page_indices.shape[1] * kv_pages.shape[1]",
        "tables = dict(block_table=page_indices, seqused_k=kv_lens, num_active=num_seqs[0])",
        "limits = dict(max_seqlen_q=len(q), max_seqlen_k=longest, causal=True)",
        "q = q.swapaxes(0, 1)",
    ),
    call="existing(q, kv_pages, None, cu_q_lens, None, **limits, **tables).swapaxes(0, 1)",
    assume="never",
)
_FLYWHEEL: dict[str, Contest] = {
    "flash causal": _FLYWHEEL_FLASH,
    "flash, window": replace(
        _FLYWHEEL_FLASH,
        settings=_FLYWHEEL_FLASH.settings | {"WINDOW": 512},
        call="existing(q[None], k[None], v[None], causal=True, window_size=(511, 0))[0]",
    ),
    "flash backward": Contest(
        like="attention-backward",
        settings={"HEADS": 2, "SEQUENCE": 1024, "CAUSAL": True},
        module="flywheel_tpu.pallas.flash_bwd",
        function="flash_attn_bwd",
        call=f"existing(q, k, v, o, lse, do, causal=True, softmax_scale={_SCALE!r})",
    ),
    "flash, packed": Contest(
        like="attention-packed",
        settings={"HEADS": 4, "KV_HEADS": 2, "SEQUENCE": 2048, "SEGMENTS": 4},
        module="flywheel_tpu",
        function="flash_attn_varlen_func",
        imports=(_JNP,),
        before=(
            "number = jnp.arange(5, dtype=jnp.int32)",
            "starts = jnp.sum(segment_ids[None] < number[:, None], axis=1, dtype=jnp.int32)",
        ),
        call="existing(q, k, v, starts, starts, q.shape[1], q.shape[1], causal=True)",
        assume="never",
    ),
    "flash over pages, decode": _FLYWHEEL_PAGES,
    "flash over pages, mixed": _FLYWHEEL_PAGES,
}
_DECIAX = {
    "flash": Contest(
        like="attention-gqa",
        settings={"BATCH": 2, "HEADS": 4, "KV_HEADS": 4, "SEQUENCE": 1024, "HEAD_DIM": 64},
        module="deciax.kernels.attention.pallas",
        function="flash_attention",
        imports=(_JNP,),
        before=(
            "batch, heads, sequence, d = q.shape",
            "rows = [x.swapaxes(1, 2).reshape(batch, sequence, heads * d) for x in (q, k, v)]",
            "mask = jnp.ones((batch, sequence), jnp.int32)",
            "o = existing(jnp.concatenate(rows, axis=-1), mask, heads=heads)",
        ),
        call="o.reshape(batch, sequence, heads, d).swapaxes(1, 2)",
    ),
    "flash, window": Contest(
        like="local-attention",
        module="deciax.kernels.attention.pallas",
        function="flash_attention",
        imports=(_JNP,),
        before=(
            "heads, sequence, d = q.shape",
            "rows = [x.swapaxes(0, 1).reshape(1, sequence, heads * d) for x in (q, k, v)]",
            "mask = jnp.ones((1, sequence), jnp.int32)",
            "o = existing(jnp.concatenate(rows, axis=-1), mask, heads=heads, window=64)",
        ),
        call="o.reshape(sequence, heads, d).swapaxes(0, 1)",
    ),
    "norm and product": Contest(
        like="norm-linear", module="deciax.kernels.fused", function="norm_linear", call="existing(x, g, b, 1e-5, w, c)"
    ),
    "product and gated unit": Contest(
        like="gated-mlp",
        module="deciax.kernels.fused",
        function="out_mlp",
        call='existing(a, x, wo, bo, g, b, 1e-5, wi, bi, wd, bd, act="gated_gelu")',
    ),
}
_SGLANG = {"grouped matmul": _grouped("sgl_jax.srt.layers.gmm.megablox_gmm_kernel.gmm", "gmm", chip="v5e")}


def _maxtext_decode(function: str, kv_heads: int) -> Contest:
    return Contest(
        like="paged-attention",
        settings=_WHOLE | {"KV_HEADS": kv_heads},
        module="maxtext.kernels.attention.ragged_attention",
        function=function,
        # The kernel has no scale of its own, and leaves the division by its sums to the caller.
        before=(*_GATHERED, f"o, _, sums = existing((q * {_SCALE!r}).astype(q.dtype)[:, None], k, v, lengths)"),
        call="(o / sums).reshape(q.shape).astype(q.dtype)",
    )


_MEGABLOX = "maxtext.kernels.megablox.pallas_mosaic_tpu_v2"
_MAXTEXT = {
    "ragged decode": _maxtext_decode("ragged_mha", _HEADS),
    "ragged decode, grouped heads": _maxtext_decode("ragged_gqa", _KV_HEADS),
    "grouped matmul": _grouped(f"{_MEGABLOX}_gmm_kernel", "gmm_v2"),
    "scores of an index": Contest(
        like="index-scores",
        module="maxtext.kernels.attention.csa_streamindex",
        function="csa_streamindex_score",
        call="existing(q[None], k[None], w[None], 0.088, 64, 256)[0]",
    ),
    "hyper-connections behind": Contest(
        like="hyper-streams",
        module="maxtext.kernels.mhc.mhc_kernels_fwd",
        function="post",
        imports=("from maxtext.kernels.mhc.common import MhcKernelConfig",),
        before=(
            "streams = r.reshape(1, len(x), post.shape[1], x.shape[1])",
            "context = streams, post[None], comb[None]",
            "config = MhcKernelConfig(vmem_limit_bytes=48 << 20)",
        ),
        call="existing(x[None], context, config).reshape(r.shape)",
    ),
    "grouped matmul transposed": replace(
        _grouped(f"{_MEGABLOX}_tgmm_kernel", "tgmm_v2", "len(group_sizes), preferred_element_type=lhs.dtype"),
        like="grouped-matmul-transposed",
    ),
}
CONTESTS: dict[str, dict[str, Contest]] = {
    "tpu-inference": _TPU_INFERENCE,
    "ejkernel": _EJKERNEL,
    "pallas-forge": _FORGE,
    "flywheel-tpu": _FLYWHEEL,
    "deciax": _DECIAX,
    "sglang-jax": _SGLANG,
    "maxtext": _MAXTEXT,
    "jaxite": _JAXITE,
    "recurrentgemma": _RECURRENT,
    "deltanet-tpu": _DELTANET,
    "gdn2-pallas": _GDN2,
}
# Keys and values of a head lie beside each other in its cache.
CONTESTS["flywheel-tpu"]["cache update"] = Contest(
    like="cache-rows",
    settings=_ROWS,
    module="flywheel_tpu.pallas.kv_cache_write",
    function="write_kv_cache_pages",
    before=("pages = cache.reshape(-1, 32, *cache.shape[1:])",),
    call="existing(new[:, 0::2], new[:, 1::2], pages, slices, count).reshape(cache.shape)",
)
_LINEAR = "flywheel_tpu.linear_attention"
CONTESTS["flywheel-tpu"] |= {
    "gated delta rule, decode": _fused_pool(f"{_LINEAR}.gdn.wrapper", "fused_conv1d_gdn"),
    "gated delta rule, mixed": _fused_pool(f"{_LINEAR}.gdn.wrapper", "fused_conv1d_gdn", **_PREFILLS),
    "delta attention, decode": _fused_pool(f"{_LINEAR}.kda.wrapper", "fused_conv1d_kda", WIDE=True),
    "delta attention, mixed": _fused_pool(f"{_LINEAR}.kda.wrapper", "fused_conv1d_kda", WIDE=True, **_PREFILLS),
}
_LATENT = "lens, at, starts, counts"
_LATENT_SIZES = {"LATENT": 256, "PAGES": 128, "PAGE_SIZE": 32, "PAGES_PER_SEQUENCE": 6}
_EJ_LATENT = Contest(
    like="latent-attention",
    settings=_LATENT_SIZES,
    module="ejkernel.kernels._pallas.tpu.multi_latent_ragged_page_attention",
    function="multi_latent_ragged_page_attention",
    call=f"existing(q, q_rope, latents, rotary, cache, {_LATENT}, softmax_scale=0.1, num_kv_pages_per_block=2, "
    "num_queries_per_block=4)",
)
CONTESTS["ejkernel"] |= {
    "latent ragged paged": _EJ_LATENT,
    "latent ragged paged v2": replace(
        _EJ_LATENT,
        settings=_LATENT_SIZES | {"LENGTHS_OF": 2},
        module=f"{_EJ_LATENT.module}_v2",
        function=f"{_EJ_LATENT.function}_v2",
        call=f"existing(q, q_rope, latents, rotary, cache, {_LATENT}, softmax_scale=0.1)",
    ),
}
CONTESTS["tpu-inference"]["latent attention v2"] = Contest(
    like="latent-attention",
    settings=_LATENT_SIZES | {"HEADS_FIRST": True, "LENGTHS_OF": 2},
    module="tpu_inference.kernels.mla.v2.kernel",
    function="mla_ragged_paged_attention",
    call=f"existing(q, q_rope, latents, rotary, cache, {_LATENT}, sm_scale=0.1, num_kv_pages_per_block=2, "
    "num_queries_per_block=(1, 8, 8))",
)
