"""The problems and contenders of peers.py, and every configuration that each contender gets."""

import itertools
from dataclasses import dataclass
from pathlib import Path

from fidelity_rows import CHIPS as PUBLISHED_CHIPS
from fidelity_rows import attention_rows

from harness.operators import Attention

ROOT = Path(__file__).parent.parent
HEAD_DIM = 128
CHIPS = ("v6e", "v5e", "v5p", "v7x")
PEERS = ("flash", "splash", "tokamax")
OURS = "ours"

# `block_q=2048 block_kv=1024 ...` in the order of the table that they come from.
Configuration = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Attention of q [heads, sequence, 128] over k, v [kv_heads, sequence, 128], bfloat16, scaled by 1/sqrt(128).

    Only the `kept` best configurations of the problem `ranked_by` are tried, or all configurations if `ranked_by` is
    empty.
    """

    name: str
    title: str
    heads: int = 1
    kv_heads: int = 1
    sequence: int = 16384
    causal: bool = False
    ranked_by: str = ""
    kept: int = 0

    @property
    def matmul_flops(self) -> int:
        """The useful FLOPs of one call: two matmuls over the pairs of query and key that are not masked."""
        return self.attention.work().matmul_flops

    @property
    def attention(self) -> Attention:
        """The problem as the judge's own class states it."""
        return Attention(
            heads=self.heads, kv_heads=self.kv_heads, sequence=self.sequence, head_dim=HEAD_DIM, causal=self.causal
        )

    @property
    def words(self) -> list[str]:
        """The problem as arguments for the compiling child."""
        fields = ("heads", "kv_heads", "sequence")
        return [*(f"{field}={getattr(self, field)}" for field in fields), f"causal={int(self.causal)}"]


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem(name="full", title="full, 1 head, sequence 16384"),
        Problem(name="causal", title="causal, 1 head, sequence 16384", causal=True, ranked_by="full", kept=4),
        Problem(
            name="grouped",
            title="full, 32 query heads over 8 key/value heads, sequence 4096",
            heads=32,
            kv_heads=8,
            sequence=4096,
            ranked_by="full",
            kept=4,
        ),
        Problem(name="full16", title="full, 16 heads, sequence 16384", heads=16, kv_heads=16, ranked_by="full", kept=1),
        Problem(
            name="causal16",
            title="causal, 16 heads, sequence 16384",
            heads=16,
            kv_heads=16,
            causal=True,
            ranked_by="causal",
            kept=1,
        ),
    )
}


def _product(**values: tuple[object, ...]) -> tuple[Configuration, ...]:
    """Every combination of the values."""
    return tuple(tuple(zip(values, map(str, chosen), strict=True)) for chosen in itertools.product(*values.values()))


def _blocks(names: tuple[str, ...], text: str, **more: tuple[object, ...]) -> tuple[Configuration, ...]:
    """`1024/2048/512 ...` as values of `names`, each with every combination of `more`."""
    block_configurations: list[Configuration] = []
    for word in text.split():
        block_values = tuple(zip(names, word.split("/"), strict=True))
        block_configurations += [block_values + rest for rest in _product(**more)]
    return tuple(block_configurations)


_FLASH = ("block_q", "block_k_major", "block_k")
_SPLASH = ("block_q", "block_kv", "block_kv_compute")

# The scale can be left to the kernel, which multiplies every score, or multiplied into the queries before it.
_FLASH_CONFIGURATIONS = _blocks(
    _FLASH,
    "1024/1024/1024 1024/2048/512 1024/2048/1024 2048/1024/512 2048/1024/1024 2048/2048/512 2048/2048/1024 "
    "1024/4096/1024 1024/4096/2048 1024/8192/1024 2048/2048/2048 2048/4096/1024 2048/8192/1024",
    scale=("outside",),
) + _blocks(
    _FLASH,
    "1024/1024/512 1024/1024/1024 1024/2048/256 1024/2048/512 1024/2048/1024 1024/2048/2048 1024/4096/512 "
    "1024/4096/1024 2048/1024/512 2048/1024/1024 2048/2048/256 2048/2048/512 2048/2048/1024 2048/2048/2048 "
    "2048/4096/512 2048/4096/1024 512/1024/1024 512/2048/512 512/2048/1024 512/2048/2048 512/4096/1024 "
    "4096/1024/512 4096/2048/256 4096/2048/512 256/4096/2048",
    scale=("inside",),
)
# layouts: of q, k and v; 1 is head_dim minor, 2 is sequence minor.
_SPLASH_CONFIGURATIONS = _blocks(
    _SPLASH,
    "1024/1024/256 1024/1024/512 1024/1024/1024 1024/2048/256 1024/2048/512 1024/2048/1024 1024/4096/512 "
    "2048/1024/256 2048/1024/512 2048/1024/1024 2048/2048/256 2048/2048/512 2048/2048/1024 2048/4096/256 "
    "2048/4096/512 2048/4096/1024 512/2048/512 1024/4096/1024 2048/4096/2048 2048/8192/1024 4096/1024/1024 "
    "4096/2048/1024 4096/2048/2048 4096/4096/512 4096/4096/1024",
    layouts=("111",),
) + _blocks(_SPLASH, "1024/1024/512 1024/2048/512 2048/2048/256 2048/2048/512", layouts=("121", "211"))
_TOKAMAX_CONFIGURATIONS = (
    _blocks(
        _SPLASH,
        "1024/2048/512 2048/2048/256 2048/2048/512 2048/4096/512 2048/4096/1024",
        layouts=("111", "121"),
        exp_sched=("0", "1"),
    )
    + _blocks(
        _SPLASH,
        "1024/1024/512 1024/4096/256 2048/2048/128 2048/2048/1024 4096/2048/256 4096/4096/256 4096/4096/512 "
        "4096/2048/512 2048/8192/512",
        layouts=("121",),
        exp_sched=("1",),
    )
    + _blocks(
        _SPLASH,
        "1024/4096/512 1024/8192/512 2048/8192/512 4096/2048/512 4096/4096/512",
        layouts=("111",),
        exp_sched=("1",),
    )
)

# The values to try of each constant of our kernels: few, because the loop tuned them on one chip.
_OURS_CONFIGURATIONS: dict[str, tuple[Configuration, ...]] = {
    "examples/attention-v6e/kernel.py": _product(BQ=(2048, 4096), BKV=(2048, 4096)),
    "examples/attention-causal-v6e/kernel.py": _product(BLOCK=(1024, 2048), TQ=(256, 512)),
    "examples/attention-gqa-v6e/kernel.py": _product(BQ=(1024, 2048), TQ=(256, 512)),
    "kernel.py": _product(BQ=(2048, 4096), BKV=(2048, 4096)),
    "examples/attention-causal/kernel.py": _product(BLOCK=(2048,), DIAGONAL_Q=(256, 512)),
    "examples/attention-gqa/kernel.py": _product(BQ=(512, 1024)),
}
# By whether the matrix units are 256 wide.
_OURS = {
    (True, "full"): "examples/attention-v6e/kernel.py",
    (True, "causal"): "examples/attention-causal-v6e/kernel.py",
    (True, "grouped"): "examples/attention-gqa-v6e/kernel.py",
    (False, "full"): "kernel.py",
    (False, "causal"): "examples/attention-causal/kernel.py",
    (False, "grouped"): "examples/attention-gqa/kernel.py",
}
_WIDE = ("v6e", "v7x")


def our_kernel(problem: Problem, chip: str) -> str:
    """The path, within the repository, of our champion for this problem on this chip."""
    return _OURS[chip in _WIDE, problem.name.removesuffix("16")]


def winners() -> tuple[Configuration, ...]:
    """tokamax's published winners on kernels like these: head_dim 128, sequences of 4096 and more, any chip."""
    chosen = [row for row in attention_rows() if row["Dqk"] == row["Dv"] == str(HEAD_DIM) and int(row["S"]) >= 4096]
    return tuple(dict.fromkeys(_of_row(row) for row in chosen))


def _of_row(row: dict[str, str]) -> Configuration:
    return tuple((name, row[name]) for name in (*_SPLASH, "layouts", "exp_sched"))


def published(problem: Problem, chip: str) -> dict[str, str] | None:
    """The published device time of tokamax's kernel on just this problem; None if there is none."""
    for row in attention_rows():
        shape = (row["B"], row["S"], row["Hq"], row["Hkv"], row["Dqk"], row["Dv"], row["causal"])
        mine = (1, problem.sequence, problem.heads, problem.kv_heads, HEAD_DIM, HEAD_DIM, int(problem.causal))
        if PUBLISHED_CHIPS[row["chip_dir"]] == chip and shape == tuple(map(str, mine)):
            return row
    return None


def published_configuration(problem: Problem, chip: str) -> Configuration | None:
    """The configuration of the published time."""
    row = published(problem, chip)
    return None if row is None else _of_row(row)


def _without(name: str, configurations: tuple[Configuration, ...]) -> tuple[Configuration, ...]:
    return tuple(tuple(pair for pair in each if pair[0] != name) for each in configurations)


# On v6e every configuration is tried, on the others enough for a fair comparison.
_THOROUGH = "v6e"
_FEWEST = 24


def configurations(contender: str, problem: Problem, chip: str) -> tuple[Configuration, ...]:
    """The configurations that `contender` may choose from on `chip`, before any time is known."""
    if contender == OURS:
        return _OURS_CONFIGURATIONS[our_kernel(problem, chip)]
    contender_configurations = {
        "flash": _FLASH_CONFIGURATIONS,
        "splash": _SPLASH_CONFIGURATIONS + _without("exp_sched", winners()),
        "tokamax": _TOKAMAX_CONFIGURATIONS + winners(),
    }[contender]
    # Published winners stand last in the lists, and are never left out.
    distinct = tuple(
        dict.fromkeys(
            (*contender_configurations[-len(winners()) :], *contender_configurations)
            if contender != "flash"
            else contender_configurations
        )
    )
    return distinct if chip == _THOROUGH else distinct[:_FEWEST]


def fits(configuration: Configuration, problem: Problem) -> bool:
    """True if the configuration's blocks divide the problem's sequence."""
    return all(problem.sequence % int(value) == 0 for name, value in configuration if name.startswith("block_"))


# Besides the best of the ranking: small blocks hide more of a causal mask, and a short sequence fits into one block.
_MORE = {
    ("flash", "causal"): _blocks(
        _FLASH, "1024/1024/512 1024/1024/1024 1024/2048/1024 2048/2048/1024", scale=("outside",)
    ),
    ("flash", "grouped"): _blocks(_FLASH, "256/4096/4096 512/4096/4096", scale=("outside",)),
    ("splash", "causal"): _blocks(
        _SPLASH, "1024/1024/512 1024/1024/1024 2048/2048/512 2048/2048/1024", layouts=("111",)
    ),
    ("splash", "grouped"): _blocks(_SPLASH, "1024/4096/512 1024/4096/1024", layouts=("121",)),
    ("tokamax", "causal"): _blocks(_SPLASH, "1024/1024/512 2048/2048/512", layouts=("121", "211"), exp_sched=("1",))
    + _blocks(_SPLASH, "1024/1024/1024", layouts=("121",), exp_sched=("1",), diagonal=("2", "4")),
    ("tokamax", "grouped"): _blocks(_SPLASH, "1024/4096/256 1024/4096/512", layouts=("121",), exp_sched=("1",)),
}


def additional(contender: str, problem: Problem, chip: str) -> tuple[Configuration, ...]:
    """The configurations that a contender gets at this problem besides the best of the ranking."""
    more = _MORE.get((contender, problem.name), ())
    row = published_configuration(problem, chip) if contender == "tokamax" else None
    return more if row is None else (*more, row)


# The aim for the ratio of our time to the best peer's, by chip and problem.
AIMS = {
    ("v6e", "full"): 0.85,
    ("v6e", "causal"): 0.75,
    ("v6e", "grouped"): 0.85,
    ("v5e", "full"): 0.97,
    ("v5e", "causal"): 0.84,
    ("v7x", "full16"): 0.88,
    ("v7x", "causal16"): 0.80,
    ("v5p", "full16"): 0.88,
    ("v5p", "causal16"): 0.80,
}
# The same for champions of other operators, by the contest's folder; None if there is no aim.
OPERATOR_AIMS: dict[str, float | None] = {
    "examples/attention-backward": None,
    "examples/attention-backward-causal-v6e": 0.85,
    "examples/attention-backward-gemma-v6e": None,
    "examples/attention-backward-llama-v6e": None,
    "examples/attention-gemma-v6e": 0.90,
    "examples/attention-llama-70b-v7x": 0.90,
    "examples/attention-llama-v6e": 0.90,
    "examples/attention-qwen3-v6e": 0.90,
    "examples/grouped-matmul": None,
    "examples/grouped-matmul-256-experts-v7x": 0.90,
    "examples/grouped-matmul-experts-v6e": 0.92,
    "examples/grouped-matmul-transposed": None,
    "examples/matmul": 1.00,
    "examples/paged-decode-v6e": 0.80,
    "examples/quantized-matmul": None,
    "examples/quantized-matmul-fp8-v7x": 0.90,
    "examples/quantized-matmul-int8-v6e": 1.00,
    "examples/ragged-paged-mixed-v6e": None,
    "examples/rmsnorm": 0.97,
    "examples/rmsnorm-v6e": None,
    "examples/rmsnorm-v7x": None,
    "examples/swiglu": 0.95,
    "examples/swiglu-v6e": None,
    "examples/swiglu-v7x": None,
}
