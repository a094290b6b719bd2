"""Attention on several TPUs, softmax(scale Q K^T) V, not masked: the one file that an experiment changes.

Each chip keeps its queries. The shards of keys and values go around a ring, one way round, in the order of the chips'
numbers; a chip attends to the shard that it has, with a running maximum and sum for each query, then hands it on.
Nothing overlaps: the next shard sets out when the chip is done with it.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "ring_attention"
PROBLEM_DESCRIPTION = "attention forward over several chips, not causal, softmax scale 1/sqrt(head_dim)"

BQ = 256
VMEM_LIMIT = 100 * 2**20


def attend(q_ref, k_ref, v_ref, o_ref, keys, values, m_ref, l_ref, acc_ref, sent, received, *, scale):
    """o [heads, rows, d] of q [heads, rows, d] and all keys; keys, values [chips, kv_heads, rows, d]: one shard a step.

    m, l, acc [heads, rows, d] float32: the running maximum and sum of each query (the same in every column) and the
    output not yet divided.
    """
    me, chips = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    after, before = jax.lax.rem(me + 1, chips), jax.lax.rem(me - 1 + chips, chips)
    heads, rows, _ = q_ref.shape
    group, block = heads // k_ref.shape[0], min(BQ, rows)
    keys[0], values[0] = k_ref[...], v_ref[...]
    m_ref[...] = jnp.full_like(m_ref, -jnp.inf)
    l_ref[...] = jnp.zeros_like(l_ref)
    acc_ref[...] = jnp.zeros_like(acc_ref)

    def attend_to(step):
        @pl.loop(0, heads * (rows // block))
        def _(number):
            head = number // (rows // block)
            at = head, pl.ds(pl.multiple_of(number % (rows // block) * block, block), block)
            k, v = keys[step, head // group], values[step, head // group]
            scores = scale * jax.lax.dot_general(
                q_ref[at], k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            )
            old_max = m_ref[at][:, :1]
            new_max = jnp.maximum(old_max, scores.max(axis=1, keepdims=True))
            weights = jnp.exp(scores - new_max)
            # What was summed up so far was relative to the old maximum.
            rescale = jnp.exp(old_max - new_max)
            m_ref[at] = jnp.broadcast_to(new_max, (block, m_ref.shape[2]))
            l_ref[at] = l_ref[at] * rescale + weights.sum(axis=1, keepdims=True)
            weighed = jnp.dot(weights.astype(v.dtype), v, preferred_element_type=jnp.float32)
            acc_ref[at] = acc_ref[at] * rescale + weighed

    # Nobody sends to a chip that has not begun.
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (before, after):
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,))
    pl.semaphore_wait(barrier, 2)
    for step in range(chips):
        attend_to(step)
        if step < chips - 1:
            copies = [
                pltpu.make_async_remote_copy(
                    ref.at[step], ref.at[step + 1], sent.at[step, i], received.at[step, i], device_id=(after,)
                )
                for i, ref in enumerate((keys, values))
            ]
            for copy in copies:
                copy.start()
            for copy in copies:
                copy.wait()
    o_ref[...] = (acc_ref[...] / l_ref[...]).astype(o_ref.dtype)


def shard_fn(q, k, v):
    """o of one chip's queries q [heads, sequence / chips, d] and shards k, v [kv_heads, sequence / chips, d]."""
    if q.ndim == 2:
        return shard_fn(q[None], k[None], v[None])[0]
    chips = jax.lax.axis_size("x")
    if q.shape[1] % min(BQ, q.shape[1]):
        raise ValueError(f"expected BQ to divide the {q.shape[1]} queries of a chip, got BQ={BQ}")
    in_vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    shards, running = pltpu.VMEM((chips, *k.shape), k.dtype), pltpu.VMEM(q.shape, jnp.float32)
    semaphores = pltpu.SemaphoreType.DMA((chips - 1, 2))
    return pl.pallas_call(
        functools.partial(attend, scale=1 / math.sqrt(q.shape[2])),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        in_specs=[in_vmem] * 3,
        out_specs=in_vmem,
        scratch_shapes=[shards, shards, running, running, running, semaphores, semaphores],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True, vmem_limit_bytes=VMEM_LIMIT),
        name=KERNEL_NAME,
    )(q, k, v)


def kernel_fn(q, k, v):
    """Attention of q [heads, sequence, d] over k, v [kv_heads, sequence, d], or of [sequence, d] without heads.

    Query head h reads key/value head h // (heads // kv_heads). Raises ValueError where BQ does not divide the queries.
    """
    split = P(*(None,) * (q.ndim - 2), "x", None)
    return jax.shard_map(shard_fn, in_specs=split, out_specs=split, check_vma=False)(q, k, v)
