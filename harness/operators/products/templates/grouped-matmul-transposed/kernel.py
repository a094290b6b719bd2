"""Transposed grouped matrix product on a TPU: the one file that an experiment changes.

The honest naive kernel to start from. Rows are sorted by group, so a tile of BM rows holds rows of one group or of
several neighbours. It is visited once for each of them: its other rows are taken for zeros. Tables that XLA computes
beforehand say which tile and which group a visit is for; a group without rows has one visit, which writes zeros.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_grouped_matmul_transposed"
PROBLEM_DESCRIPTION = "of each group its rows of lhs, transposed, times its rows of rhs, added up in float32"

BM = 256
BN = 512
BK = 512
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def visits(group_sizes, tiles):
    """Group and tile of each visit, int32[tiles + groups], how many there are [1], and where each group starts.

    Every group begins in a tile that is visited for the one before it too, or at its border, or has no rows and a visit
    all the same. Those that are left over repeat the last one, and do nothing.
    """
    groups = group_sizes.shape[0]
    ends = jnp.cumsum(group_sizes, dtype=jnp.int32)
    starts = ends - group_sizes
    first = jnp.minimum(starts // BM, tiles - 1)
    count = jnp.where(group_sizes > 0, (ends - 1) // BM - first + 1, 1)
    done = jnp.cumsum(count, dtype=jnp.int32)
    visit = jnp.minimum(jnp.arange(tiles + groups, dtype=jnp.int32), done[-1] - 1)
    group = jnp.sum(visit[:, None] >= done[None, :], axis=1, dtype=jnp.int32)
    tile = first[group] + visit - (done - count)[group]
    return group, tile, done[-1:], jnp.concatenate([starts, ends[-1:]])


def multiply(group_ref, tile_ref, count_ref, start_ref, lhs_ref, rhs_ref, out_ref, acc_ref):
    """One visit: block of LHS [BM, BK] transposed, times block of RHS [BM, BN]; acc [BK, BN] lives over a group."""
    visit, count = pl.program_id(2), count_ref[0]

    @pl.when(visit < count)
    def work():
        group = group_ref[visit]

        @pl.when((visit == 0) | (group_ref[jnp.maximum(visit - 1, 0)] != group))
        def start():
            acc_ref[...] = jnp.zeros_like(acc_ref)

        row = tile_ref[visit] * BM + jax.lax.broadcasted_iota(jnp.int32, lhs_ref.shape, 0)
        is_own = (row >= start_ref[group]) & (row < start_ref[group + 1])
        lhs = jnp.where(is_own, lhs_ref[...].astype(jnp.float32), 0).astype(lhs_ref.dtype)
        # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
        precision = jax.lax.Precision.HIGHEST if lhs_ref.dtype == jnp.float32 else None
        acc_ref[...] += jax.lax.dot_general(
            lhs, rhs_ref[...], (((0,), (0,)), ((), ())), precision=precision, preferred_element_type=jnp.float32
        )

        @pl.when((visit == count - 1) | (group_ref[jnp.minimum(visit + 1, count - 1)] != group))
        def finish():
            out_ref[...] = acc_ref[...].astype(out_ref.dtype)


def kernel_fn(lhs, rhs, group_sizes):
    """A matrix [k, n] of each group of lhs [m, k] and rhs [m, n]. Raises ValueError where a block does not divide."""
    (m, k), n, groups = lhs.shape, rhs.shape[1], group_sizes.shape[0]
    for name, length, block in (("BM", m, BM), ("BN", n, BN), ("BK", k, BK)):
        if length % block:
            raise ValueError(f"expected {name} to divide {length}, got {name}={block}")
    tiles = m // BM
    group, tile, count, starts = visits(group_sizes, tiles)
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((groups, k, n), lhs.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(k // BK, n // BN, tiles + groups),
            in_specs=[
                pl.BlockSpec((BM, BK), lambda i, j, v, group, tile, count, starts: (tile[v], i)),
                pl.BlockSpec((BM, BN), lambda i, j, v, group, tile, count, starts: (tile[v], j)),
            ],
            out_specs=pl.BlockSpec((None, BK, BN), lambda i, j, v, group, tile, count, starts: (group[v], i, j)),
            scratch_shapes=[pltpu.VMEM((BK, BN), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(group, tile, count, starts, lhs, rhs)


def compute_flops(m=8192, k=2048, n=2048):
    """FLOPs of one call: a multiplication and an addition for each of m n k, whatever the groups."""
    return 2 * m * n * k


def get_tiling_meta(m=8192, groups=8, k=2048, n=2048):
    """Grid and buffers; how often a block is read depends on the sizes of the groups."""
    return {
        "grid": (k // BK, n // BN, m // BM + groups),
        "buffers": {
            "lhs": ((BM, BK), "bfloat16"),
            "rhs": ((BM, BN), "bfloat16"),
            "out": ((BK, BN), "bfloat16"),
            "acc": ((BK, BN), "float32"),
        },
    }
