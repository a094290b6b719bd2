OPERATION = "rmsnorm"  # H = X + R, Y = H / sqrt(mean(H^2) + EPS) * W, over the last axis; Y and H are outputs
ROWS = 8192
COLUMNS = 8192
RESIDUAL = True  # False: no R and no H, Y is the norm of X
EPS = 1e-6
DTYPE = "bfloat16"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import RMSNorm

    return RMSNorm(rows=ROWS, columns=COLUMNS, residual=RESIDUAL, eps=EPS, dtype=DTYPE)
