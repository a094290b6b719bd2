OPERATION = "top_k"  # the K largest elements of each row, the largest first, and their columns; of equals the lower one
ROWS = 8192
COLUMNS = 256
K = 8
DTYPE = "float32"
CHIP = "v5e"


def problem():
    """What the judge computes, checks and credits; the kernel has no say in it."""
    from harness.operators import TopK

    return TopK(rows=ROWS, columns=COLUMNS, k=K, dtype=DTYPE)
