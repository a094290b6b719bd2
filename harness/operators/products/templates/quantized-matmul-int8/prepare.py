OPERATION = "quantized_matmul"  # C [M, N] = A [M, K] Q [K, N] * scales [1, N] * row_scales [M, 1]
M = 512
N = 8192
K = 8192
DTYPE = "bfloat16"  # of C
ACTIVATIONS = "int8"  # of A
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import QuantizedMatmul

    return QuantizedMatmul(m=M, n=N, k=K, dtype=DTYPE, activations=ACTIVATIONS)
