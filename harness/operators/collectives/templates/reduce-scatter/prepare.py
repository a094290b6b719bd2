OPERATION = "reduce_scatter"  # y [ROWS, COLUMNS] = the sum of x [CHIPS, ROWS, COLUMNS]: a term on each chip; rows of y are split
ROWS = 2048
COLUMNS = 1024
CHIP = "v5e"
CHIPS = 4  # in a mesh with the axis "x"


def problem():
    """What the judge computes, checks and credits; the kernel has no say in it."""
    from harness.operators import ReduceScatter

    return ReduceScatter(rows=ROWS, columns=COLUMNS, chips=CHIPS)
