"""Which kernels are interpreted at every step of the contest's own shape, however many there are."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.hardware import chip
from harness.judge.evaluate.trace import smaller_shapes
from harness.judge.evaluate.trace.traced import traced_program
from harness.problems import Matmul

SIZE, BLOCK = 1024, 128
PROBLEM = Matmul(m=SIZE, n=SIZE, k=SIZE)
OUTPUT = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16)
# Twice as many steps as the output has blocks.
GRID = (SIZE // BLOCK, 2, SIZE // BLOCK)


def block(index_map: Callable[..., Any] = lambda i, _, j: (i, j)) -> pl.BlockSpec:
    return pl.BlockSpec((BLOCK, BLOCK), index_map)


def copy(a_ref: Any, o_ref: Any) -> None:
    o_ref[...] = a_ref[...]


def copy_by_hand(a_hbm: Any, o_ref: Any) -> None:
    rows = pl.ds(pl.program_id(0) * BLOCK, BLOCK)
    pltpu.sync_copy(a_hbm.at[rows, pl.ds(pl.program_id(2) * BLOCK, BLOCK)], o_ref)


def called(body: Any, source: pl.BlockSpec, target: pl.BlockSpec, **options: Any) -> Callable[..., Any]:
    call = pl.pallas_call(body, out_shape=OUTPUT, grid=GRID, in_specs=[source], out_specs=target, **options)
    return lambda a, b: call(a)


EACH_ONCE = block(lambda i, half, j: (i, 4 * half + j // 2))
PLAIN = called(copy, EACH_ONCE, EACH_ONCE)
BY_HAND = called(copy_by_hand, pl.BlockSpec(memory_space=pl.ANY), EACH_ONCE)
ALIASED = called(copy, EACH_ONCE, EACH_ONCE, input_output_aliases={0: 0})
REVISITED = called(copy, block(), block())


@pytest.mark.parametrize(
    ("function", "name", "is_interpreted"),
    [
        pytest.param(PLAIN, "v5e", False, id="each block once"),
        pytest.param(PLAIN, "v7x", False, id="one core of a chip with two"),
        pytest.param(PLAIN, "v4", True, id="both cores"),
        pytest.param(BY_HAND, "v5e", True, id="copies by hand"),
        pytest.param(ALIASED, "v5e", True, id="output over an input"),
        pytest.param(REVISITED, "v5e", True, id="block visited again"),
    ],
)
def test_every_step_is_interpreted_where_it_matters_when_memory_is_read_and_written(
    function: Callable[..., Any], name: str, is_interpreted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smaller_shapes, "_INTERPRETED_STEPS", 0)
    full, reduced = (traced_program(function, PROBLEM, chip(name)) for _ in range(2))
    _, interpret_full, warnings = smaller_shapes.at_full(full, reduced)
    assert interpret_full == is_interpreted
    assert bool(warnings) != is_interpreted
