OPERATION = "cross_entropy"  # losses [TOKENS, 1] of logits X W [TOKENS, VOCABULARY], which stay on the chip
TOKENS = 2048
MODEL = 2048
VOCABULARY = 32768
DTYPE = "bfloat16"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import CrossEntropy

    return CrossEntropy(tokens=TOKENS, model=MODEL, vocabulary=VOCABULARY, dtype=DTYPE)
