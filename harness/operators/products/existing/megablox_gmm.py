"""Grouped matmul by JAX's megablox; experiments change this file.

Wraps: jax.experimental.pallas.ops.tpu.megablox:gmm
Wraps: jax.experimental.pallas.ops.tpu.megablox.gmm:gmm
Wraps: jax.experimental.pallas.ops.tpu.megablox.ops:gmm
"""

from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm

KERNEL_NAME = "gmm of megablox"
PROBLEM_DESCRIPTION = "rows of each group times that group's matrix"

# Rows, depth and columns of one tile.
TILE_M = 512
TILE_K = 512
TILE_N = 512


def kernel_fn(lhs, rhs, group_sizes):
    """LHS [m, k], the rows of each group times its matrix in RHS [groups, k, n]."""
    return gmm(lhs, rhs, group_sizes, preferred_element_type=lhs.dtype, tiling=(TILE_M, TILE_K, TILE_N))
