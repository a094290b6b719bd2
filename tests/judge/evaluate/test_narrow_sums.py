"""The lines that are named where a kernel keeps sums in bfloat16."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.judge.evaluate.trace import narrow_sums

STEPS = 4
BODIES = """
def to_scratch(x_ref, o_ref, total_ref):
    total_ref[...] += x_ref[...]
    o_ref[...] = total_ref[...].astype(o_ref.dtype)


def widened_between(x_ref, o_ref, total_ref):
    total = total_ref[...].astype("float32") + x_ref[...].astype("float32")
    total_ref[...] = total.astype(total_ref.dtype)
    o_ref[...] = total_ref[...].astype(o_ref.dtype)


def in_a_loop(x_ref, o_ref, total_ref):
    zero = jax.numpy.zeros(x_ref.shape, total_ref.dtype)
    o_ref[...] = jax.lax.fori_loop(0, 4, lambda _, total: total + x_ref[...], zero).astype(o_ref.dtype)


def once(x_ref, o_ref, total_ref):
    total_ref[...] = x_ref[...].astype(total_ref.dtype) + x_ref[...].astype(total_ref.dtype)
    o_ref[...] = (total_ref[...] + x_ref[...]).astype(o_ref.dtype)
"""


def lines(name: str, kept_in: Any) -> tuple[str, ...]:
    # A candidate's files see themselves by their bare names.
    bodies: dict[str, Any] = {"jax": jax}
    exec(compile(BODIES, "kernel.py", "exec"), bodies)
    block = pl.BlockSpec((8, 128), lambda i: (i, 0))
    call = pl.pallas_call(
        bodies[name],
        grid=(STEPS,),
        in_specs=[block],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct((8 * STEPS, 128), jnp.float32),
        scratch_shapes=[pltpu.VMEM((8, 128), kept_in)],
    )
    x = jnp.zeros((8 * STEPS, 128), jnp.bfloat16)
    return narrow_sums.lines(jax.make_jaxpr(lambda x: call(x))(x).jaxpr)


@pytest.mark.parametrize(("name", "line"), [("to_scratch", 3), ("widened_between", 8), ("in_a_loop", 15)])
def test_an_addition_to_what_is_kept_in_bfloat16_is_named(name: str, line: int) -> None:
    assert lines(name, jnp.bfloat16) == (f"kernel.py line {line}",)


@pytest.mark.parametrize(("name", "kept_in"), [("to_scratch", jnp.float32), ("once", jnp.bfloat16)])
def test_no_addition_is_named_where_nothing_is_summed_in_bfloat16(name: str, kept_in: Any) -> None:
    assert lines(name, kept_in) == ()
