"""Grouped matmul by the ragged dot of the package tokamax; experiments change this file.

Wraps: tokamax:ragged_dot
Wraps: tokamax._src.ops.ragged_dot.api:ragged_dot
Wraps: tokamax._src.ops.ragged_dot.pallas_mosaic_tpu:PallasMosaicTpuRaggedDot
"""

from tokamax._src.ops.ragged_dot.pallas_mosaic_tpu import Config, PallasMosaicTpuRaggedDot

KERNEL_NAME = "ragged_dot of tokamax"
PROBLEM_DESCRIPTION = "rows of each group times that group's matrix"

# Rows, depth and columns of one tile.
TILE_M = 512
TILE_K = 512
TILE_N = 512
INPUT_BUFFER_COUNT = 2


def kernel_fn(lhs, rhs, group_sizes):
    """LHS [m, k], the rows of each group times its matrix in RHS [groups, k, n]."""
    config = Config(tile_m=TILE_M, tile_k=TILE_K, tile_n=TILE_N, input_buffer_count=INPUT_BUFFER_COUNT)
    # The kernel is traced for a chip that is not attached, so a check of the device would fail.
    ragged_dot = PallasMosaicTpuRaggedDot(config=config, bypass_device_check=True)
    return ragged_dot(lhs, rhs, group_sizes=group_sizes)
