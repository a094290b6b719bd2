OPERATION = "cache_rows"  # rows of new keys and values are written into a cache's pages, in pieces that a table lists
TOKENS = 1024
HEADS = 8
HEAD_DIM = 128
PAGES = 64
PAGE_SIZE = 64
PIECES = 48
DTYPE = "bfloat16"
CHIP = "v6e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import CacheRows

    return CacheRows(
        tokens=TOKENS,
        heads=HEADS,
        head_dim=HEAD_DIM,
        pages=PAGES,
        page_size=PAGE_SIZE,
        pieces=PIECES,
        dtype=DTYPE,
    )
