"""XLA writes all pieces by a scatter; the kernel writes only the first piece again.

Row: 12
Contest: cached
Caught by: static work-outside-pallas
"""

import jax
import jax.numpy as jnp
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

    of_piece(0, 0)


def kernel_fn(new, slices, cache, count):
    """The cache [rows, heads, d] with the pieces of new in their places."""
    token = jax.lax.broadcasted_iota(jnp.int32, (new.shape[0],), 0)
    shift = jnp.full(token.shape, 1 << 28, jnp.int32)
    first, stop = slices[0] - slices[1], slices[1] + slices[2]
    for piece in range(slices.shape[1]):
        inside = (token >= slices[1, piece]) & (token < stop[piece]) & (piece < count[0])
        shift = jnp.where(inside, first[piece], shift)
    cache = cache.at[token + shift].set(new, mode="drop")
    in_place = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(
        write,
        out_shape=jax.ShapeDtypeStruct(cache.shape, cache.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2, in_specs=[in_place] * 2, out_specs=in_place, scratch_shapes=[pltpu.SemaphoreType.DMA]
        ),
        # The tables count.
        input_output_aliases={3: 0},
        name=KERNEL_NAME,
    )(slices, count, new, cache)
