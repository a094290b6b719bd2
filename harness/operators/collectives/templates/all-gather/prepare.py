OPERATION = "all_gather"  # y = x [ROWS, COLUMNS] on each chip; the rows of x are split over the chips
ROWS = 4096
COLUMNS = 2048
DTYPE = "bfloat16"
CHIP = "v5e"
CHIPS = 4  # in a mesh with the axis "x"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import AllGather

    return AllGather(rows=ROWS, columns=COLUMNS, dtype=DTYPE, chips=CHIPS)
