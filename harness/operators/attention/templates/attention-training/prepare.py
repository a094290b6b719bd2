OPERATION = "attention"  # causal, forward by kernel_fn and backward by backward_fn: what a training step does
HEADS = 2
KV_HEADS = HEADS  # of keys and values; divides HEADS, and query head h reads head h // (HEADS // KV_HEADS)
SEQUENCE = 4096
HEAD_DIM = 128
CAUSAL = True
WEIGHTS = (2, 5)  # of forward and backward: the matrix products of each
MAY_LOSE = 0.01  # neither may take more time than the champion by more than this share
DTYPE = "bfloat16"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import Attention, AttentionBackward, Member, Suite

    shape = {
        "heads": HEADS,
        "kv_heads": KV_HEADS,
        "sequence": SEQUENCE,
        "head_dim": HEAD_DIM,
        "dtype": DTYPE,
        "causal": CAUSAL,
    }
    forward, backward = WEIGHTS
    return Suite(
        members=(
            Member(name="forward", problem=Attention(**shape), weight=forward),
            Member(name="backward", problem=AttentionBackward(**shape), weight=backward, function="backward_fn"),
        ),
        may_lose=MAY_LOSE,
    )
