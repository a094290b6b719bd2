OPERATION = "grouped_matmul"  # OUT [M, N]: rows of LHS [M, K], sorted by group, times RHS [GROUPS, K, N] of their group
M = 8192
GROUPS = 8
K = 2048
N = 2048
DTYPE = "bfloat16"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import GroupedMatmul

    return GroupedMatmul(m=M, groups=GROUPS, k=K, n=N, dtype=DTYPE)
