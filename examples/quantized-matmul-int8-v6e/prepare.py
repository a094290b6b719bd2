"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "quantized_matmul"  # C [M, N] = A [M, K] Q [K, N] * scales [1, N] * row_scales [M, 1]
M = 1024
N = 4096
K = 14336
DTYPE = "bfloat16"  # of C
ACTIVATIONS = "int8"  # of A; Q is int8 too
CHIP = "v6e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import QuantizedMatmul

    return QuantizedMatmul(m=M, n=N, k=K, dtype=DTYPE, activations=ACTIVATIONS)


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
