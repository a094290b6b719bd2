"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "attention_backward"  # dq, dk, dv of softmax(Q K^T / sqrt(head_dim)) V, from q, k, v, o, lse and do
HEADS = 8
SEQUENCE = 4096
HEAD_DIM = 128
DTYPE = "bfloat16"
CAUSAL = True  # query i sees the keys 0 to i
CHIP = "v6e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import AttentionBackward

    return AttentionBackward(heads=HEADS, sequence=SEQUENCE, head_dim=HEAD_DIM, dtype=DTYPE, causal=CAUSAL)


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
