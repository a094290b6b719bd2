"""A separate repository for each planted kernel: a copy of the judge, and a small contest with the kernel."""

import shutil
from pathlib import Path

from git import Repo

from harness.loop import scaffold
from harness.records.selftest import Planted


def _like(template: str = "attention", **settings: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The template and the settings of a contest."""
    return template, tuple(settings.items())


# 512 keys in blocks of 128 are four grid steps along each axis, and two at the reduced shape: enough for all planted
# bugs to show. With blocks of 128 x 128, interpreting a step takes milliseconds.
_CONTESTS = {
    "plain": _like(SEQUENCE="512"),
    "v6e": _like(SEQUENCE="512", CHIP='"v6e"'),
    # Two heads of queries read the same keys and values.
    "gqa": _like(SEQUENCE="512", HEADS="2"),
    "causal": _like(SEQUENCE="512", HEADS="2", KV_HEADS="2", CAUSAL="True"),
    "window": _like("attention-causal", SEQUENCE="512", HEADS="2", WINDOW="200", SOFT_CAP="50.0"),
    "packed": _like("attention-packed", SEQUENCE="512", HEADS="2", SEGMENTS="4"),
    # More sequences than a reduced shape has.
    "packed_many": _like("attention-packed", SEQUENCE="1024", SEGMENTS="8"),
    # A chip whose two cores split parallel axes.
    "v5p": _like(SEQUENCE="512", CHIP='"v5p"'),
    # A product of float32, where the precision of its passes shows.
    "float32": _like("matmul", M="512", N="512", K="512", DTYPE='"float32"'),
    "matmul": _like("matmul", M="512", N="512", K="512"),
    # Four chips, each with 128 rows of A and 256 columns of B.
    "gathered": _like("all-gather-matmul", M="512", N="1024", K="512"),
    "reduced": _like("matmul-reduce-scatter", M="512", N="512", K="1024"),
    # Four chips, each with 128 rows; for "ring", 128 keys.
    "moved": _like("all-gather", ROWS="512", COLUMNS="256"),
    "scattered": _like("reduce-scatter", ROWS="512", COLUMNS="256"),
    "summed": _like("all-reduce", ROWS="512", COLUMNS="256"),
    "ring": _like("ring-attention", SEQUENCE="512"),
    "grouped": _like("grouped-matmul", M="512", GROUPS="4", K="512", N="512"),
    "grouped_many": _like("grouped-matmul", M="1024", GROUPS="8", K="512", N="512"),
    "transposed": _like("grouped-matmul-transposed", M="512", GROUPS="4", K="512", N="512"),
    "backward": _like("attention-backward", HEADS="2", SEQUENCE="512"),
    "backward_causal": _like("attention-backward", HEADS="2", SEQUENCE="512", CAUSAL="True"),
    # So many heads read the same keys that the rounding of the sum over them shows.
    "backward_shared": _like("attention-backward", HEADS="16", KV_HEADS="2", SEQUENCE="256"),
    "paged": _like("paged-attention", SEQUENCES="8", PAGES="60", PAGES_PER_SEQUENCE="8"),
    "ragged": _like("ragged-paged-attention", TOKENS="128", SEQUENCES="8", PAGES="60", PAGES_PER_SEQUENCE="8"),
    # A chip that adds in bfloat16, and a statement that lets a kernel do so.
    "ragged_narrow": _like(
        "ragged-paged-attention",
        TOKENS="128",
        SEQUENCES="8",
        PAGES="60",
        PAGES_PER_SEQUENCE="8",
        PAGE_SIZE="128",
        SUMS='"bfloat16"',
        CHIP='"v6e"',
    ),
    "ragged_update": _like(
        "ragged-paged-attention-update", TOKENS="128", SEQUENCES="8", PAGES="60", PAGES_PER_SEQUENCE="8"
    ),
    "cached": _like("cache-rows", TOKENS="256", HEADS="2", PAGES="32", PIECES="16"),
    "latent": _like("latent-attention", TOKENS="12", SEQUENCES="8", PAGES="40", PAGES_PER_SEQUENCE="4", LATENT="256"),
    "delta": _like("gated-delta", TIME="256", HEADS="2"),
    # More steps than a decay of the usual size remembers.
    "delta_long": _like("gated-delta", TIME="512", HEADS="2"),
    "linear": _like("gated-delta", TIME="256", HEADS="2", KIND='"gated linear attention"'),
    "quantized": _like("quantized-matmul", M="512", N="512", K="512"),
    # The shape of examples/quantized-matmul: far more columns and terms than the others.
    "quantized_long": _like("quantized-matmul", M="512", N="4096", K="4096"),
    "int8": _like("quantized-matmul-int8", M="512", N="512", K="512"),
    "fp8": _like("quantized-matmul-fp8", M="512", N="512", K="512"),
    "fp8_weights": _like("quantized-matmul", M="512", N="512", K="512", WEIGHTS='"float8_e4m3fn"', CHIP='"v6e"'),
    "rmsnorm": _like("rmsnorm", ROWS="256"),
    "top_k": _like("top-k", ROWS="512"),
    # A lane holds more elements of a row than are chosen from the row.
    "top_k_wide": _like("top-k", ROWS="512", COLUMNS="1024"),
    # More steps of 16 rows than the judge interprets if no late step can differ from the first.
    "rmsnorm_long": _like("rmsnorm", ROWS="36864", COLUMNS="256", RESIDUAL="False"),
    # A chip that adds in bfloat16.
    "rmsnorm_v6e": _like("rmsnorm", ROWS="256", CHIP='"v6e"'),
    # Two members: one has several blocks of queries and of keys, the other twice as many.
    "suite": _like("attention-suite", SEQUENCES="(512, 1024)", WEIGHTS="(1, 1)", HEADS="2", KV_HEADS="1"),
    "training": _like("attention-training", HEADS="2", SEQUENCE="512"),
    "swiglu": _like("swiglu", TOKENS="512", MODEL="512", HIDDEN="512"),
    "words": _like("cross-entropy", TOKENS="512", MODEL="512", VOCABULARY="512"),
    # There are enough words for roundings to average out, and sums are long enough that only some rows are compared.
    "words_many": _like("cross-entropy", TOKENS="512", MODEL="2048", VOCABULARY="16384"),
    # There are too many rows for all to be compared with float64.
    "plain_long": _like(SEQUENCE="3072"),
    "backward_long": _like("attention-backward", HEADS="1", SEQUENCE="2048"),
    "matmul_long": _like("matmul", M="24576", N="512", K="512"),
    "grouped_long": _like("grouped-matmul", M="24576", GROUPS="4", K="512", N="512"),
    "swiglu_long": _like("swiglu", TOKENS="8192", MODEL="512", HIDDEN="512"),
    "distances": _like(scaffold.FORMULA),
    "places": _like(scaffold.FORMULA),
    "first_largest": _like(scaffold.FORMULA),
    "group_sums": _like(scaffold.FORMULA),
}
# Problems stated by a formula, in place of the template's problem.
_STATED = Path(__file__).parent / "candidates" / "contests"


def contest(name: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The template and the settings of the contest that planted kernels call `name`."""
    return _CONTESTS[name]


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
