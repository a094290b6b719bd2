OPERATION = "gated_delta"  # O_t = Q_t S_t / sqrt(dim) of a state S that decays, forgets and takes a value in each step
# The kind of recurrence: "gated delta rule" (g and b for each head; the template's kernel is of this kind), "delta
# attention" (g for each dimension of a key, b for each head), "gated delta rule 2" (g, b and w for each dimension),
# "gated linear attention" (g for each dimension), or "delta rule" (b for each head).
KIND = "gated delta rule"
TIME = 512
HEADS = 4
DIM = 128
DTYPE = "bfloat16"
CHIP = "v6e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import GatedDelta

    return GatedDelta(kind=KIND, time=TIME, heads=HEADS, dim=DIM, dtype=DTYPE)
