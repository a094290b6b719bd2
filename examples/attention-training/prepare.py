"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "attention"  # causal, forward by kernel_fn and backward by backward_fn: what a training step does
HEADS = 2
SEQUENCE = 4096
HEAD_DIM = 128
CAUSAL = True
WEIGHTS = (2, 5)  # of forward and backward: the matrix products of each
MAY_LOSE = 0.01  # neither may take more time than the champion by more than this share
DTYPE = "bfloat16"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import Attention, AttentionBackward, Member, Suite

    shape = {"heads": HEADS, "sequence": SEQUENCE, "head_dim": HEAD_DIM, "dtype": DTYPE, "causal": CAUSAL}
    forward, backward = WEIGHTS
    return Suite(
        members=(
            Member(name="forward", problem=Attention(**shape), weight=forward),
            Member(name="backward", problem=AttentionBackward(**shape), weight=backward, function="backward_fn"),
        ),
        may_lose=MAY_LOSE,
    )


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
