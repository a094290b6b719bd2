"""Takes the room that another chip has signalled for that of the one that it writes to.

Row: 7
Contest: gathered
Caught by: correctness race
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "k"
PROBLEM_DESCRIPTION = "a matmul on several chips"
VM = pl.BlockSpec(memory_space=pltpu.VMEM)


def ring():
    me, chips = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    return me, chips, jax.lax.rem(me + 1, chips), jax.lax.rem(me - 1 + chips, chips)


def signal(sem, chip, n=1):
    pl.semaphore_signal(sem, n, device_id=(chip,))


def remote(src, dst, s, r, chip):
    return pltpu.make_async_remote_copy(src, dst, s, r, device_id=(chip,))


def enter(barrier, *chips):
    for chip in chips:
        signal(barrier, chip)
    pl.semaphore_wait(barrier, len(chips))


def dot(a, b):
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def params(cid=0):
    return pltpu.CompilerParams(collective_id=cid, has_side_effects=True, vmem_limit_bytes=100 * 2**20)


def kernel(a_ref, b_ref, c_ref, buf, sent, received, cap, slack):
    slack[...] = jnp.zeros(slack.shape, slack.dtype)
    me, chips, _, _ = ring()
    barrier = pltpu.get_barrier_semaphore()
    enter(barrier, *(jax.lax.rem(me + hop, chips) for hop in range(1, chips)))
    half = a_ref.shape[0] // 2

    def copies(r):
        return [
            remote(
                a_ref.at[pl.ds(r * half, half)],
                buf.at[hop - 1],
                sent.at[r, hop - 1],
                received.at[r, hop - 1],
                jax.lax.rem(me + hop, chips),
            )
            for hop in range(1, chips)
        ]

    for r in range(2):
        moved = copies(r)
        if r:

            @pl.loop(0, 300)
            def _(_):
                slack[...] += 1.0

        for copy in moved:
            if r:
                pl.semaphore_wait(cap, 1)
            copy.start()
        rows = pl.ds(r * half, half)
        c_ref[me, rows] = dot(a_ref[rows], b_ref[...]).astype(c_ref.dtype)
        for hop, copy in enumerate(moved, 1):
            copy.wait()
            source = jax.lax.rem(me - hop + chips, chips)
            c_ref[source, rows] = dot(buf[hop - 1], b_ref[...]).astype(c_ref.dtype)
            if not r:
                signal(cap, source)


def shard_fn(a, b):
    chips = jax.lax.axis_size("x")
    (rows, k), n = a.shape, b.shape[1]
    sems = pltpu.SemaphoreType.DMA((2, chips - 1))
    c = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((chips, rows, n), a.dtype),
        in_specs=[VM, VM],
        out_specs=VM,
        scratch_shapes=[
            pltpu.VMEM((chips - 1, rows // 2, k), a.dtype),
            sems,
            sems,
            pltpu.SemaphoreType.REGULAR,
            pltpu.VMEM((8, 128), jnp.float32),
        ],
        compiler_params=params(),
        name=KERNEL_NAME,
    )(a, b)
    return c.reshape(rows * chips, n)


def kernel_fn(a, b):
    return jax.shard_map(shard_fn, in_specs=(P("x", None), P(None, "x")), out_specs=P(None, "x"), check_vma=False)(a, b)
