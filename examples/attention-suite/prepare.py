"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "attention"  # softmax(scale Q K^T) V of the keys up to each query, forward: the prefill of a language model
HEADS = 8  # one of four chips' share of 32 heads, with 8 of keys and values
KV_HEADS = 2
HEAD_DIM = 128
SEQUENCES = (1024, 2048, 4096)  # the lengths of prompts, each a member of the suite
WEIGHTS = (1, 2, 1)  # how often each comes
MAY_LOSE = 0.01  # no length may take more time than the champion by more than this share
DTYPE = "bfloat16"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import Attention, Member, Suite

    def prefill(sequence):
        return Attention(heads=HEADS, kv_heads=KV_HEADS, sequence=sequence, head_dim=HEAD_DIM, dtype=DTYPE, causal=True)

    return Suite(
        members=tuple(
            Member(name=f"prefill-{sequence}", problem=prefill(sequence), weight=weight)
            for sequence, weight in zip(SEQUENCES, WEIGHTS, strict=True)
        ),
        may_lose=MAY_LOSE,
    )


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
