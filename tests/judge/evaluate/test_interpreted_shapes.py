"""Kernels that are interpreted at every step of the contest's own shape, however many steps there are."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from refusals import rejected

from harness.hardware import chip
from harness.judge.evaluate.trace import smaller_shapes
from harness.judge.evaluate.trace.traced import traced_program
from harness.operators import Matmul
from harness.sandbox import asked_device

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


def of_rows(rows: int) -> Callable[..., Any]:
    """A copy in blocks of `rows` rows, which refuses lengths that are no multiple of `rows`."""

    def function(a: Any, b: Any) -> Any:
        if a.shape[0] % rows:
            raise ValueError(f"expected {rows} to divide {a.shape[0]}")
        spec = pl.BlockSpec((rows, a.shape[1]), lambda i: (i, 0))
        shape = jax.ShapeDtypeStruct(a.shape, jnp.bfloat16)
        return pl.pallas_call(copy, out_shape=shape, grid=(a.shape[0] // rows,), in_specs=[spec], out_specs=spec)(a)

    return function


@pytest.mark.parametrize(
    ("rows", "length", "why"),
    [
        (128, 1024, ""),
        (512, 1024, "(m x n x k): the blocks do not divide it, or an axis has only one step"),
        (384, 768, "(m x n x k): tracing kernel_fn failed: ValueError: expected 384 to divide 512"),
        (128, 256, "the problem has none"),
    ],
)
def test_where_no_smaller_shape_will_do_the_warning_says_why(rows: int, length: int, why: str) -> None:
    function = of_rows(rows)
    full = traced_program(function, Matmul(m=length, n=256, k=256), chip("v5e"))
    position, reduced, failure = smaller_shapes.choose_reduced(function, full)
    assert (position is None) == (reduced is full) == bool(why)
    assert why in failure
    if why:
        _, (warning,) = smaller_shapes.second(function, full, reduced, failure)
        assert "`reduced shapes` uses the contest's own shape" in warning
        assert why in warning


def in_a_pipeline(a: Any, b: Any) -> Any:
    """A copy of `a` in the blocks of an inner grid, which only the loop of the pipeline shows."""
    rows, columns = a.shape

    def outer(a_hbm: Any, o_hbm: Any) -> None:
        spec = pl.BlockSpec((2 * BLOCK, 2 * BLOCK), lambda i, j: (i, j))
        grid = rows // (2 * BLOCK), columns // (2 * BLOCK)
        pltpu.emit_pipeline(copy, grid=grid, in_specs=[spec], out_specs=[spec])(a_hbm, o_hbm)

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    shape = jax.ShapeDtypeStruct(a.shape, jnp.bfloat16)
    return pl.pallas_call(outer, out_shape=shape, in_specs=[anywhere], out_specs=anywhere)(a)


@pytest.mark.long
def test_the_loop_of_a_pipeline_takes_several_steps_at_the_reduced_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    with asked_device.asked_for(chip("v5e")), asked_device.aiming_at(chip("v5e")):
        full = traced_program(in_a_pipeline, PROBLEM, chip("v5e"))
        position, reduced, _ = smaller_shapes.choose_reduced(in_a_pipeline, full)
        monkeypatch.setattr(smaller_shapes, "_LOOP_STEPS", 0)
        smallest = smaller_shapes.choose_reduced(in_a_pipeline, full)[1]
    assert position is not None
    assert [steps for steps, copies in smaller_shapes._loops(full) if copies] == [16]
    ((steps, _),) = smaller_shapes._loops(reduced)
    assert 8 <= steps <= 16
    # Without the preference a shape of one block would do.
    assert smaller_shapes._loops(smallest) == [(1, False)]


def test_scratch_in_hbm_is_refused_with_a_way_out() -> None:
    def through_hbm(a_hbm: Any, o_ref: Any, scratch: Any) -> None:
        pltpu.sync_copy(a_hbm.at[pl.ds(0, BLOCK), pl.ds(0, BLOCK)], scratch)
        pltpu.sync_copy(scratch, o_ref)

    scratch = [pltpu.HBM((BLOCK, BLOCK), jnp.bfloat16)]
    function = called(through_hbm, pl.BlockSpec(memory_space=pl.ANY), block(), scratch_shapes=scratch)
    with asked_device.aiming_at(chip("v5e")), rejected("not-interpretable", "as another output of pallas_call"):
        traced_program(function, PROBLEM, chip("v5e"))
