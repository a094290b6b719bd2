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
