"""All-reduce on several TPUs: the one file that an experiment changes.

The sums of a chip's rows go around the ring, one way round, in the order of the chips' numbers, and each chip on the
way adds its own term. Then they go around once more, so that each chip has all of them.
"""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "ring_all_reduce"
PROBLEM_DESCRIPTION = "sums of x over several chips, all of them on each"

VMEM_LIMIT = 100 * 2**20


def reduce(x_ref, y_ref, sum_ref, send_ref, sent, received):
    """Sums y [rows, columns] of x [rows, columns]; sum, send [chips - 1, rows / chips, columns]: one a step."""
    me, chips = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    after, before = jax.lax.rem(me + 1, chips), jax.lax.rem(me - 1 + chips, chips)
    # Nobody sends to a chip that has not begun.
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (before, after):
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,))
    pl.semaphore_wait(barrier, 2)
    rows = y_ref.shape[0] // chips

    def part(ref, chip):
        return ref.at[pl.ds(pl.multiple_of(chip * rows, rows), rows)]

    for step in range(chips - 1):
        # The rows of the chip before this one set out here.
        own = part(x_ref, jax.lax.rem(me - 1 - step + 2 * chips, chips))[...]
        send_ref[step] = own if step == 0 else own + sum_ref[step - 1]
        copy = pltpu.make_async_remote_copy(
            send_ref.at[step], sum_ref.at[step], sent.at[step], received.at[step], device_id=(after,)
        )
        copy.start()
        copy.wait()
    part(y_ref, me)[...] = part(x_ref, me)[...] + sum_ref[chips - 2]
    for step in range(chips - 1):
        done = part(y_ref, jax.lax.rem(me - step + chips, chips))
        slot = chips - 1 + step
        copy = pltpu.make_async_remote_copy(done, done, sent.at[slot], received.at[slot], device_id=(after,))
        copy.start()
        copy.wait()


def shard_fn(x):
    """All sums [rows, columns], from one chip's term x [1, rows, columns]."""
    chips = jax.lax.axis_size("x")
    _, rows, columns = x.shape
    in_vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    steps = pltpu.VMEM((chips - 1, rows // chips, columns), x.dtype)
    semaphores = pltpu.SemaphoreType.DMA((2 * (chips - 1),))
    return pl.pallas_call(
        reduce,
        out_shape=jax.ShapeDtypeStruct((rows, columns), x.dtype),
        in_specs=[in_vmem],
        out_specs=in_vmem,
        scratch_shapes=[steps, steps, semaphores, semaphores],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True, vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(x.reshape(rows, columns))


def kernel_fn(x):
    """The sum of x [chips, rows, columns] over the chips, on each of them."""
    return jax.shard_map(shard_fn, in_specs=P("x", None, None), out_specs=P(None, None), check_vma=False)(x)
