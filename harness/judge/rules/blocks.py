"""What several rules say about blocks: when a grid step is short, and the next larger block that fits."""

from harness.judge.observed import Observed, fits

# What the best published attention kernels keep at most: beyond it the tile of scores spills.
LARGE_KEY_BLOCK = 2048
# Fetching a block takes about a microsecond before its first byte comes (DMA latency): a grid step
# shorter than that cannot hide the next one's fetch.
SHORT_STEP_SECONDS = 1e-6


def larger_key_block(seen: Observed) -> str | None:
    """The advice to make the key/value block four times or twice as large, or None where it cannot or need not be."""
    if not seen.is_attention:
        return None
    key = seen.inputs[1]
    rows, factor = key.block_shape[-2], 4
    most = min(key.array.shape[-2], LARGE_KEY_BLOCK)
    while factor >= 2 and not (rows * factor <= most and fits(seen, rows, factor)):
        factor //= 2
    if factor < 2:
        return None
    return f"raise the key/value block (rows of {key.name}'s block, now {rows}) to {rows * factor}"
