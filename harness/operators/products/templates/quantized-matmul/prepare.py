OPERATION = "quantized_matmul"  # C [M, N] = A [M, K] Q [K, N] * scales [1, N], added up in float32
M = 512
N = 8192
K = 8192
DTYPE = "bfloat16"  # of A and C
WEIGHTS = "int8"  # of Q: int8 without -128, or float8_e4m3fn
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import QuantizedMatmul

    return QuantizedMatmul(m=M, n=N, k=K, dtype=DTYPE, weights=WEIGHTS)
