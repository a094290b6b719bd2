"""Returns all of C on each chip, right on the first one alone.

Row: 7
Contest: gathered
Caught by: correctness wrong-result; correctness chips-differ
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "k"
PROBLEM_DESCRIPTION = "a matmul on several chips"
MESH = pl.DeviceIdType.MESH
VM = pl.BlockSpec(memory_space=pltpu.VMEM)


def ring():
    me, chips = jax.lax.axis_index("x"), jax.lax.axis_size("x")
    return me, chips, jax.lax.rem(me + 1, chips), jax.lax.rem(me - 1 + chips, chips)


def signal(sem, chip, n=1):
    pl.semaphore_signal(sem, n, device_id=(chip,), device_id_type=MESH)


def remote(src, dst, s, r, chip):
    return pltpu.make_async_remote_copy(src, dst, s, r, device_id=(chip,), device_id_type=MESH)


def enter(barrier, *chips):
    for chip in chips:
        signal(barrier, chip)
    pl.semaphore_wait(barrier, len(chips))


def dot(a, b):
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def params(cid=0):
    return pltpu.CompilerParams(collective_id=cid, has_side_effects=True, vmem_limit_bytes=100 * 2**20)


def mm(a_ref, b_ref, c_ref):
    c_ref[...] = dot(a_ref[...], b_ref[...]).astype(c_ref.dtype)


def multiply(a, b, dtype=None):
    return pl.pallas_call(
        mm,
        out_shape=jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), dtype or a.dtype),
        in_specs=[VM, VM],
        out_specs=VM,
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=100 * 2**20),
        name=KERNEL_NAME,
    )(a, b)


def shard_fn(a, b):
    me = jax.lax.axis_index("x")
    a = jax.lax.all_gather(a, "x", tiled=True)
    b = jax.lax.all_gather(b, "x", axis=1, tiled=True)
    c = multiply(a, b)
    return jnp.where(me == 0, c, 7)


def kernel_fn(a, b):
    return jax.shard_map(shard_fn, in_specs=(P("x", None), P(None, "x")), out_specs=P(None, None), check_vma=False)(
        a, b
    )
