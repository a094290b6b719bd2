"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "rmsnorm"  # H = X + R, Y = H / sqrt(mean(H^2) + EPS) * W, over the last axis; Y and H are outputs
ROWS = 8192
COLUMNS = 8192
RESIDUAL = True  # False: no R and no H, Y is the norm of X
EPS = 1e-6
DTYPE = "bfloat16"
CHIP = "v7x"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import RMSNorm

    return RMSNorm(rows=ROWS, columns=COLUMNS, residual=RESIDUAL, eps=EPS, dtype=DTYPE)


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
