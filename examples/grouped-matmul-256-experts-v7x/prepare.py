"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "grouped_matmul"  # OUT [M, N]: rows of LHS [M, K], sorted by group, times RHS [GROUPS, K, N] of their group
M = 32768
GROUPS = 256
K = 2048
N = 512
DTYPE = "bfloat16"
CHIP = "v7x"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import GroupedMatmul

    return GroupedMatmul(m=M, groups=GROUPS, k=K, n=N, dtype=DTYPE)


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
