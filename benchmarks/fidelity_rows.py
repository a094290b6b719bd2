"""The rows for which tokamax publishes device times, the permitted use of each row, and its time if it may be read.

The times are the autotuning data that the tokamax package ships (Apache-2.0): a problem and a configuration of one
operation on one chip, and five samples of its device time. Nothing but the figures is kept here.
"""

import contextlib
import csv
import dataclasses
import functools
import hashlib
import importlib.util
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

DATA = Path(__file__).parent / "data"
ATTENTION = DATA / "measured_attention.tsv"
PREDICTIONS = DATA / "fidelity_predictions.tsv"
FIGURES = DATA / "fidelity_rows.tsv"
CHIPS = {"tpu_v5_lite": "v5e", "tpu_v5": "v5p", "tpu_v6_lite": "v6e", "tpu7x": "v7x"}
# File names of one operation each, and the operation's class under tokamax._src.ops.
OPERATIONS = {
    "pallas_mosaic_tpu_flash_attention": "attention.pallas_mosaic_tpu.PallasMosaicTpuFlashAttention",
    "pallas_mosaic_tpu_flash_attention_vjp": "attention.pallas_mosaic_tpu_vjp.PallasMosaicTpuFlashAttentionVjp",
    "pallas_mosaic_tpu_splash_attention": (
        "experimental.tpu.splash_attention.pallas_mosaic_tpu.PallasMosaicTpuSplashAttention"
    ),
    "pallas_mosaic_tpu_splash_attention_vjp": (
        "experimental.tpu.splash_attention.pallas_mosaic_tpu_vjp.PallasMosaicTpuSplashAttentionVjp"
    ),
    "pallas_mosaic_tpu_ragged_dot": "ragged_dot.pallas_mosaic_tpu.PallasMosaicTpuRaggedDot",
    "pallas_mosaic_tpu_v2_ragged_dot": "ragged_dot.pallas_mosaic_tpu_v2.PallasMosaicTpuV2RaggedDot",
    "pallas_mosaic_tpu_linear_softmax_cross_entropy_loss": (
        "linear_softmax_cross_entropy_loss.pallas_mosaic_tpu.PallasMosaicTpuLinearSoftmaxCrossEntropyLoss"
    ),
    "pallas_mosaic_tpu_linear_softmax_cross_entropy_loss_vjp": (
        "linear_softmax_cross_entropy_loss.pallas_mosaic_tpu.PallasMosaicTpuLinearSoftmaxCrossEntropyLossVjp"
    ),
    "pallas_tpu_deepseek_rope": "deepseek_rope.pallas_mosaic_tpu.PallasTpuDeepseekRope",
    "pallas_tpu_router_top_k": "router_topk.pallas_mosaic_tpu.PallasTpuRouterTopK",
    "pallas_tpu_mhc_pre": "mhc.pallas_mosaic_tpu.PallasTpuMhcPre",
    "pallas_tpu_mhc_post": "mhc.pallas_mosaic_tpu.PallasTpuMhcPost",
    "pallas_tpu_mhc_fused_post_pre": "mhc.pallas_mosaic_tpu.PallasTpuMhcFusedPostPre",
    "pallas_tpu_batched_rpa": "batched_rpa.pallas_mosaic_tpu.PallasTpuBatchedRpa",
    "pallas_tpu_grouped_lowrank_proj": "grouped_lowrank_proj.pallas_mosaic_tpu.PallasTpuGroupedLowrankProj",
    "pallas_tpu_dsv4_compressor": "dsv4_compressor.pallas_mosaic_tpu.PallasTpuDsv4Compressor",
    "normalization": "normalization.base.Normalization",
    "normalization_vjp": "normalization.base.NormalizationVjp",
    "gated_linear_unit": "gated_linear_unit.base.GatedLinearUnit",
    "chunked_xla_linear_softmax_cross_entropy_loss": (
        "linear_softmax_cross_entropy_loss.chunked_xla.ChunkedXlaLinearSoftmaxCrossEntropyLoss"
    ),
    "triangle_multiplication": "triangle_multiplication.base.TriangleMultiplication",
}
_FLASH = "pallas_mosaic_tpu_flash_attention"
_GATED = "gated_linear_unit"
_CHUNKED = "chunked_xla_linear_softmax_cross_entropy_loss"
_LAYOUT_DIGITS = ("q_layout", "k_layout", "v_layout")

Purpose = Literal["fit", "validation", "untouched"]
_STRICTNESS: tuple[Purpose, ...] = ("fit", "validation", "untouched")
# Problems that differ only in these fields, or in what follows from them, compile to nearly the same program: they are
# twins. `out` and `dout` of a loss follow from its reduction.
_VARIANTS = frozenset({"reduction", "return_residuals", "residuals", "out", "dout", "group_sizes"})
# Rows read for a calibration before twins were grouped, without a prediction: they no longer validate anything.
_READ_EARLY = (
    "v6e-chunked_xla_linear_softmax_cross_entropy_loss-1a0fe5ab26",
    "v6e-pallas_mosaic_tpu_linear_softmax_cross_entropy_loss_vjp-d514d01f88",
    "v6e-pallas_mosaic_tpu_ragged_dot-071f2b6d8d",
    "v6e-pallas_mosaic_tpu_ragged_dot-14f441fd38",
    "v6e-pallas_mosaic_tpu_v2_ragged_dot-500b60cf46",
    "v6e-triangle_multiplication-0435d8dbc8",
    "v6e-triangle_multiplication-5141304356",
    "v6e-triangle_multiplication-51a2c0f511",
)
# The number of the simulator whose predictions are written down, by chip. It grows by one when a constant or rule that
# moves the chip's times has changed since rows were read. Predictions of an earlier simulator validated only that
# simulator.
MODELS = {"v5e": 4, "v5p": 5, "v6e": 5, "v7x": 4}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published problem and configuration, without its times. `key` and `config` are as the file has them."""

    chip_dir: str
    operation: str
    key: str
    config: str

    @property
    def chip(self) -> str:
        """The chip's name in this project."""
        return CHIPS[self.chip_dir]

    @property
    def name(self) -> str:
        """The row's name in caches and tables: chip, operation and a hash of problem and configuration."""
        digest = hashlib.sha256(f"{self.key}\n{self.config}".encode()).hexdigest()[:10]
        return f"{self.chip}-{self.operation}-{digest}"

    @property
    def cost(self) -> int:
        """The approximate amount of unrolled code of the row's kernel, from its blocks; compile time grows with it.

        0 if nothing is known.
        """
        config = json.loads(self.config)
        if "block_kv_compute" in config:
            return int(config["block_q"] * config["block_kv_compute"] * _turns(config, ""))
        if "block_kv_dkv_compute" in config:
            return int(config["block_q_dkv"] * config["block_kv_dkv_compute"] * _turns(config, "_dkv"))
        if "h_block_size" in config:
            return int(config["b_block_size"] * config["v_block_size"] * config["h_block_size"] // 256)
        return 0

    @property
    def purpose(self) -> Purpose:
        """The use that the row may have: the strictest of those given by the digits of its problem and of its twins.

        The attention rows that were published here before are for fitting, whatever their twins are. Rows of
        `_READ_EARLY` are not used.
        """
        if self.operation == _FLASH and (
            _identity(json.loads(self.key), json.loads(self.config), self.chip_dir) in _known_attention()
        ):
            return "fit"
        if self.name in _READ_EARLY:
            return "untouched"
        twins = _twins().get((self.operation, _without_variants(self.key)), frozenset())
        return max((_by_digit(self.operation, self.key), *twins), key=_STRICTNESS.index)

    @property
    def is_compiled_otherwise(self) -> bool:
        """True if today's compiler is known to compile the row to another program than the measured one.

        For chunked cross-entropy with residuals the compiler makes two loops, one for the loss and one for the
        residuals, each with all the matmuls; the published times are those without residuals. For gated linear units of
        bfloat16, libtpu 0.0.50.1 writes the product twice, as bfloat16 and as float32, and 0.0.42.1 writes it once: on
        v5p, even at the specified bandwidth, the bytes of either program take longer than the published time. Both
        compile float32 units alike.
        """
        key = json.loads(self.key)
        if self.operation == _GATED:
            return bool(key["x"].startswith("bf16"))
        return self.operation == _CHUNKED and bool(key["return_residuals"])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The published time of a row: the median of its samples; `spread` is (maximum - minimum) / median."""

    seconds: float
    spread: float


def rows(*, chip: str = "", operation: str = "") -> Iterator[Row]:
    """All published rows of OPERATIONS, without their times; only those of `chip` and `operation` if given."""
    for chip_dir, name in CHIPS.items():
        for stem in OPERATIONS:
            if chip in ("", name) and operation in ("", stem):
                for key, configs in _file(chip_dir, stem).items():
                    for config in configs:
                        yield Row(chip_dir=chip_dir, operation=stem, key=key, config=config)


def _by_digit(operation: str, key: str) -> Purpose:
    """The purpose by the first hexadecimal digit of a problem's hash; flash attention is fitted only with digit 1."""
    digit = hashlib.sha256(key.encode()).hexdigest()[0]
    if digit in "ace3":
        return "validation"
    return "fit" if digit in ("1" if operation == _FLASH else "024681") else "untouched"


def _without_variants(key: str) -> str:
    fields = sorted((name, value) for name, value in json.loads(key).items() if name not in _VARIANTS)
    return json.dumps(fields)


@functools.cache
def _twins() -> dict[tuple[str, str], frozenset[Purpose]]:
    """The purposes given by the digits of all published problems, by operation and problem without its variants."""
    purposes_by_place: dict[tuple[str, str], set[Purpose]] = {}
    # Without the package there are no problems, and no times that could be read.
    with contextlib.suppress(ModuleNotFoundError):
        for row in rows():
            place = row.operation, _without_variants(row.key)
            purposes_by_place.setdefault(place, set()).add(_by_digit(row.operation, row.key))
    return {place: frozenset(purposes) for place, purposes in purposes_by_place.items()}


def table(path: Path) -> list[dict[str, str]]:
    """The lines of a file with tabs by the names in its head; lines that begin with # are remarks."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


@functools.cache
def read_before() -> dict[str, str]:
    """The purpose of each row whose published time was read already: such a row never counts as unread again."""
    return {line["row"]: line["purpose"] for line in table(FIGURES)}


def use_of(row: Row) -> Purpose:
    """The use of the row: `fit` or validation by its purpose when it was read, or its purpose now if it is unread."""
    before = read_before().get(row.name)
    if before is None:
        return row.purpose
    return "fit" if before == "fit" else "validation"


def may_be_read(row: Row) -> bool:
    """Returns True if the published time of the row may be read (`measured` has the rule)."""
    return row.purpose == "fit" or row.name in predicted() or row.name in read_before()


def measured(row: Row) -> Measured:
    """The published time. Raises PermissionError if the row's purpose forbids reading it.

    The time of a validation row may be read once its prediction has been written down (PREDICTIONS). The time of a row
    of the pages may be read again.
    """
    if not may_be_read(row):
        raise PermissionError(f"the time of {row.name} must not be read: {row.purpose}, and no prediction is on file")
    samples = _file(row.chip_dir, row.operation)[row.key][row.config]["evaluation_times_ms"]
    middle = statistics.median(samples)
    return Measured(seconds=middle * 1e-3, spread=(max(samples) - min(samples)) / middle)


def attention_rows() -> list[dict[str, str]]:
    """The attention rows that were published here first, with their times: all are for fitting."""
    return table(ATTENTION)


@functools.cache
def predicted() -> dict[str, tuple[float, int]]:
    """Seconds by row name, as predicted before validation rows' times were read, and by which simulator (MODELS)."""
    if not PREDICTIONS.exists():
        return {}
    return {line["row"]: (float(line["seconds"]), int(line["model"])) for line in table(PREDICTIONS)}


def shapes(row: Row) -> str:
    """The problem in short: its operands' types and shapes, and its options."""
    words = []
    for name, value in json.loads(row.key).items():
        if isinstance(value, str) and "[" in value:
            words.append(value)
        elif name in ("is_causal", "return_residuals") and value:
            words.append(name)
    return " ".join(words)


def _turns(config: dict[str, Any], suffix: str) -> int:
    return 2 if config[f"block_kv{suffix}"] > config[f"block_kv{suffix}_compute"] else 1


@functools.cache
def _file(chip_dir: str, operation: str) -> dict[str, dict[str, Any]]:
    # Locates the package without importing it, which would import all of jax.
    spec = importlib.util.find_spec("tokamax")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the published times come with the package tokamax, which is not installed")
    path = Path(spec.origin).parent / "data" / "autotuning" / chip_dir / f"{operation}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def _identity(key: dict[str, Any], config: dict[str, Any], chip_dir: str) -> tuple[object, ...]:
    """A problem and its configuration, in the form of a row of ATTENTION."""
    batch, length, heads, width = _shape(key["q"])
    return (
        chip_dir,
        batch,
        length,
        heads,
        _shape(key["k"])[2],
        width,
        _shape(key["v"])[3],
        int(key["mask"]["causal_mask"] is not None),
        int(key["return_residuals"]),
        config["block_q"],
        config["block_kv"],
        config["block_kv_compute"],
        "".join(str(config[name]) for name in _LAYOUT_DIGITS),
        int(config["use_experimental_scheduler"]),
    )


def _shape(text: str) -> tuple[int, ...]:
    shape = tuple(int(size) for size in text[text.index("[") + 1 : -1].split(","))
    return (1,) * (4 - len(shape)) + shape


@functools.cache
def _known_attention() -> frozenset[tuple[object, ...]]:
    names = ("B", "S", "Hq", "Hkv", "Dqk", "Dv", "causal", "residuals", "block_q", "block_kv", "block_kv_compute")
    return frozenset(
        (line["chip_dir"], *(int(line[name]) for name in names), line["layouts"], int(line["exp_sched"]))
        for line in attention_rows()
    )
