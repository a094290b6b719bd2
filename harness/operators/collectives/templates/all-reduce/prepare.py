OPERATION = "all_reduce"  # y [ROWS, COLUMNS] on each chip = the sum of x, [ROWS, COLUMNS] on each chip
ROWS = 2048
COLUMNS = 1024
CHIP = "v5e"
CHIPS = 4  # in a mesh with the axis "x"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import AllReduce

    return AllReduce(rows=ROWS, columns=COLUMNS, chips=CHIPS)
