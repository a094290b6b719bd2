"""The quick interpreter gives what JAX's own gives: races, reads out of bounds, messages and results."""

import contextlib
import functools
import io
import logging
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax._src import dispatch
from jax._src.pallas.mosaic.interpret import interpret_pallas_call, vector_clock
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from harness.hardware import chip
from harness.judge.evaluate.interpret import interpretation, quick_interpreter

pytestmark = pytest.mark.long

JAX_STATE = interpret_pallas_call.RaceDetectionState
COMPONENTS = 3
_small = st.integers(0, 4)
_rows = st.builds(lambda start, length: slice(start, start + length, 1), _small, st.integers(1, 3))
# One access: True if it writes, its buffer, its clock, and the rows, or the page and the rows, that it touches.
_access = st.tuples(
    st.booleans(),
    st.integers(0, 1),
    st.lists(_small, min_size=COMPONENTS, max_size=COMPONENTS),
    st.one_of(st.tuples(_rows), st.tuples(st.integers(0, 1), _rows)),
)


def clock_of(components: list[int]) -> Any:
    if hasattr(vector_clock, "NpVectorClock"):
        made = vector_clock.NpVectorClock(COMPONENTS)
        made.clock[:] = components
        return made
    return np.array(components, dtype=np.int32)


def state_of(kind: Any) -> Any:
    try:
        return kind(num_cores=1)
    except TypeError:
        return kind(on_race="warn")


def reported(kind: Any, accesses: list[Any]) -> list[str]:
    """The race detector's message after each access, "" without one."""
    state = state_of(kind)
    outcomes = []
    who = (0,) if hasattr(vector_clock, "NpVectorClock") else (0, 0)
    for is_write, buffer, components, where in accesses:
        check = state.check_write if is_write else state.check_read
        printed, logged = io.StringIO(), io.StringIO()
        handler = logging.StreamHandler(logged)
        logging.getLogger().addHandler(handler)
        try:
            with contextlib.redirect_stdout(printed):
                check(*who, clock_of(components), ("vmem", buffer), where)
        finally:
            logging.getLogger().removeHandler(handler)
        text = printed.getvalue() + logged.getvalue()
        # A line with a clock may contain an address.
        outcomes.append("\n".join(line for line in text.splitlines() if "clock" not in line))
    assert state.races_found == any(outcomes)
    return outcomes


@given(st.lists(_access, max_size=25))
@settings(max_examples=300)
def test_it_reports_what_jax_reports(accesses: list[Any]) -> None:
    assert reported(quick_interpreter.quick(JAX_STATE), accesses) == reported(JAX_STATE, accesses)


def test_it_looks_at_no_more_than_what_is_not_ordered() -> None:
    """If accesses follow each other, none is left to compare; of another core's, only the unordered ones are."""
    accesses, ranges = quick_interpreter.Accesses(), quick_interpreter.ranges_of((slice(0, 8),))
    for step in range(1, 200):
        clock = np.array([step, 0, 0], dtype=np.int32)
        assert accesses.unordered(clock, ranges) == []
        accesses.add(step, clock, ranges)
    other = np.array([150, 1, 0], dtype=np.int32)
    assert accesses.unordered(other, ranges) == list(range(151, 200))
    # If two clocks are equal, neither is before the other.
    assert accesses.unordered(np.array([199, 0, 0], dtype=np.int32), ranges) == [199]


def unwaited(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any, *, late: int) -> None:
    """Copies its block by hand, and at one late step reads it before the copy has ended."""
    step = pl.program_id(0)
    copy = pltpu.make_async_copy(x_ref.at[pl.ds(step * 8, 8)], buffer, semaphore)
    copy.start()

    @pl.when(step != late)
    def _() -> None:
        copy.wait()
        o_ref[...] = buffer[...] * 2

    @pl.when(step == late)
    def _() -> None:
        o_ref[...] = buffer[...] * 2
        copy.wait()


@pytest.fixture
def fresh() -> Iterator[None]:
    yield
    interpretation.reset()
    # A run that failed would be waited for when the process ends.
    dispatch.runtime_tokens.clear()


def outcome(kernel: Any, detection: Any, cores_of: str = "v5e") -> tuple[str, Any]:
    """The messages of TPU interpret mode on a kernel over 32 blocks of 8 rows, and its output."""

    def call(x: Any) -> Any:
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=(32,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
            scratch_shapes=[pltpu.VMEM((8, 128), np.float32), pltpu.SemaphoreType.DMA],
            compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        )(x)

    x = np.arange(256 * 128, dtype=np.float32).reshape(256, 128)
    on = chip(cores_of)
    program = interpretation.runnable(jax.make_jaxpr(call)(x), interpretation.checking_parameters(on, 32), on)
    printed, failure, result = io.StringIO(), None, None
    try:
        with contextlib.redirect_stdout(printed), detection():
            result = np.asarray(jax.jit(program)(x)[0])
    except jax.errors.JaxRuntimeError as error:
        failure = error
    race = interpretation.race_of(failure, printed.getvalue())
    return "race" if race else "out of bounds" if "ut-of-bounds" in str(failure) else str(failure or ""), result


DETECTIONS = (contextlib.nullcontext, quick_interpreter.quick_interpreter)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(("late", "message"), [(30, "race"), (99, "")])
@pytest.mark.parametrize("cores_of", ["v5e", pytest.param("v5p", marks=pytest.mark.slow)])
@pytest.mark.parametrize("detection", DETECTIONS)
def test_a_race_at_a_late_step_is_found(detection: Any, late: int, message: str, cores_of: str) -> None:
    assert outcome(functools.partial(unwaited, late=late), detection, cores_of)[0] == message


def reaching(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any, *, last: int) -> None:
    """Copies the block after its own, which does not exist for the last step."""
    place = jnp.minimum(pl.program_id(0) + 1, last)
    copy = pltpu.make_async_copy(x_ref.at[pl.ds(place * 8, 8)], buffer, semaphore)
    copy.start()
    copy.wait()
    o_ref[...] = buffer[...] * 2


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(("last", "message"), [(31, ""), (32, "out of bounds")])
def test_it_reads_and_writes_what_jax_does(last: int, message: str) -> None:
    kernel = functools.partial(reaching, last=last)
    (plain, first), (other, second) = (outcome(kernel, detection) for detection in DETECTIONS)
    assert plain == other == message
    np.testing.assert_array_equal(first, second)
    assert (second is None) == bool(message)


def shared(x_ref: Any, o_ref: Any, buffer: Any, semaphore: Any) -> None:
    """Every step writes the first rows of memory that all cores share."""
    copy = pltpu.make_async_copy(buffer, x_ref.at[pl.ds(0, 8)], semaphore)
    copy.start()
    copy.wait()
    o_ref[...] = jnp.zeros_like(o_ref)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(("cores_of", "message"), [("v5e", ""), ("v5p", "race")])
@pytest.mark.parametrize("detection", DETECTIONS)
def test_two_cores_that_write_the_same_memory_race(detection: Any, cores_of: str, message: str) -> None:
    assert outcome(shared, detection, cores_of)[0] == message


def test_another_jax_is_left_as_it_is() -> None:
    class Other:
        def check_read(self, clock: Any, where: Any) -> None: ...
        def check_write(self, clock: Any, buffer_key: Any) -> None: ...

    assert quick_interpreter.is_known(JAX_STATE)
    assert not quick_interpreter.is_known(Other)
    assert not quick_interpreter.is_known(None)
