"""Reduce-scatter on several TPUs: the one file that an experiment changes.

The sums of a chip's rows go around the ring, one way round, in the order of the chips' numbers, and each chip on the
way adds its own term.
"""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "ring_reduce_scatter"
PROBLEM_DESCRIPTION = "sums of x over several chips, a part of the rows on each"

VMEM_LIMIT = 100 * 2**20


def reduce(x_ref, y_ref, sum_ref, send_ref, sent, received):
    """Sums y [rows / chips, columns] of x [rows, columns]; sum, send [chips - 1, rows / chips, columns]: one a step."""
    me, chips = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    after, before = jax.lax.rem(me + 1, chips), jax.lax.rem(me - 1 + chips, chips)
    # Nobody sends to a chip that has not begun.
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (before, after):
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,))
    pl.semaphore_wait(barrier, 2)
    rows = y_ref.shape[0]

    def term(chip):
        return x_ref[pl.ds(pl.multiple_of(chip * rows, rows), rows)]

    for step in range(chips - 1):
        # The rows of the chip before this one set out here.
        own = term(jax.lax.rem(me - 1 - step + 2 * chips, chips))
        send_ref[step] = own if step == 0 else own + sum_ref[step - 1]
        copy = pltpu.make_async_remote_copy(
            send_ref.at[step], sum_ref.at[step], sent.at[step], received.at[step], device_id=(after,)
        )
        copy.start()
        copy.wait()
    y_ref[...] = term(me) + sum_ref[chips - 2]


def shard_fn(x):
    """The sums of one chip's rows [rows / chips, columns], from its term x [1, rows, columns]."""
    chips = jax.lax.axis_size("x")
    _, rows, columns = x.shape
    in_vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    steps = pltpu.VMEM((chips - 1, rows // chips, columns), x.dtype)
    semaphores = pltpu.SemaphoreType.DMA((chips - 1,))
    return pl.pallas_call(
        reduce,
        out_shape=jax.ShapeDtypeStruct((rows // chips, columns), x.dtype),
        in_specs=[in_vmem],
        out_specs=in_vmem,
        scratch_shapes=[steps, steps, semaphores, semaphores],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True, vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(x.reshape(rows, columns))


def kernel_fn(x):
    """The sum of x [chips, rows, columns] over the chips, whose rows are split."""
    return jax.shard_map(shard_fn, in_specs=P("x", None, None), out_specs=P("x", None), check_vma=False)(x)
