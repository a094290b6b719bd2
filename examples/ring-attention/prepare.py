"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "ring_attention"  # q, k, v and o [HEADS, SEQUENCE, HEAD_DIM] are split over the chips along SEQUENCE
SEQUENCE = 8192
HEAD_DIM = 128
HEADS = 1
KV_HEADS = 1
DTYPE = "bfloat16"
CHIP = "v5e"
CHIPS = 4  # in a mesh with the axis "x"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import RingAttention

    return RingAttention(sequence=SEQUENCE, head_dim=HEAD_DIM, heads=HEADS, kv_heads=KV_HEADS, dtype=DTYPE, chips=CHIPS)


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
