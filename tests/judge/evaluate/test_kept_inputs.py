"""Inputs that a call writes over: named where the caller keeps them, and not where they are state."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from harness.judge.evaluate.trace import kept_inputs
from harness.records import Array, Statement, Work

X = Array(name="x", shape=(16, 128), dtype="float32")


def stated(*updates: str) -> Statement:
    return Statement(
        operation="doubled",
        title="doubled",
        parameters=(),
        inputs=(X,),
        outputs=(),
        updates=updates,
        work=Work(matmul_flops=0, vector_flops=1, minimum_hbm_bytes=1),
    )


def doubled(x: Any, aliases: dict[int, int]) -> Any:
    def double(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    return pl.pallas_call(
        double, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), input_output_aliases=aliases, interpret=False
    )(x)


def overwritten(function: Any, statement: Statement) -> tuple[str, ...]:
    jaxpr = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((16, 128), jnp.float32)).jaxpr
    return kept_inputs.written_over(jaxpr, statement)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: doubled(x, {0: 0}),
        jax.jit(lambda x: doubled(x, {0: 0})),
        lambda x: doubled(x.reshape(2, 8, 128), {0: 0}),
        lambda x: doubled(x, {0: 0}) + doubled(x, {}),
    ],
)
def test_an_input_that_the_caller_keeps_is_named(function: Any) -> None:
    assert [text.partition(" in ")[0] for text in overwritten(function, stated())] == ["x"]


@pytest.mark.parametrize("function", [lambda x: doubled(x, {}), lambda x: doubled(x + 1, {0: 0})])
def test_what_is_made_on_the_way_is_the_kernels_own(function: Any) -> None:
    assert overwritten(function, stated()) == ()


def test_state_is_there_to_be_written_over() -> None:
    assert overwritten(lambda x: doubled(x, {0: 0}), stated("x")) == ()
