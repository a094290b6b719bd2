OPERATION = "top_k"  # the K largest elements of each row and their columns, largest first; equals by rising column
ROWS = 8192
COLUMNS = 256
K = 8
DTYPE = "float32"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import TopK

    return TopK(rows=ROWS, columns=COLUMNS, k=K, dtype=DTYPE)
