OPERATION = "all_gather_matmul"  # C [M, N] = A [M, K] B [K, N]: A's rows, B's and C's columns are split over the chips
M = 2048
N = 4096
K = 4096
DTYPE = "bfloat16"
CHIP = "v5e"
CHIPS = 4  # in a mesh with the axis "x"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import AllGatherMatmul

    return AllGatherMatmul(m=M, n=N, k=K, dtype=DTYPE, chips=CHIPS)
