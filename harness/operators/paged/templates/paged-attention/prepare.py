#: for paged-attention ragged-paged-attention ragged-paged-attention-update
#: paged-attention
OPERATION = "paged_attention"  # one query of each of many sequences over keys and values in pages
#: not paged-attention
OPERATION = "paged_attention"  # causal attention of the newest tokens of many sequences over keys and values in pages
TOKENS = 256
#: end
HEADS = 8
KV_HEADS = 2
HEAD_DIM = 128
SEQUENCES = 32
PAGES = 640
PAGE_SIZE = 64
PAGES_PER_SEQUENCE = 32
DTYPE = "bfloat16"
#: not paged-attention
SUMS = None  # "bfloat16": a kernel may keep its sums over keys in bfloat16
#: ragged-paged-attention-update
UPDATE = True  # True: the newest keys and values are written to their slots first, and the pages are returned behind o
#: end
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import PagedAttention

    return PagedAttention(
#: not paged-attention
        tokens=TOKENS,
#: end
        heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        sequences=SEQUENCES,
        pages=PAGES,
        page_size=PAGE_SIZE,
        pages_per_sequence=PAGES_PER_SEQUENCE,
        dtype=DTYPE,
#: not paged-attention
        sums=SUMS,
#: ragged-paged-attention-update
        update=UPDATE,
#: end
    )
