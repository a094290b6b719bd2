"""Matrix product and reduce-scatter on several TPUs, C = A B: the one file that an experiment changes.

Each chip has a part of every sum. The sums of a chip's rows of C go around the ring, in the order of the chips'
numbers, and each chip on the way adds its own part. Nothing overlaps: a part is computed when the sum has arrived.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "ring_reduce_scatter"
PROBLEM_DESCRIPTION = "matmul C = A B and reduce-scatter of C's rows over several chips"

VMEM_LIMIT = 100 * 2**20


def reduce(a_ref, b_ref, c_ref, sum_ref, send_ref, sent, received):
    """Rows c [m / chips, n] of shards a [m, k], b [k, n]; sum, send [chips - 1, m / chips, n] float32: one a step."""
    me, chips = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    after, before = jax.lax.rem(me + 1, chips), jax.lax.rem(me - 1 + chips, chips)
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (before, after):
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,))
    pl.semaphore_wait(barrier, 2)
    rows = c_ref.shape[0]

    def part(chip):
        own = pl.ds(pl.multiple_of(chip * rows, rows), rows)
        return jnp.dot(a_ref[own], b_ref[...], preferred_element_type=jnp.float32)

    for step in range(chips - 1):
        # The rows of the chip before this one set out here.
        own = part(jax.lax.rem(me - 1 - step + 2 * chips, chips))
        send_ref[step] = own if step == 0 else own + sum_ref[step - 1]
        copy = pltpu.make_async_remote_copy(
            send_ref.at[step],
            sum_ref.at[step],
            sent.at[step],
            received.at[step],
            device_id=(after,),
        )
        copy.start()
        copy.wait()
    c_ref[...] = (part(me) + sum_ref[chips - 2]).astype(c_ref.dtype)


def shard_fn(a, b):
    """C [m / chips, n] of one chip's shards a [m, k / chips] and b [k / chips, n]."""
    chips = jax.lax.axis_size("x")
    rows, n = a.shape[0] // chips, b.shape[1]
    in_vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    steps = pltpu.VMEM((chips - 1, rows, n), jnp.float32)
    semaphores = pltpu.SemaphoreType.DMA((chips - 1,))
    return pl.pallas_call(
        reduce,
        out_shape=jax.ShapeDtypeStruct((rows, n), a.dtype),
        in_specs=[in_vmem, in_vmem],
        out_specs=in_vmem,
        scratch_shapes=[steps, steps, semaphores, semaphores],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True, vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(a, b)


def kernel_fn(a, b):
    """The product of a [m, k] and b [k, n]."""
    return jax.shard_map(shard_fn, in_specs=(P(None, "x"), P("x", None)), out_specs=P("x", None), check_vma=False)(a, b)
