"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "swiglu"  # Y [TOKENS, HIDDEN] = silu(X Wg) * (X Wu)
TOKENS = 4096
MODEL = 4096
HIDDEN = 14336  # Llama 3.1 8B, on one chip
DOWN = False  # True: Y [TOKENS, MODEL] = (silu(X Wg) * (X Wu)) Wd
DTYPE = "bfloat16"
CHIP = "v6e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import SwiGLU

    return SwiGLU(tokens=TOKENS, model=MODEL, hidden=HIDDEN, down=DOWN, dtype=DTYPE)


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
