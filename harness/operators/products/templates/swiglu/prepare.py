OPERATION = "swiglu"  # Y [TOKENS, HIDDEN] = silu(X Wg) * (X Wu)
TOKENS = 4096
MODEL = 4096
HIDDEN = 3584  # columns of Wg and Wu on this chip
DOWN = False  # True: Y [TOKENS, MODEL] = (silu(X Wg) * (X Wu)) Wd
DTYPE = "bfloat16"
CHIP = "v5e"


def problem():
    """The problem as the judge computes, checks and credits it; kernel.py cannot change it."""
    from harness.operators import SwiGLU

    return SwiGLU(tokens=TOKENS, model=MODEL, hidden=HIDDEN, down=DOWN, dtype=DTYPE)
