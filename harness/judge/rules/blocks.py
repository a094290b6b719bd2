"""Advice on block sizes that several rules give: the next larger one that divides, fits and is not too large."""

from harness.judge.observed import Observed, fits

# What the best published attention kernels keep at most: beyond it the tile of scores spills.
LARGE_KEY_BLOCK = 2048


def larger_key_block(seen: Observed) -> str | None:
    """The advice to make the key/value block four times or twice as large, or None where it cannot or need not be."""
    if not seen.is_attention:
        return None
    key = seen.inputs[1]
    rows, factor = key.block_shape[-2], 4
    while factor >= 2 and not (rows * factor <= key.array.shape[-2] and fits(seen, rows, factor)):
        factor //= 2
    if factor < 2 or rows >= LARGE_KEY_BLOCK:
        return None
    return f"raise the key/value block (rows of {key.name}'s block, now {rows}) to {rows * factor}"
