"""A repository of its own for each planted kernel: a copy of the judge, and a small contest with the kernel."""

import shutil
from pathlib import Path

from git import Repo

from harness.loop import scaffold
from harness.records.selftest import Planted

# 512 keys in blocks of 128 are four grid steps along each axis, and two at the reduced shape: enough for all planted
# bugs to show. With blocks of 128 x 128, interpreting a step takes milliseconds.
_SETTINGS = {
    "plain": (("SEQUENCE", "512"),),
    "v6e": (("SEQUENCE", "512"), ("CHIP", '"v6e"')),
    # Two heads of queries read the same keys and values.
    "gqa": (("SEQUENCE", "512"), ("HEADS", "2")),
    "causal": (("SEQUENCE", "512"), ("HEADS", "2"), ("KV_HEADS", "2"), ("CAUSAL", "True")),
    "window": (("SEQUENCE", "512"), ("HEADS", "2"), ("WINDOW", "200"), ("SOFT_CAP", "50.0")),
    "packed": (("SEQUENCE", "512"), ("HEADS", "2"), ("SEGMENTS", "4")),
    # More sequences than a reduced shape has.
    "packed_many": (("SEQUENCE", "1024"), ("SEGMENTS", "8")),
    # A chip whose two cores split parallel axes.
    "v5p": (("SEQUENCE", "512"), ("CHIP", '"v5p"')),
    # A product of float32, where the precision of its passes shows.
    "float32": (("M", "512"), ("N", "512"), ("K", "512"), ("DTYPE", '"float32"')),
    "matmul": (("M", "512"), ("N", "512"), ("K", "512")),
    # Four chips, each with 128 rows of A and 256 columns of B.
    "gathered": (("M", "512"), ("N", "1024"), ("K", "512")),
    "reduced": (("M", "512"), ("N", "512"), ("K", "1024")),
    # Four chips, each with 128 rows; for "ring", 128 keys.
    "moved": (("ROWS", "512"), ("COLUMNS", "256")),
    "scattered": (("ROWS", "512"), ("COLUMNS", "256")),
    "summed": (("ROWS", "512"), ("COLUMNS", "256")),
    "ring": (("SEQUENCE", "512"),),
    "grouped": (("M", "512"), ("GROUPS", "4"), ("K", "512"), ("N", "512")),
    "grouped_many": (("M", "1024"), ("GROUPS", "8"), ("K", "512"), ("N", "512")),
    "transposed": (("M", "512"), ("GROUPS", "4"), ("K", "512"), ("N", "512")),
    "backward": (("HEADS", "2"), ("SEQUENCE", "512")),
    "backward_causal": (("HEADS", "2"), ("SEQUENCE", "512"), ("CAUSAL", "True")),
    # Enough heads read the same keys that the sum over them shows how it is rounded.
    "backward_shared": (("HEADS", "16"), ("KV_HEADS", "2"), ("SEQUENCE", "256")),
    "paged": (("SEQUENCES", "8"), ("PAGES", "60"), ("PAGES_PER_SEQUENCE", "8")),
    "ragged": (("TOKENS", "128"), ("SEQUENCES", "8"), ("PAGES", "60"), ("PAGES_PER_SEQUENCE", "8")),
    # A chip that adds in bfloat16, and a statement that lets a kernel do so.
    "ragged_narrow": (
        *(("TOKENS", "128"), ("SEQUENCES", "8"), ("PAGES", "60"), ("PAGES_PER_SEQUENCE", "8"), ("PAGE_SIZE", "128")),
        *(("SUMS", '"bfloat16"'), ("CHIP", '"v6e"')),
    ),
    "ragged_update": (("TOKENS", "128"), ("SEQUENCES", "8"), ("PAGES", "60"), ("PAGES_PER_SEQUENCE", "8")),
    "cached": (("TOKENS", "256"), ("HEADS", "2"), ("PAGES", "32"), ("PIECES", "16")),
    "latent": (("TOKENS", "12"), ("SEQUENCES", "8"), ("PAGES", "40"), ("PAGES_PER_SEQUENCE", "4"), ("LATENT", "256")),
    "delta": (("TIME", "256"), ("HEADS", "2")),
    # More steps than a decay of the usual size remembers.
    "delta_long": (("TIME", "512"), ("HEADS", "2")),
    "linear": (("TIME", "256"), ("HEADS", "2"), ("KIND", '"gated linear attention"')),
    "quantized": (("M", "512"), ("N", "512"), ("K", "512")),
    # The shape of examples/quantized-matmul: far more columns and terms than the others.
    "quantized_long": (("M", "512"), ("N", "4096"), ("K", "4096")),
    "int8": (("M", "512"), ("N", "512"), ("K", "512")),
    "fp8": (("M", "512"), ("N", "512"), ("K", "512")),
    "fp8_weights": (*(("M", "512"), ("N", "512"), ("K", "512")), ("WEIGHTS", '"float8_e4m3fn"'), ("CHIP", '"v6e"')),
    "rmsnorm": (("ROWS", "256"),),
    "top_k": (("ROWS", "512"),),
    # A lane holds more elements of a row than are chosen from the row.
    "top_k_wide": (("ROWS", "512"), ("COLUMNS", "1024")),
    # There are more steps of 16 rows than are interpreted if no late step can differ from the first.
    "rmsnorm_long": (("ROWS", "36864"), ("COLUMNS", "256"), ("RESIDUAL", "False")),
    # A chip that adds in bfloat16.
    "rmsnorm_v6e": (("ROWS", "256"), ("CHIP", '"v6e"')),
    # Two members: one has several blocks of queries and of keys, the other twice as many.
    "suite": (("SEQUENCES", "(512, 1024)"), ("WEIGHTS", "(1, 1)"), ("HEADS", "2"), ("KV_HEADS", "1")),
    "training": (("HEADS", "2"), ("SEQUENCE", "512")),
    "swiglu": (("TOKENS", "512"), ("MODEL", "512"), ("HIDDEN", "512")),
    "words": (("TOKENS", "512"), ("MODEL", "512"), ("VOCABULARY", "512")),
    # There are enough words for roundings to average out, and sums are long enough that only some rows are compared.
    "words_many": (("TOKENS", "512"), ("MODEL", "2048"), ("VOCABULARY", "16384")),
    # There are too many rows for all to be compared with float64.
    "plain_long": (("SEQUENCE", "3072"),),
    "backward_long": (("HEADS", "1"), ("SEQUENCE", "2048")),
    "matmul_long": (("M", "24576"), ("N", "512"), ("K", "512")),
    "grouped_long": (("M", "24576"), ("GROUPS", "4"), ("K", "512"), ("N", "512")),
    "swiglu_long": (("TOKENS", "8192"), ("MODEL", "512"), ("HIDDEN", "512")),
    "distances": (),
}
# The templates of contests that are not made from the template `attention`.
_TEMPLATES = {
    "window": "attention-causal",
    "packed": "attention-packed",
    "packed_many": "attention-packed",
    "float32": "matmul",
    "matmul": "matmul",
    "gathered": "all-gather-matmul",
    "reduced": "matmul-reduce-scatter",
    "moved": "all-gather",
    "scattered": "reduce-scatter",
    "summed": "all-reduce",
    "ring": "ring-attention",
    "quantized": "quantized-matmul",
    "quantized_long": "quantized-matmul",
    "int8": "quantized-matmul-int8",
    "fp8": "quantized-matmul-fp8",
    "fp8_weights": "quantized-matmul",
    "grouped": "grouped-matmul",
    "grouped_many": "grouped-matmul",
    "transposed": "grouped-matmul-transposed",
    "paged": "paged-attention",
    "cached": "cache-rows",
    "latent": "latent-attention",
    "delta": "gated-delta",
    "delta_long": "gated-delta",
    "linear": "gated-delta",
    "ragged": "ragged-paged-attention",
    "ragged_narrow": "ragged-paged-attention",
    "ragged_update": "ragged-paged-attention-update",
    "backward": "attention-backward",
    "backward_causal": "attention-backward",
    "backward_shared": "attention-backward",
    "rmsnorm": "rmsnorm",
    "rmsnorm_v6e": "rmsnorm",
    "rmsnorm_long": "rmsnorm",
    "backward_long": "attention-backward",
    "matmul_long": "matmul",
    "grouped_long": "grouped-matmul",
    "swiglu_long": "swiglu",
    "suite": "attention-suite",
    "training": "attention-training",
    "swiglu": "swiglu",
    "words": "cross-entropy",
    "words_many": "cross-entropy",
    "top_k": "top-k",
    "top_k_wide": "top-k",
    "distances": scaffold.FORMULA,
}
# Problems stated by a formula, in place of the template's problem.
_STATED = Path(__file__).parent / "candidates" / "contests"


def contest(name: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The template and the settings of the contest that planted kernels call `name`."""
    return _TEMPLATES.get(name, "attention"), _SETTINGS[name]


def make(folder: Path, planted: Planted, kernel: bytes, judge: Path) -> None:
    """Writes the repository into `folder`, which must not exist, and commits it.

    Its judge is a copy of the package `judge`, so a candidate can only damage the copy.
    """
    shutil.copytree(judge, folder / "harness")
    scaffold.scaffold(folder, *contest(planted.contest))
    stated = _STATED / f"{planted.contest}.py"
    if stated.exists():
        shutil.copyfile(stated, folder / "prepare.py")
    (folder / "kernel.py").write_bytes(kernel)
    with Repo.init(folder, initial_branch="main") as repository:
        with repository.config_writer() as settings:
            settings.set_value("user", "name", "selftest")
            settings.set_value("user", "email", "selftest@localhost")
            settings.set_value("commit", "gpgsign", "false")
        repository.git.add("--all")
        repository.git.commit("--quiet", "--no-verify", "--message", f"The contest that {planted.name} is planted in")
