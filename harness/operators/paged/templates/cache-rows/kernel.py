"""New rows of a cache of keys and values on a TPU: the one file that an experiment changes.

The honest naive kernel to start from: each piece is copied from HBM to HBM, one after the other. The cache is input and
output, in the same memory.
"""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "naive_cache_rows"
PROBLEM_DESCRIPTION = "rows of new keys and values, written into the pages of a cache in pieces that a table lists"


def write(slices_ref, count_ref, new_ref, _, cache_ref, arrived):
    """Copies piece j of new [tokens, heads, d]: slices [3, pieces] has its place, where it begins, and its rows."""

    def of_piece(piece, _):
        place, start, rows = (slices_ref[i, piece] for i in range(3))
        copy = pltpu.make_async_copy(new_ref.at[pl.ds(start, rows)], cache_ref.at[pl.ds(place, rows)], arrived)
        copy.start()
        copy.wait()
        return _

    jax.lax.fori_loop(0, count_ref[0], of_piece, 0)


def kernel_fn(new, slices, cache, count):
    """The cache [rows, heads, d] with the pieces of new in their places."""
    in_place = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        write,
        out_shape=jax.ShapeDtypeStruct(cache.shape, cache.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            in_specs=[in_place] * 2,
            out_specs=in_place,
            scratch_shapes=[pltpu.SemaphoreType.DMA],
        ),
        # The tables count.
        input_output_aliases={3: 0},
        name=KERNEL_NAME,
    )(slices, count, new, cache)
