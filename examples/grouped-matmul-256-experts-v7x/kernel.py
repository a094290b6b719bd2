"""Grouped matrix product of many small experts on a TPU v7x: the one file that an experiment changes.

Three streams cross between HBM and VMEM, each through a ring of buffers and each in the order of the rows: tiles of LHS,
the matrices of groups that have rows, and tiles of the output. One step of the grid does it all: it walks through the
groups and through the tiles of each, and asks for what comes next as soon as a buffer is free. The order of the groups
is found by the scalar unit while the first tiles are on their way.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "streamed_experts"
PROBLEM_DESCRIPTION = "rows of each group times that group's matrix, added up in float32"

BM = 128
# Buffers: tiles of LHS, matrices, tiles of the output.
TILES_IN = 8
MATRICES = 4
TILES_OUT = 12
# How much VMEM the compiler may give the kernel, in bytes; a v7x has 64 MiB.
VMEM_LIMIT = 56 * 2**20


def multiply(
    size_ref, lhs_ref, rhs_ref, out_ref,
    lhs_buffers, rhs_buffers, out_buffers, group_ref, end_ref, lhs_arrived, rhs_arrived, out_left,
):  # fmt: skip
    """All of it: lhs [m, k], rhs [groups, k, n] and out [m, n] are in HBM, the buffers in VMEM.

    group and end, int32[groups], are written first: the groups that have rows, and where their rows end.
    """
    groups, tiles = rhs_ref.shape[0], lhs_ref.shape[0] // BM

    def lhs_copy(tile):
        slot = jax.lax.rem(tile, TILES_IN)
        return pltpu.make_async_copy(lhs_ref.at[pl.ds(tile * BM, BM)], lhs_buffers.at[slot], lhs_arrived.at[slot])

    def rhs_copy(place):
        slot = jax.lax.rem(place, MATRICES)
        return pltpu.make_async_copy(rhs_ref.at[group_ref[place]], rhs_buffers.at[slot], rhs_arrived.at[slot])

    def out_copy(tile):
        slot = jax.lax.rem(tile, TILES_OUT)
        return pltpu.make_async_copy(out_buffers.at[slot], out_ref.at[pl.ds(tile * BM, BM)], out_left.at[slot])

    for tile in range(min(TILES_IN, tiles)):
        lhs_copy(tile).start()

    def list_group(group, found):
        place, end = found
        size = size_ref[group]
        # A group without rows is written over by the next one.
        group_ref[place], end_ref[place] = group, end + size

        @pl.when((size > 0) & (place < MATRICES))
        def fetch():
            rhs_copy(place).start()

        return jnp.where(size > 0, place + 1, place), end + size

    filled, _ = jax.lax.fori_loop(0, groups, list_group, (0, 0))

    def multiply_group(place, start):
        end = end_ref[place]
        rhs_copy(place).wait()
        matrix = rhs_buffers.at[jax.lax.rem(place, MATRICES)]

        def multiply_tile(tile, _):
            rows, out = lhs_buffers.at[jax.lax.rem(tile, TILES_IN)], out_buffers.at[jax.lax.rem(tile, TILES_OUT)]

            @pl.when(tile * BM >= start)
            def begin():
                lhs_copy(tile).wait()

                @pl.when(tile >= TILES_OUT)
                def make_room():
                    out_copy(tile - TILES_OUT).wait()

            # By default the matrix unit rounds float32 to bfloat16; HIGHEST takes six passes instead of one.
            precision = jax.lax.Precision.HIGHEST if rows.dtype == jnp.float32 else None
            product = jnp.dot(rows[...], matrix[...], precision=precision, preferred_element_type=jnp.float32)
            row = tile * BM + jax.lax.broadcasted_iota(jnp.int32, product.shape, 0)
            # Rows of groups before are there already, those of groups behind are theirs to write.
            is_own = (row >= start) & (row < end)
            out[...] = jnp.where(is_own, product, out[...].astype(jnp.float32)).astype(out.dtype)

            @pl.when((tile + 1) * BM <= end)
            def finish():
                out_copy(tile).start()

                @pl.when(tile + TILES_IN < tiles)
                def fetch():
                    lhs_copy(tile + TILES_IN).start()

            return _

        jax.lax.fori_loop(start // BM, (end + BM - 1) // BM, multiply_tile, 0)

        @pl.when(place + MATRICES < filled)
        def fetch():
            rhs_copy(place + MATRICES).start()

        return end

    jax.lax.fori_loop(0, filled, multiply_group, 0)
    for tile in range(max(0, tiles - TILES_OUT), tiles):
        out_copy(tile).wait()


def kernel_fn(lhs, rhs, group_sizes):
    """The products of lhs [m, k] with rhs [groups, k, n]. Raises ValueError where BM does not divide m."""
    (m, k), (groups, _, n) = lhs.shape, rhs.shape
    if m % BM:
        raise ValueError(f"expected BM to divide {m}, got BM={BM}")
    in_hbm = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), lhs.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(1,),
            in_specs=[in_hbm, in_hbm],
            out_specs=in_hbm,
            scratch_shapes=[
                pltpu.VMEM((TILES_IN, BM, k), lhs.dtype),
                pltpu.VMEM((MATRICES, k, n), rhs.dtype),
                pltpu.VMEM((TILES_OUT, BM, n), lhs.dtype),
                pltpu.SMEM((groups,), jnp.int32),
                pltpu.SMEM((groups,), jnp.int32),
                pltpu.SemaphoreType.DMA((TILES_IN,)),
                pltpu.SemaphoreType.DMA((MATRICES,)),
                pltpu.SemaphoreType.DMA((TILES_OUT,)),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(group_sizes, lhs, rhs)


def compute_flops(m=32768, k=2048, n=512):
    """FLOPs of one call: a multiplication and an addition for each of m n k, whatever the groups."""
    return 2 * m * n * k


def get_tiling_meta(m=32768, groups=256, k=2048, n=512):
    """Grid, buffers and traffic: everything crosses once; how many matrices depends on how many groups have rows."""
    return {
        "grid": (1,),
        "buffers": {
            "lhs": ((TILES_IN, BM, k), "bfloat16"),
            "rhs": ((MATRICES, k, n), "bfloat16"),
            "out": ((TILES_OUT, BM, n), "bfloat16"),
        },
    }
