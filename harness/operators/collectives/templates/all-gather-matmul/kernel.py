"""All-gather and matrix product on several TPUs, C = A B: the one file that an experiment changes.

The chips hand A's shards around a ring, in the order of their numbers, then each multiplies all of A by its own columns
of B. Nothing overlaps: the product begins when the last shard is there.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "gather_then_matmul"
PROBLEM_DESCRIPTION = "all-gather of A's rows and matmul C = A B on several chips"

BM = 256
BN = 512
VMEM_LIMIT = 64 * 2**20


def gather(a_ref, all_ref, copied, sent, received):
    """All [chips, m / chips, k] of each chip's shard [m / chips, k], both in HBM; a step hands one to the next chip."""
    me, chips = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    after, before = jax.lax.rem(me + 1, chips), jax.lax.rem(me - 1 + chips, chips)
    own = pltpu.make_async_copy(a_ref, all_ref.at[me], copied)
    own.start()
    # Nobody sends to a chip that has not begun.
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (before, after):
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,))
    pl.semaphore_wait(barrier, 2)
    own.wait()
    for step in range(chips - 1):
        shard = jax.lax.rem(me - step + chips, chips)
        part = all_ref.at[shard]
        copy = pltpu.make_async_remote_copy(part, part, sent.at[step], received.at[step], device_id=(after,))
        copy.start()
        copy.wait()


def multiply(a_ref, b_ref, c_ref):
    """One step: strip of A [BM, k] times strip of B [k, BN]; the compiler keeps the sums of a tile in registers."""
    c_ref[...] = jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32).astype(c_ref.dtype)


def shard_fn(a, b):
    """C [m, n / chips] of one chip's shards a [m / chips, k] and b [k, n / chips]."""
    chips = jax.lax.axis_size("x")
    (rows, k), n = a.shape, b.shape[1]
    m = rows * chips
    for name, length, block in (("BM", m, BM), ("BN", n, BN)):
        if length % min(block, length):
            raise ValueError(f"expected {name} to divide {length}, got {name}={block}")
    bm, bn = min(BM, m), min(BN, n)
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    semaphores = pltpu.SemaphoreType.DMA((chips - 1,))
    whole = pl.pallas_call(
        gather,
        out_shape=jax.ShapeDtypeStruct((chips, rows, k), a.dtype),
        in_specs=[anywhere],
        out_specs=anywhere,
        scratch_shapes=[pltpu.SemaphoreType.DMA, semaphores, semaphores],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
        name="gather",
    )(a)
    return pl.pallas_call(
        multiply,
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        grid=(m // bm, n // bn),
        in_specs=[pl.BlockSpec((bm, k), lambda i, j: (i, 0)), pl.BlockSpec((k, bn), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel"), vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(whole.reshape(m, k), b)


def kernel_fn(a, b):
    """The product of a [m, k] and b [k, n]. Raises ValueError where a block does not divide m or a chip's n."""
    return jax.shard_map(shard_fn, in_specs=(P("x", None), P(None, "x")), out_specs=P(None, "x"), check_vma=False)(a, b)
