"""All-gather on several TPUs: the one file that an experiment changes.

The chips hand their shards around a ring, one way round, in the order of their numbers: each passes on what came last.
"""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "ring_all_gather"
PROBLEM_DESCRIPTION = "all-gather of the rows of x over several chips"


def gather(x_ref, y_ref, copied, sent, received):
    """All rows y [rows, columns] of each chip's x [rows / chips, columns], both in HBM; a step hands one shard on."""
    me, chips = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    after, before = jax.lax.rem(me + 1, chips), jax.lax.rem(me - 1 + chips, chips)
    rows = x_ref.shape[0]

    def shard(chip):
        return y_ref.at[pl.ds(pl.multiple_of(chip * rows, rows), rows)]

    own = pltpu.make_async_copy(x_ref, shard(me), copied)
    own.start()
    # Nobody sends to a chip that has not begun.
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (before, after):
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,))
    pl.semaphore_wait(barrier, 2)
    own.wait()
    for step in range(chips - 1):
        part = shard(jax.lax.rem(me - step + chips, chips))
        copy = pltpu.make_async_remote_copy(part, part, sent.at[step], received.at[step], device_id=(after,))
        copy.start()
        copy.wait()


def shard_fn(x):
    """All of x, from one chip's rows of it."""
    chips = jax.lax.axis_size("x")
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    semaphores = pltpu.SemaphoreType.DMA((chips - 1,))
    return pl.pallas_call(
        gather,
        out_shape=jax.ShapeDtypeStruct((chips * x.shape[0], x.shape[1]), x.dtype),
        in_specs=[anywhere],
        out_specs=anywhere,
        scratch_shapes=[pltpu.SemaphoreType.DMA, semaphores, semaphores],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
        name=KERNEL_NAME,
    )(x)


def kernel_fn(x):
    """x [rows, columns] on every chip."""
    return jax.shard_map(shard_fn, in_specs=P("x", None), out_specs=P(None, None), check_vma=False)(x)
