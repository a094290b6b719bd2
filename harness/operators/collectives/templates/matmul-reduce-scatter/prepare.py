OPERATION = "matmul_reduce_scatter"  # C [M, N] = A [M, K] B [K, N]: K is split over the chips, and the rows of C
M = 2048
N = 2048
K = 8192
DTYPE = "bfloat16"
CHIP = "v5e"
CHIPS = 4  # in a mesh with the axis "x"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import MatmulReduceScatter

    return MatmulReduceScatter(m=M, n=N, k=K, dtype=DTYPE, chips=CHIPS)
