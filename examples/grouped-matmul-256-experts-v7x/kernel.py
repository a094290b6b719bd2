"""Grouped matrix product on a TPU: the one file that an experiment changes.

The honest naive kernel to start from. Rows are sorted by group, so a tile of BM rows holds rows of one group or of
several neighbours. It is visited once for each of them: multiplied by that group's matrix, and the rows of that group
are kept. Tables that XLA computes beforehand say which tile and which group a visit is for.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_grouped_matmul"
PROBLEM_DESCRIPTION = "rows of each group times that group's matrix, added up in float32"

BM = 256
BN = 512
BK = 2048
# How much VMEM the compiler may give the kernel, in bytes; None: its default (16 MiB on v5e).
VMEM_LIMIT = None


def visits(group_sizes, tiles):
    """Group and tile of each visit, int32[tiles + groups - 1], how many there are [1], and where each group starts.

    Every group but the first begins in a tile that is visited for the one before it too, or at its border: there are at
    most groups - 1 visits more than tiles. Those that are left over repeat the last one, and do nothing.
    """
    groups = group_sizes.shape[0]
    ends = jnp.cumsum(group_sizes, dtype=jnp.int32)
    starts = ends - group_sizes
    first = starts // BM
    count = jnp.where(group_sizes > 0, (ends - 1) // BM - first + 1, 0)
    done = jnp.cumsum(count, dtype=jnp.int32)
    visit = jnp.minimum(jnp.arange(tiles + groups - 1, dtype=jnp.int32), done[-1] - 1)
    group = jnp.sum(visit[:, None] >= done[None, :], axis=1, dtype=jnp.int32)
    tile = first[group] + visit - (done - count)[group]
    return group, tile, done[-1:], jnp.concatenate([starts, ends[-1:]])


def multiply(group_ref, tile_ref, count_ref, start_ref, lhs_ref, rhs_ref, out_ref, acc_ref):
    """One step: block of LHS [BM, BK] times block of one RHS [BK, BN]; acc [BM, BN] float32 lives over all of k."""
    visit, step, steps = pl.program_id(1), pl.program_id(2), pl.num_programs(2)

    @pl.when(visit < count_ref[0])
    def work():
        @pl.when(step == 0)
        def start():
            acc_ref[...] = jnp.zeros_like(acc_ref)

        # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
        precision = jax.lax.Precision.HIGHEST if lhs_ref.dtype == jnp.float32 else None
        acc_ref[...] += jnp.dot(lhs_ref[...], rhs_ref[...], precision=precision, preferred_element_type=jnp.float32)

        @pl.when(step == steps - 1)
        def finish():
            # The tile stays in VMEM until its last visit: rows of other groups are theirs to write.
            group = group_ref[visit]
            row = tile_ref[visit] * BM + jax.lax.broadcasted_iota(jnp.int32, acc_ref.shape, 0)
            is_own = (row >= start_ref[group]) & (row < start_ref[group + 1])
            others = out_ref[...].astype(jnp.float32)
            out_ref[...] = jnp.where(is_own, acc_ref[...], others).astype(out_ref.dtype)


def kernel_fn(lhs, rhs, group_sizes):
    """The products of lhs [m, k] with rhs [groups, k, n]. Raises ValueError where a block does not divide them."""
    (m, k), (groups, _, n) = lhs.shape, rhs.shape
    for name, length, block in (("BM", m, BM), ("BN", n, BN), ("BK", k, BK)):
        if length % block:
            raise ValueError(f"expected {name} to divide {length}, got {name}={block}")
    tiles = m // BM
    group, tile, count, starts = visits(group_sizes, tiles)
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), lhs.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(n // BN, tiles + groups - 1, k // BK),
            in_specs=[
                pl.BlockSpec((BM, BK), lambda j, v, p, group, tile, count, starts: (tile[v], p)),
                pl.BlockSpec((None, BK, BN), lambda j, v, p, group, tile, count, starts: (group[v], p, j)),
            ],
            out_specs=pl.BlockSpec((BM, BN), lambda j, v, p, group, tile, count, starts: (tile[v], j)),
            scratch_shapes=[pltpu.VMEM((BM, BN), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary", "arbitrary"), vmem_limit_bytes=VMEM_LIMIT
        ),
        name=KERNEL_NAME,
    )(group, tile, count, starts, lhs, rhs)


def compute_flops(m=8192, k=2048, n=2048):
    """FLOPs of one call: a multiplication and an addition for each of m n k, whatever the groups."""
    return 2 * m * n * k


def get_tiling_meta(m=8192, groups=8, k=2048, n=2048):
    """Grid and buffers; how often a block is read depends on the sizes of the groups."""
    return {
        "grid": (n // BN, m // BM + groups - 1, k // BK),
        "buffers": {
            "lhs": ((BM, BK), "bfloat16"),
            "rhs": ((BK, BN), "bfloat16"),
            "out": ((BM, BN), "bfloat16"),
            "acc": ((BM, BN), "float32"),
        },
    }
