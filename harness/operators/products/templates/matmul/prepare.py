OPERATION = "matmul"  # C [M, N] = A [M, K] B [K, N], added up in float32
M = 8192
N = 8192
K = 8192
DTYPE = "bfloat16"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import Matmul

    return Matmul(m=M, n=N, k=K, dtype=DTYPE)
