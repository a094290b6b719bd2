"""All-gather and matrix product on several TPUs, C = A B: the one file that an experiment changes.

A's shards go around the ring in halves, one each way, from VMEM to VMEM, and each chip multiplies what it has by its
own columns of B while the next halves are under way.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "overlapped_gather_matmul"
PROBLEM_DESCRIPTION = "all-gather of A's rows and matmul C = A B on several chips"

VMEM_LIMIT = 100 * 2**20
MESH = pl.DeviceIdType.MESH


def multiply(a_ref, b_ref, c_ref, all_ref, sent, received):
    """C [chips, rows, n] in VMEM of shards a [rows, k] and b [k, n]; all [chips, rows, k] receives the other shards."""
    me, chips = jax.lax.axis_index("x"), jax.lax.axis_size("x")

    def chip_at(place):
        place = jax.lax.rem(place + chips, chips)
        return place ^ (place >> 1)

    place = chip_at(me)
    after, before = chip_at(place + 1), chip_at(place - 1)
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (before, after):
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,), device_id_type=MESH)
    all_ref[me] = a_ref[...]
    pl.semaphore_wait(barrier, 2)
    half = a_ref.shape[0] // 2

    def part(way, shard):
        return shard, pl.ds(way * half, half)

    def product(shard, rows):
        c_ref[shard, rows] = jnp.dot(all_ref[shard, rows], b_ref[...], preferred_element_type=jnp.float32).astype(
            c_ref.dtype
        )

    for step in range(chips - 1):
        copies = []
        for way, (neighbour, shard) in enumerate(((after, chip_at(place - step)), (before, chip_at(place + step)))):
            moved, ends = all_ref.at[part(way, shard)], (sent.at[way, step], received.at[way, step])
            copies.append(
                pltpu.make_async_remote_copy(moved, moved, *ends, device_id=(neighbour,), device_id_type=MESH)
            )
        for copy in copies:
            copy.start()
        for way, shard in enumerate((chip_at(place - step), chip_at(place + step))):
            product(*part(way, shard))
        for copy in copies:
            copy.wait()
    for way, shard in enumerate((chip_at(place - chips + 1), chip_at(place + chips - 1))):
        product(*part(way, shard))


def shard_fn(a, b):
    """C [m, n / chips] of one chip's shards a [m / chips, k] and b [k, n / chips]."""
    chips = jax.lax.axis_size("x")
    (rows, k), n = a.shape, b.shape[1]
    semaphores = pltpu.SemaphoreType.DMA((2, chips - 1))
    c = pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((chips, rows, n), a.dtype),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)] * 2,
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((chips, rows, k), a.dtype), semaphores, semaphores],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True, vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(a, b)
    return c.reshape(rows * chips, n)


def kernel_fn(a, b):
    """The product of a [m, k] and b [k, n]."""
    return jax.shard_map(shard_fn, in_specs=(P("x", None), P(None, "x")), out_specs=P(None, "x"), check_vma=False)(a, b)
