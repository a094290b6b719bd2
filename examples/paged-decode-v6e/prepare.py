"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "paged_attention"  # one query of each of many sequences over keys and values in pages
HEADS = 8
KV_HEADS = 2
HEAD_DIM = 128
SEQUENCES = 64
PAGES = 5120
PAGE_SIZE = 64
PAGES_PER_SEQUENCE = 128
DTYPE = "bfloat16"
CHIP = "v6e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import PagedAttention

    return PagedAttention(
        heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        sequences=SEQUENCES,
        pages=PAGES,
        page_size=PAGE_SIZE,
        pages_per_sequence=PAGES_PER_SEQUENCE,
        dtype=DTYPE,
    )


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
