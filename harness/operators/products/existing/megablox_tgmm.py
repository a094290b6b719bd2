"""Transposed grouped matmul by JAX's megablox; experiments change this file.

Wraps: jax.experimental.pallas.ops.tpu.megablox.gmm:tgmm
"""

from jax.experimental.pallas.ops.tpu.megablox.gmm import tgmm

KERNEL_NAME = "tgmm of megablox"
PROBLEM_DESCRIPTION = "of each group its rows of lhs, transposed, times its rows of rhs"

# Rows, rows of the output and columns of one tile.
TILE_M = 512
TILE_K = 512
TILE_N = 512


def kernel_fn(lhs, rhs, group_sizes):
    """[groups, k, n] of LHS [m, k] and RHS [m, n]; tgmm takes LHS transposed, so XLA transposes it first."""
    tiling = (TILE_M, TILE_K, TILE_N)
    return tgmm(lhs.T, rhs, group_sizes, preferred_element_type=lhs.dtype, tiling=tiling)
