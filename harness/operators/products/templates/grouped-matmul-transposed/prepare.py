OPERATION = "grouped_matmul_transposed"  # OUT [GROUPS, K, N]: rows of a group in LHS [M, K], transposed, by RHS [M, N]
M = 8192
GROUPS = 8
K = 2048
N = 2048
DTYPE = "bfloat16"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import GroupedMatmulTransposed

    return GroupedMatmulTransposed(m=M, groups=GROUPS, k=K, n=N, dtype=DTYPE)
