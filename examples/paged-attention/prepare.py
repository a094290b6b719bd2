"""The judge's front door: what this contest computes and on which chip, in plain constants.

`python prepare.py` judges kernel.py as it stands and records nothing.
`ratchet.sh "experiment: ..."` judges it against the champion and keeps it if it is faster.
"""

OPERATION = "paged_attention"  # causal attention of the newest tokens of many sequences over keys and values in pages
TOKENS = 256
HEADS = 8
KV_HEADS = 2
HEAD_DIM = 128
SEQUENCES = 32
PAGES = 640
PAGE_SIZE = 64
PAGES_PER_SEQUENCE = 32
DTYPE = "bfloat16"
UPDATE = True  # the newest keys and values are written to their slots first, and the pages are returned behind o
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import PagedAttention

    return PagedAttention(
        tokens=TOKENS,
        heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        sequences=SEQUENCES,
        pages=PAGES,
        page_size=PAGE_SIZE,
        pages_per_sequence=PAGES_PER_SEQUENCE,
        dtype=DTYPE,
        update=UPDATE,
    )


if __name__ == "__main__":
    try:
        from harness.cli import judge_contest
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: run prepare.py with the Python in .venv, or run ./ratchet.sh judge") from None
    raise SystemExit(judge_contest(__file__))
