"""Functions for several chips: remote copies, XLA's collectives, and programs with deliberate mistakes."""

from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.all_gather import all_gather
from jax.sharding import PartitionSpec as P

_MESH = pl.DeviceIdType.MESH


def _to_the_right(signals: int, *, sent: int = 1, beyond: bool = False) -> Any:
    """A kernel that sends its shard to the next chip of the ring, after a barrier that waits for so many signals.

    Each neighbour gets `sent` signals. `beyond`: the last chip sends to a neighbour that does not exist.
    """

    def body(x_ref: Any, o_ref: Any, send: Any, receive: Any) -> None:
        me, count = jax.lax.axis_index("x"), jax.lax.axis_size("x")
        right, left = me + 1 if beyond else jax.lax.rem(me + 1, count), jax.lax.rem(me - 1 + count, count)
        barrier = pltpu.get_barrier_semaphore()
        for neighbour in (left, right):
            pl.semaphore_signal(barrier, sent, device_id=(neighbour,), device_id_type=_MESH)
        pl.semaphore_wait(barrier, signals)
        copy = pltpu.make_async_remote_copy(x_ref, o_ref, send, receive, device_id=(right,), device_id_type=_MESH)
        copy.start()
        copy.wait()

    def shard(x: jax.Array) -> jax.Array:
        anywhere = pl.BlockSpec(memory_space=pl.ANY)
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            in_specs=[anywhere],
            out_specs=anywhere,
            scratch_shapes=[pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA],
            compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
        )(x)

    return jax.shard_map(shard, in_specs=P("x"), out_specs=P("x"), check_vma=False)


permuted = _to_the_right(2)
# Each chip waits for a third signal, which nobody sends.
stuck = _to_the_right(3)
# Half of what each chip sends is never waited for.
unheard = _to_the_right(2, sent=2)
# The last chip sends to one that does not exist.
beyond = _to_the_right(2, beyond=True)


def _twice_around(*, are_semaphores_used_again: bool) -> Any:
    """A kernel that passes its shard from chip to chip, two steps less than twice around the ring.

    Each step has its own memory. `are_semaphores_used_again`: the second round uses the semaphores of the first, so a
    chip that is ahead may end a neighbour's wait in the first round.
    """

    def body(x_ref: Any, o_ref: Any, room: Any, sent: Any, received: Any) -> None:
        me, count = jax.lax.axis_index("x"), jax.lax.axis_size("x")
        right, left = jax.lax.rem(me + 1, count), jax.lax.rem(me - 1 + count, count)
        barrier = pltpu.get_barrier_semaphore()
        for neighbour in (left, right):
            pl.semaphore_signal(barrier, 1, device_id=(neighbour,), device_id_type=_MESH)
        pl.semaphore_wait(barrier, 2)
        room[0] = x_ref[...]
        steps = 2 * (count - 1)
        for step in range(steps):
            slot = step % (count - 1) if are_semaphores_used_again else step
            copy = pltpu.make_async_remote_copy(
                room.at[step], room.at[step + 1], sent.at[slot], received.at[slot], (right,), _MESH
            )
            copy.start()
            copy.wait()
        o_ref[...] = room[steps]

    def shard(x: jax.Array) -> jax.Array:
        steps = 2 * (jax.lax.axis_size("x") - 1)
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            scratch_shapes=[pltpu.VMEM((steps + 1, *x.shape), x.dtype), *[pltpu.SemaphoreType.DMA((steps,))] * 2],
            compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
        )(x)

    return jax.shard_map(shard, in_specs=P("x"), out_specs=P("x"), check_vma=False)


twice_around = _twice_around(are_semaphores_used_again=False)
ahead = _twice_around(are_semaphores_used_again=True)


def gathered_by_jax(x: jax.Array) -> jax.Array:
    """JAX's own kernel, as it is shipped."""
    return all_gather(x, mesh=jax.sharding.get_abstract_mesh(), axis_name="x")


def pairs(x: jax.Array) -> jax.Array:
    """XLA's permutation that swaps chips 0 and 1, and chips 2 and 3."""
    swaps = [(0, 1), (1, 0), (2, 3), (3, 2)]
    return jax.shard_map(
        lambda shard: jax.lax.ppermute(shard, "x", swaps), in_specs=P("x"), out_specs=P("x"), check_vma=False
    )(x)


def beside(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The permutation of `pairs`, next to work that does not need it."""

    def shard(part: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.ppermute(part, "x", [(0, 1), (1, 0), (2, 3), (3, 2)]), jax.numpy.tanh(part @ part.T)

    both: tuple[jax.Array, jax.Array]
    both = jax.shard_map(shard, in_specs=P("x"), out_specs=(P("x"), P("x")), check_vma=False)(x)
    return both


def gathered(x: jax.Array) -> jax.Array:
    """XLA's all-gather."""
    return jax.shard_map(
        lambda shard: jax.lax.all_gather(shard, "x", tiled=True), in_specs=P("x"), out_specs=P(None), check_vma=False
    )(x)


def gathered_and_scaled(x: jax.Array) -> jax.Array:
    """The all-gather and a constant of floating-point numbers, which lies before XLA's tables in the executable."""
    scales = np.arange(3000, dtype=np.float32).reshape(3, 1000)
    return gathered(x)[:3, :1000] * scales


def summed(x: jax.Array) -> jax.Array:
    """XLA's all-reduce."""
    return jax.shard_map(lambda shard: jax.lax.psum(shard, "x"), in_specs=P("x"), out_specs=P(None), check_vma=False)(x)


def exchanged(x: jax.Array) -> jax.Array:
    """XLA's all-to-all."""
    return jax.shard_map(
        lambda shard: jax.lax.all_to_all(shard, "x", 1, 0, tiled=True),
        in_specs=P("x"),
        out_specs=P("x"),
        check_vma=False,
    )(x)


def multiplied(left: jax.Array, right: jax.Array) -> jax.Array:
    """XLA's product of rows and columns that are both split over the chips: XLA gathers the rows first."""
    return jax.shard_map(
        lambda rows, columns: jax.lax.all_gather(rows, "x", tiled=True) @ columns,
        in_specs=(P("x", None), P(None, "x")),
        out_specs=P(None, "x"),
        check_vma=False,
    )(left, right)


def product(left: jax.Array, right: jax.Array) -> jax.Array:
    """The product alone, of the operands that one chip of `multiplied` has after the gather."""
    return left @ right


def training_step(x: jax.Array, y: jax.Array, *weights: jax.Array) -> tuple[jax.Array, ...]:
    """One step of gradient descent for two MLPs: `x`, `y` [tokens, model], `weights` w1 [model, hidden], w2, w1, w2.

    On a mesh (data, tensor) the tokens are split over the first axis, the hidden dimension over the second.
    """

    def loss(weights: tuple[jax.Array, ...]) -> jax.Array:
        hidden = x
        for first, second in zip(weights[::2], weights[1::2], strict=True):
            hidden = jax.nn.relu(hidden @ first) @ second
        return ((hidden - y).astype("float32") ** 2).mean()

    gradients = jax.grad(loss)(weights)
    return tuple((each - 0.01 * change).astype(each.dtype) for each, change in zip(weights, gradients, strict=True))
