"""The loop over a grid on the CPU: the bits of JAX's own, at the cost of a step's blocks."""

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from narrowing import present

from harness.judge.evaluate.interpret.grid_loop import quick_grid_loop

ROWS, COLUMNS, BLOCK, STEPS = 256, 128, 32, 4


def summed(x_ref: Any, y_ref: Any, o_ref: Any, acc_ref: Any) -> None:
    """Sums products of blocks, which are read only in a branch: JAX passes them on as if they had been written."""
    step = pl.program_id(1)

    @pl.when(step == 0)
    def begin() -> None:
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(step < STEPS)
    def add() -> None:
        acc_ref[...] += x_ref[...].astype(jnp.float32) * y_ref[...].astype(jnp.float32)

    @pl.when(step == STEPS - 1)
    def finish() -> None:
        o_ref[...] = acc_ref[...].astype(o_ref.dtype)


def writing(x_ref: Any, y_ref: Any, o_ref: Any, acc_ref: Any) -> None:
    """Writes to a window of an input, which a later step reads again."""
    acc_ref[...] = x_ref[...].astype(jnp.float32)
    x_ref[...] = x_ref[...] + y_ref[...]
    o_ref[...] = x_ref[...] + acc_ref[...].astype(o_ref.dtype)


def unwritten(x_ref: Any, y_ref: Any, o_ref: Any, acc_ref: Any) -> None:
    """Writes half of its outputs."""

    @pl.when(pl.program_id(0) % 2 == 0)
    def half() -> None:
        o_ref[...] = x_ref[...]


def call(kernel: Callable[..., None], x: Any, y: Any, *, rows: int = BLOCK, aliased: bool = False) -> Any:
    row_block = pl.BlockSpec((rows, COLUMNS), lambda i, j: (i, 0))
    other = pl.BlockSpec((rows, COLUMNS), lambda i, j: ((i + j) % (y.shape[0] // rows), 0))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(-(-x.shape[0] // rows), STEPS),
        in_specs=[row_block, other],
        out_specs=row_block,
        scratch_shapes=[pltpu.VMEM((rows, COLUMNS), jnp.float32)],
        input_output_aliases={0: 0} if aliased else {},
        interpret=True,
    )(x, y)


def operands(dtype: Any, rows: int = ROWS) -> tuple[jax.Array, jax.Array]:
    x, y = np.random.default_rng(1).standard_normal((2, rows, COLUMNS)) * 8
    return jnp.asarray(x, dtype), jnp.asarray(y, dtype)


def compiled(function: Callable[..., Any], *arrays: jax.Array) -> Any:
    return jax.jit(lambda *values: function(*values)).lower(*arrays).compile()


@pytest.mark.long
@pytest.mark.parametrize("kernel", [summed, writing, unwritten])
@pytest.mark.parametrize(
    ("dtype", "how"),
    [
        *((dtype, {}) for dtype in (jnp.bfloat16, jnp.float16, jnp.float32, jnp.uint16)),
        (jnp.bfloat16, {"aliased": True}),
        (jnp.bfloat16, {"rows": 96}),
    ],
)
def test_the_bits_are_those_of_jax(kernel: Callable[..., None], dtype: Any, how: dict[str, Any]) -> None:
    arrays, function = operands(dtype), functools.partial(call, kernel, **how)
    if how == {"rows": 96}:
        arrays = (arrays[0], operands(dtype, 288)[1])
    expected = compiled(function, *arrays)(*arrays)
    with quick_grid_loop():
        program = compiled(function, *arrays)
    results = program(*arrays)
    assert results.dtype == dtype
    assert np.asarray(results).tobytes() == np.asarray(expected).tobytes()


@pytest.mark.long
def test_a_step_costs_its_blocks() -> None:
    arrays, function = operands(jnp.bfloat16), functools.partial(call, summed)
    with quick_grid_loop():
        text = compiled(function, *arrays).as_text()
    # Only the output is updated, once, as integers: inputs that are only read are never written back.
    updates = re.findall(rf"= (\w+)\[{ROWS},{COLUMNS}\]\S* dynamic-update-slice\(", text)
    assert updates == ["u16"]
    assert f"bf16[{ROWS},{COLUMNS}]" not in present(re.search(r"\n%?region_\S+ \(arg_tuple.*?\n}", text, re.S)).group()


def test_a_jax_with_other_functions_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax._src.pallas import hlo_interpreter

    monkeypatch.setattr(hlo_interpreter, "_pad_to_block_dimension", lambda value: value)
    before = dict(vars(hlo_interpreter))
    with quick_grid_loop():
        assert dict(vars(hlo_interpreter)) == before
