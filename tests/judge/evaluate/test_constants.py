"""A program that was traced stays what it is, whatever kernel.py does afterwards with the arrays it was traced with."""

import functools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.extend import core
from planted import CHANGING, MEDIUM
from refusals import rejected

from harness.judge.evaluate.trace import constants, normal_form, same_program
from harness.sandbox import environment

X = np.zeros((16, 128), np.float32)


def in_a_kernel(array: Any) -> Any:
    """`held` is a number in the kernel's body."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * array

    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype))


def in_an_index_map(array: Any) -> Any:
    """`held` is a number in an index map."""
    return pl.pallas_call(
        lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...]),
        out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype),
        grid=(2,),
        in_specs=[pl.BlockSpec((8, 128), lambda i: (i * array, 0))],
        out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
    )


def in_a_function(array: Any) -> Any:
    """`held` is a constant of an inner function."""
    return jax.jit(lambda x: x + array)


def as_a_constant(array: Any) -> Any:
    return lambda x: x + array


def as_an_array_of_jax(array: Any) -> Any:
    """`held` is a JAX array, which may share the memory of a numpy array."""
    return lambda x: x + jnp.asarray(array)


def beside_a_value_of_the_kernel(array: Any) -> Any:
    """`held` is a number of a region that uses a value of the kernel around it too."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        row = pl.program_id(0) * 8

        def region(scratch: Any) -> None:
            scratch[...] = x_ref[...] * array
            o_ref[...] = scratch[...] + row

        pl.run_scoped(region, pltpu.VMEM((8, 128), jnp.float32))

    block = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype), grid=(2,), in_specs=[block], out_specs=block
    )


NUMBER, FRACTION = (functools.partial(np.array, 2, kind) for kind in (np.int32, np.float32))
ARRAY = functools.partial(np.full, (16, 128), 2.0, np.float32)
WAYS = (
    (in_a_kernel, FRACTION),
    (in_an_index_map, NUMBER),
    (in_a_function, ARRAY),
    (as_a_constant, ARRAY),
    (as_an_array_of_jax, ARRAY),
    (beside_a_value_of_the_kernel, FRACTION),
)


@pytest.mark.parametrize(("way", "made"), WAYS)
def test_a_constant_that_changes_changes_no_program_that_was_traced(way: Any, made: Any) -> None:
    array = made()
    closed = constants.own_copy(jax.make_jaxpr(way(array))(X))
    before = normal_form.of_traced(closed)
    array[...] = 1
    assert normal_form.of_traced(closed) == before


@pytest.mark.parametrize(("way", "made"), WAYS)
def test_programs_of_other_constants_have_other_texts(way: Any, made: Any) -> None:
    first, other = made(), made()
    other[...] = 1
    digest, another, same = (normal_form.of_traced(jax.make_jaxpr(way(each))(X)) for each in (first, other, made()))
    assert digest == same != another


def test_a_literal_that_kernel_py_still_holds_is_none_of_the_program() -> None:
    """JAX caches traced functions, so kernel.py can get hold of the same objects."""
    doubled = jax.jit(lambda x: x * 2.0)
    closed = jax.make_jaxpr(lambda x: doubled(doubled(x)))(X)
    constants_taken = constants.own_copy(closed)
    before = normal_form.of_traced(constants_taken)
    within = doubled.trace(X).jaxpr
    for var in (var for equation in within.eqns for var in equation.invars if isinstance(var, core.Literal)):
        var.val = 1.0
    assert normal_form.of_traced(closed) != before
    assert normal_form.of_traced(constants_taken) == before
    # A function that is called twice is still one.
    assert len({id(equation.params["jaxpr"]) for equation in constants_taken.eqns}) == 1


def test_a_constant_that_would_have_to_be_asked_for_a_copy_is_refused() -> None:
    kind = type(jax.make_jaxpr(lambda x: x + np.ones((16, 128), np.float32))(X).consts[0])

    class Kept(kind):  # type: ignore[misc, valid-type]  # known at run time only
        def copy(self, order: str = "C") -> Any:
            return self

    kept = Kept(np.full((16, 128), 2.0, np.float32))
    with rejected("unusual-constant", "got a Kept"):
        constants.own_copy(jax.make_jaxpr(lambda x: x + kept)(X))


def test_random_keys_are_constants_too() -> None:
    data = np.array([0, 3], np.uint32)
    key = jax.random.wrap_key_data(data)
    closed = jax.make_jaxpr(lambda x: x + jax.random.normal(key, x.shape))(X)
    constants_taken = constants.own_copy(closed)
    assert same_program.difference(closed, constants_taken) is None
    before = normal_form.of_traced(constants_taken)
    data[:] = 7
    assert normal_form.of_traced(constants_taken) == before
    other = jax.make_jaxpr(lambda x: x + jax.random.normal(jax.random.key(1_000_003), x.shape))(X)
    assert same_program.difference(constants_taken, other) is not None


def test_constants_keep_their_types() -> None:
    weak = jax.make_jaxpr(lambda x: x * np.float32(3) + 2.0 + jnp.arange(128.0))(X)
    constants_taken = constants.own_copy(weak)
    assert str(constants_taken) == str(weak)
    assert [var.aval for equation in constants_taken.eqns for var in equation.outvars] == [
        var.aval for equation in weak.eqns for var in equation.outvars
    ]


# Run in its own process, because a trace changes what JAX has loaded. It has modules that kernel.py may not have.
_TRACED = """
from harness.hardware import chip
from harness.judge.evaluate import candidate
from harness.judge.evaluate.trace import constants, integrity
from harness.sandbox.messages import Rejected
from harness.judge.evaluate.messages import ShapesRequest, TraceRequest

constants.own_copy = lambda closed: closed
integrity.require_self_contained = lambda sources: None
candidate.trace(TraceRequest(problem="problem.pickle", chip=chip("v5e"), artifact="candidate.tpu"))
try:
    candidate.trace_smaller(ShapesRequest())
except Rejected as refused:
    print(refused.failure.kind, refused.failure.message)
"""


@pytest.mark.long
def test_a_program_that_changes_after_its_trace_is_refused(tmp_path: Path) -> None:
    """Here the trace keeps kernel.py's own constants, which then change."""
    (tmp_path / "kernel.py").write_text(CHANGING)
    (tmp_path / "problem.pickle").write_bytes(pickle.dumps(MEDIUM))
    done = subprocess.run(
        [sys.executable, "-c", _TRACED],
        cwd=tmp_path,
        env=environment.on_cpu(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.startswith("not-deterministic expected the same program after kernel.py was traced")


def test_checks_for_debugging_are_left_out_with_what_they_count() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        x = x_ref[...]
        largest = jnp.max(x)
        pl.debug_check(largest < 2.0, "too large")
        o_ref[...] = x / largest

    call = pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype))
    first, other = (constants.own_copy(jax.make_jaxpr(lambda x: call(x))(X)) for _ in range(2))
    (equation,) = first.jaxpr.eqns
    names = [each.primitive.name for each in equation.params["jaxpr"].eqns]
    assert names == ["get", "reduce_max", "div", "swap"]
    assert list(normal_form.of_traced(first)) == list(normal_form.of_traced(other))
