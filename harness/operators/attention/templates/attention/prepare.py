#: for attention attention-causal attention-gqa attention-packed attention-suite
#: not attention-suite
OPERATION = "attention"  # softmax(scale * Q K^T) V, forward
#: attention attention-causal attention-packed
BATCH = 1
HEADS = 1
KV_HEADS = HEADS  # of keys and values; divides HEADS, and query head h reads head h // (HEADS // KV_HEADS)
SEQUENCE = 16384
#: attention-gqa
BATCH = 2
HEADS = 32
KV_HEADS = 8  # of keys and values; divides HEADS, and query head h reads head h // (HEADS // KV_HEADS)
SEQUENCE = 2048
#: attention-suite
OPERATION = "attention"  # softmax(scale Q K^T) V of the keys up to each query, forward: the prefill of a language model
HEADS = 8  # on this chip
KV_HEADS = 2  # of keys and values; divides HEADS, and query head h reads head h // (HEADS // KV_HEADS)
#: end
HEAD_DIM = 128
#: attention-suite
SEQUENCES = (1024, 2048, 4096)  # the lengths of prompts, each a member of the suite
WEIGHTS = (1, 2, 1)  # how often each length occurs
MAY_LOSE = 0.01  # no length may take more time than the champion by more than this share
#: end
DTYPE = "bfloat16"
#: attention attention-gqa
CAUSAL = False
#: attention-causal attention-packed
CAUSAL = True  # True: query i sees the keys 0 to i
#: attention-packed
SEGMENTS = 8  # packed sequences, at most; a query sees only keys of its own sequence
#: attention-causal attention-packed
WINDOW = None  # a number: each query sees only the last WINDOW of these keys; None: all of them
SOFT_CAP = None  # scores become SOFT_CAP tanh(score / SOFT_CAP)
#: not attention-suite
SCALE = HEAD_DIM**-0.5  # of the softmax
#: end
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
#: not attention-suite
    from harness.operators import Attention
#: attention-suite
    from harness.operators import Attention, Member, Suite
#: end

#: not attention-suite
    return Attention(
        batch=BATCH,
        heads=HEADS,
        kv_heads=KV_HEADS,
        sequence=SEQUENCE,
        head_dim=HEAD_DIM,
        dtype=DTYPE,
        causal=CAUSAL,
        scale=SCALE,
#: attention-causal attention-packed
        window=WINDOW,
        soft_cap=SOFT_CAP,
#: attention-packed
        segments=SEGMENTS,
#: attention-suite
    def prefill(sequence):
        return Attention(heads=HEADS, kv_heads=KV_HEADS, sequence=sequence, head_dim=HEAD_DIM, dtype=DTYPE, causal=True)

    return Suite(
        members=tuple(
            Member(name=f"prefill-{sequence}", problem=prefill(sequence), weight=weight)
            for sequence, weight in zip(SEQUENCES, WEIGHTS, strict=True)
        ),
        may_lose=MAY_LOSE,
#: end
    )
