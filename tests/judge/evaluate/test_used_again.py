"""Memory that other chips send to may not be used twice: one collective_id in two kernels, scopes after each other."""

import jax
import jax.numpy as jnp
import pytest
from refusals import rejected

from harness.hardware import chip, with_mesh
from harness.judge.evaluate.trace.one_core import refuse_sharded
from harness.sandbox import asked_device
from harness.selftest import planted

ON = with_mesh(chip("v5e"), (("x", 4),))
SHAPES = {
    "moved": (jax.ShapeDtypeStruct((512, 256), jnp.bfloat16),),
    "scattered": (jax.ShapeDtypeStruct((4, 512, 256), jnp.float32),),
    "gathered": (jax.ShapeDtypeStruct((512, 512), jnp.bfloat16), jax.ShapeDtypeStruct((512, 1024), jnp.bfloat16)),
}


def refuse(name: str) -> None:
    (kernel,) = planted.select(planted.kernels(), (name,))
    module: dict[str, object] = {}
    exec(planted.source(kernel), module)
    with asked_device.aiming_at(ON):
        traced = jax.make_jaxpr(module["kernel_fn"])(*SHAPES[kernel.contest])
    refuse_sharded(traced.jaxpr, ON)


@pytest.mark.parametrize(
    "name", ["moved_pairs_two_ids", "scattered_one_scope", "scattered", "moved", "gathered_two_slots"]
)
def test_what_is_used_once_may_be_sent_to(name: str) -> None:
    refuse(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("moved_pairs_one_id", "a different collective_id for each kernel call, got 0 again"),
        ("scattered_scope_each_step", "send to memory and semaphores of scratch_shapes"),
        ("scattered_semaphores_of_scopes", "send to memory and semaphores of scratch_shapes"),
        ("gathered_credit_by_the_barrier", "waits for the barrier semaphore before the kernel's first copy"),
        ("moved_into_a_window", "copies to a block of an input or output"),
    ],
)
def test_what_is_used_again_may_not(name: str, words: str) -> None:
    with rejected("sharded", words):
        refuse(name)
