"""A kernel at two shapes is the same program except for sizes, or the comparison names the difference."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from narrowing import present

from harness.judge.evaluate.reach import not_interpreted
from harness.judge.evaluate.trace import same_program
from harness.records import Failure

BLOCK, LANES = 8, 128
SMALL, LARGE = 4 * BLOCK, 16 * BLOCK
Body = Callable[[Any, Any, Any, int], None]


def difference(body: Body, **options: Any) -> str | None:
    """The difference between the kernels of that body at both lengths."""

    def traced(rows: int) -> Any:
        call = pl.pallas_call(
            lambda x, o, kept: body(x, o, kept, rows),
            out_shape=jax.ShapeDtypeStruct((rows, LANES), jnp.float32),
            grid=(rows // BLOCK,),
            in_specs=[pl.BlockSpec((BLOCK, LANES), lambda i: (i, 0))],
            out_specs=pl.BlockSpec((BLOCK, LANES), lambda i: (i, 0)),
            scratch_shapes=[pltpu.VMEM((rows, LANES), jnp.float32)],
            compiler_params=pltpu.CompilerParams(**{name: value(rows) for name, value in options.items()}),
        )
        return jax.make_jaxpr(call)(jax.ShapeDtypeStruct((rows, LANES), jnp.float32))

    return same_program.difference(traced(SMALL), traced(LARGE))


def last_step(x: Any, o: Any, kept: Any, rows: int) -> None:
    @pl.when(pl.program_id(0) == pl.num_programs(0) - 1)
    def finish() -> None:
        kept[...] = jnp.zeros_like(kept)

    o[...] = x[...] + kept[pl.ds(pl.program_id(0) * BLOCK, BLOCK)]


def mean(x: Any, o: Any, kept: Any, rows: int) -> None:
    o[...] = x[...] * (1 / rows)


def loop(x: Any, o: Any, kept: Any, rows: int) -> None:
    o[...] = jax.lax.fori_loop(0, rows // BLOCK, lambda i, total: total + kept[pl.ds(i * BLOCK, BLOCK)], x[...])


@pytest.mark.parametrize("body", [last_step, mean, loop])
def test_sizes_are_no_difference(body: Body) -> None:
    assert difference(body) is None


def unrolled(x: Any, o: Any, kept: Any, rows: int) -> None:
    o[...] = sum((kept[row : row + BLOCK] for row in range(0, rows, BLOCK)), x[...])


def another_at_full_length(x: Any, o: Any, kept: Any, rows: int) -> None:
    o[...] = x[...] + 1.0 if rows == LARGE else x[...] - 1.0


def rounds_at_full_length(x: Any, o: Any, kept: Any, rows: int) -> None:
    kind = jnp.bfloat16 if rows == LARGE else jnp.float32
    o[...] = x[...].astype(kind).astype(jnp.float32)


def other_factor(x: Any, o: Any, kept: Any, rows: int) -> None:
    o[...] = x[...] * (3.0 if rows == LARGE else 2.5)


def other_operand(x: Any, o: Any, kept: Any, rows: int) -> None:
    read = x[...]
    first, other = read + 1.0, read + 2.0
    o[...] = first / other if rows == LARGE else other / first


def late_step(x: Any, o: Any, kept: Any, rows: int) -> None:
    @pl.when(pl.program_id(0) == 7)
    def fill() -> None:
        kept[...] = jnp.ones_like(kept)

    o[...] = x[...]


def other_place(x: Any, o: Any, kept: Any, rows: int) -> None:
    o[...] = kept[pl.ds(16 if rows == LARGE else 8, BLOCK)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (unrolled, "an operation"),
        (another_at_full_length, "an operation is add at the full shape and sub at a smaller one"),
        (rounds_at_full_length, ""),
        (other_factor, "an operand of mul"),
        (other_operand, "the source of"),
        (late_step, "the number in eq, which perhaps only a large grid reaches"),
        (other_place, "get"),
    ],
)
def test_differences_are_named(body: Body, message: str) -> None:
    assert message in present(difference(body))


def test_options_of_the_compiler_are_compared() -> None:
    assert difference(mean, dimension_semantics=lambda rows: ("parallel",)) is None
    reason = present(difference(mean, dimension_semantics=lambda rows: ("parallel" if rows == LARGE else "arbitrary",)))
    assert "dimension_semantics" in reason


def test_what_is_said_where_there_is_no_time_to_interpret() -> None:
    late = Failure(stage="correctness", kind="timeout", message="interpret took more than 1 s.")
    assert not_interpreted(late, "").kind == "timeout"
    reason = not_interpreted(late, "an operation is add")
    assert reason.kind == "differs-at-full-shape"
    assert "an operation is add" in reason.message
    raced = Failure(stage="correctness", kind="race", message="a race")
    assert not_interpreted(raced, "an operation is add") == raced
