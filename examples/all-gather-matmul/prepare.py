"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "all_gather_matmul"  # C [M, N] = A [M, K] B [K, N]: A's rows, B's and C's columns are split over the chips
M = 2048
N = 4096
K = 4096
DTYPE = "bfloat16"
CHIP = "v5e"
CHIPS = 4  # in a mesh with the axis "x"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import AllGatherMatmul

    return AllGatherMatmul(m=M, n=N, k=K, dtype=DTYPE, chips=CHIPS)


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
