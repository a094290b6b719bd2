"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "cross_entropy"  # losses [TOKENS, 1] of logits X W [TOKENS, VOCABULARY], which stay on the chip
TOKENS = 2048
MODEL = 1152
VOCABULARY = 262144
DTYPE = "bfloat16"
CHIP = "v6e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import CrossEntropy

    return CrossEntropy(tokens=TOKENS, model=MODEL, vocabulary=VOCABULARY, dtype=DTYPE)


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
