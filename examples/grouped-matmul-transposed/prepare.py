"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "grouped_matmul_transposed"  # OUT [GROUPS, K, N]: rows of a group in LHS [M, K], transposed, by RHS [M, N]
M = 8192
GROUPS = 8
K = 2048
N = 2048
DTYPE = "bfloat16"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import GroupedMatmulTransposed

    return GroupedMatmulTransposed(m=M, groups=GROUPS, k=K, n=N, dtype=DTYPE)


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
