"""Kernels may not write to inputs in HBM, wherever the write stands; a wait writes nothing."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.hardware import chip, with_mesh
from harness.judge.evaluate.trace.forbidden_operations import refuse_written_inputs
from harness.sandbox import asked_device
from harness.sandbox.messages import Rejected

MESH = (("x", 4),)
SHAPE = (8, 128)


def traced(body: Callable[..., Any]) -> Any:
    """A kernel of x and o in HBM, memory in VMEM and two DMA semaphores, on each of four chips."""
    in_hbm = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(SHAPE, jnp.float32),
        in_specs=[in_hbm],
        out_specs=in_hbm,
        scratch_shapes=[pltpu.VMEM(SHAPE, jnp.float32), pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA],
        compiler_params=pltpu.CompilerParams(has_side_effects=True),
    )
    split = jax.sharding.PartitionSpec("x")
    with asked_device.aiming_at(with_mesh(chip("v5e"), MESH)):
        sharded = jax.shard_map(call, in_specs=split, out_specs=split, check_vma=False)
        return jax.make_jaxpr(sharded)(jax.ShapeDtypeStruct((32, 128), jnp.float32)).jaxpr


def remote(source: Any, target: Any, *semaphores: Any) -> Any:
    after = jax.lax.rem(jax.lax.axis_index("x") + 1, 4)
    return pltpu.make_async_remote_copy(source, target, *semaphores, device_id=(after,))


def sends_an_input(x: Any, o: Any, memory: Any, sent: Any, received: Any) -> None:
    copy = remote(x, o, sent, received)
    copy.start()
    copy.wait()


def sends_an_input_in_a_loop(x: Any, o: Any, memory: Any, sent: Any, received: Any) -> None:
    @pl.loop(0, 2)
    def _(_: Any) -> None:
        sends_an_input(x, o, memory, sent, received)


def copies_to_an_input(x: Any, o: Any, memory: Any, sent: Any, received: Any) -> None:
    pltpu.make_async_copy(memory, x, sent).start()


def copies_to_an_input_under_a_condition(x: Any, o: Any, memory: Any, sent: Any, received: Any) -> None:
    @pl.when(jax.lax.axis_index("x") == 0)
    def _() -> None:
        copies_to_an_input(x, o, memory, sent, received)


def copies_to_an_input_in_a_loop(x: Any, o: Any, memory: Any, sent: Any, received: Any) -> None:
    @pl.loop(0, 2)
    def _(_: Any) -> None:
        copies_to_an_input(x, o, memory, sent, received)


def copies_to_an_input_in_a_scope(x: Any, o: Any, memory: Any, sent: Any, received: Any) -> None:
    def scope(more: Any) -> None:
        pltpu.make_async_copy(more, x, sent).start()

    pl.run_scoped(scope, pltpu.VMEM(SHAPE, jnp.float32))


def sends_to_an_input(x: Any, o: Any, memory: Any, sent: Any, received: Any) -> None:
    remote(memory, x, sent, received).start()


@pytest.mark.parametrize("body", [sends_an_input, sends_an_input_in_a_loop])
def test_an_input_may_be_sent_and_waited_for(body: Callable[..., Any]) -> None:
    refuse_written_inputs(traced(body))


@pytest.mark.parametrize(
    "body",
    [
        copies_to_an_input,
        copies_to_an_input_under_a_condition,
        copies_to_an_input_in_a_loop,
        copies_to_an_input_in_a_scope,
        sends_to_an_input,
    ],
)
def test_an_input_may_not_be_written_wherever_that_stands(body: Callable[..., Any]) -> None:
    with pytest.raises(Rejected, match="got a copy to input 0"):
        refuse_written_inputs(traced(body))
