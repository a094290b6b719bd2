"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "attention"  # softmax(scale * Q K^T) V, forward
BATCH = 1
HEADS = 32
KV_HEADS = 4  # query head h reads key/value head h // 8
SEQUENCE = 8192
HEAD_DIM = 128
DTYPE = "bfloat16"
CAUSAL = True
SCALE = HEAD_DIM**-0.5  # of the softmax
CHIP = "v6e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import Attention

    return Attention(
        batch=BATCH,
        heads=HEADS,
        kv_heads=KV_HEADS,
        sequence=SEQUENCE,
        head_dim=HEAD_DIM,
        dtype=DTYPE,
        causal=CAUSAL,
        scale=SCALE,
    )


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
