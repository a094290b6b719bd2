OPERATION = "attention_backward"  # dq, dk, dv of softmax(Q K^T / sqrt(head_dim)) V, from q, k, v, o, lse and do
HEADS = 2
KV_HEADS = HEADS  # of keys and values; divides HEADS, and query head h reads head h // (HEADS // KV_HEADS)
SEQUENCE = 4096
HEAD_DIM = 128
DTYPE = "bfloat16"
CAUSAL = False
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import AttentionBackward

    return AttentionBackward(
        heads=HEADS, kv_heads=KV_HEADS, sequence=SEQUENCE, head_dim=HEAD_DIM, dtype=DTYPE, causal=CAUSAL
    )
