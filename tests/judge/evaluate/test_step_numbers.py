"""A kernel may ask which step it is at in branches, loops, functions and scoped memory, as on a chip."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.hardware import chip
from harness.judge.evaluate.interpret import interpretation, transfers

STEPS, BLOCK = 4, (8, 128)


def in_a_branch(x: Any, o: Any) -> None:
    @pl.when(x[0, 0] > 0)
    def _() -> None:
        o[...] = x[...] * pl.program_id(0)


def in_a_loop(x: Any, o: Any) -> None:
    o[...] = x[...] * jax.lax.fori_loop(0, 4, lambda i, total: total + pl.program_id(0) * i + pl.num_programs(0), 0)


def in_a_condition(x: Any, o: Any) -> None:
    count = jax.lax.while_loop(lambda i: i < pl.program_id(0) + 3, lambda i: i + 1 + 0 * pl.program_id(0), 0)
    o[...] = x[...] * count


def in_scoped_memory(x: Any, o: Any) -> None:
    def body(kept: Any) -> None:
        kept[...] = x[...] * pl.program_id(0)
        o[...] = kept[...]

    pl.run_scoped(body, pltpu.VMEM(BLOCK, jnp.float32))


def in_a_branch_of_a_loop(x: Any, o: Any) -> None:
    def body(i: Any, _: None) -> None:
        @pl.when(i > 1)
        def _write() -> None:
            o[...] = x[...] * (pl.program_id(0) + i)

    jax.lax.fori_loop(0, 4, body, None)


def in_a_function(x: Any, o: Any) -> None:
    o[...] = jax.jit(lambda block: block * pl.program_id(0))(x[...])


@pytest.mark.long
@pytest.mark.parametrize("is_checked", [False, True])
@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (in_a_branch, [0, 1, 2, 3]),
        (in_a_loop, [16, 22, 28, 34]),
        (in_a_condition, [3, 4, 5, 6]),
        (in_scoped_memory, [0, 1, 2, 3]),
        (in_a_branch_of_a_loop, [3, 4, 5, 6]),
        (in_a_function, [0, 1, 2, 3]),
    ],
)
def test_the_step_is_known_wherever_it_is_asked_for(
    kernel: Callable[..., None], expected: list[int], is_checked: bool
) -> None:
    x = np.ones((STEPS * BLOCK[0], BLOCK[1]), np.float32)
    block = pl.BlockSpec(BLOCK, lambda i: (i, 0))
    call = pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(STEPS,), in_specs=[block], out_specs=block
    )
    interpret = interpretation.checking_parameters(chip("v5e"), STEPS) if is_checked else True
    with transfers.transfers_end("last"):
        program = interpretation.runnable(jax.make_jaxpr(call)(x), interpret, chip("v5e"))
        numbers = np.asarray(jax.jit(program)(x)[0])
    interpretation.reset()
    assert numbers[:: BLOCK[0], 0].tolist() == expected
