"""Rewrites operations outside kernels for a CPU: removes the chip's memory spaces, and marks undefined results.

On a CPU all arrays are in one memory. docs/SEMANTICS.md lists the operations with undefined results. For these, XLA on
a CPU and XLA on a chip may return different results, and both are right.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax._src.pallas import core as pallas_core
from jax.experimental.pallas import tpu as pltpu
from jax.extend import core

from harness.hardware import Chip
from harness.judge.evaluate.interpret.chip_model import (
    SHIFTS,
    Model,
    converted,
    divided,
    is_float32,
    quotient,
    remainder,
    root,
    shifted,
)
from harness.judge.evaluate.interpret.rewriting import holds_operations, rewritten
from harness.judge.evaluate.interpret.undefined import marks
from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inlined, is_pallas_call, with_inner

_CONSTRAINT = "with_memory_space_constraint"
_OF_A_CHIP = (pallas_core.MemorySpace, pltpu.MemorySpace)


def without_memory_spaces(jaxpr: Jaxpr) -> Jaxpr:
    """The same program; outside its kernels no constraint and no type names a memory space of the chip.

    JAX computes with two arrays only if both have the same memory space. But JAX's interpreters give the arrays of a
    kernel no memory space. References keep their memory space, because a kernel may depend on it.
    """
    plain: dict[Any, Any] = {}

    def renamed(var: Any) -> Any:
        if isinstance(var, core.Literal):
            return var
        aval = var.aval
        if var not in plain and isinstance(aval, jax.core.ShapedArray) and isinstance(aval.memory_space, _OF_A_CHIP):
            plain[var] = core.Var(jax.core.ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type))
        return plain.get(var, var)

    equations = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == _CONSTRAINT:
            plain[equation.outvars[0]] = renamed(equation.invars[0])
            continue
        inside = equation if is_pallas_call(equation) else with_inner(equation, without_memory_spaces)
        operands, results = (list(map(renamed, variables)) for variables in (equation.invars, equation.outvars))
        equations.append(inside.replace(invars=operands, outvars=results))
    constants, operands, results = (list(map(renamed, each)) for each in (jaxpr.constvars, jaxpr.invars, jaxpr.outvars))
    return jaxpr.replace(eqns=equations, constvars=constants, invars=operands, outvars=results)


def with_marked_results(jaxpr: Jaxpr, chip: Chip) -> Jaxpr:
    """The same program, with a mark wherever an operation outside its kernels has no defined result.

    If `chip` is a TPU, float32 quotients, remainders and roots are computed as its compiler computes them.
    """

    def with_model(equation: Equation) -> list[Equation]:
        name = equation.primitive.name
        is_modelled = chip.platform == "tpu" and name in ON_TPU and is_float32(equation.outvars[0])
        make = MODELS.get(name)
        model = ON_TPU[name](equation, chip) if is_modelled else make(equation) if make is not None else None
        return [equation] if model is None else inlined(model, equation.invars, equation.outvars, equation.source_info)

    return rewritten(jaxpr, with_model, enters=holds_operations)


def _sort(equation: Equation) -> Model | None:
    """Models an unstable sort: marks different values with equal keys, because their order is undefined."""
    params, count = equation.params, equation.params["num_keys"]
    is_exact = all(jnp.issubdtype(var.aval.dtype, jnp.integer) for var in equation.invars[:count])
    if params["is_stable"] or (count == len(equation.invars) and is_exact):
        return None
    axis = params["dimension"]

    def model(*operands: Any) -> Any:
        stable = equation.primitive.get_bind_params({**params, "is_stable": True})
        outputs = equation.primitive.bind(*operands, **stable)
        rows = [jnp.moveaxis(array, axis, -1).reshape(-1, array.shape[axis]) for array in outputs]
        is_first = functools.reduce(lax.bitwise_or, map(_differs_from_the_one_before, rows[:count]))
        places = jnp.broadcast_to(jnp.arange(is_first.shape[1]), is_first.shape)
        first = lax.cummax(jnp.where(is_first, places, 0), axis=1)
        is_last = lax.bitwise_or(jnp.roll(is_first, -1, axis=1), lax.eq(places, is_first.shape[1] - 1))
        last = lax.cummin(jnp.where(is_last, places, is_first.shape[1]), axis=1, reverse=True)
        marked = []
        for output, row in zip(outputs, rows, strict=True):
            bits = _bits(row)
            changes = jnp.cumsum(lax.ne(bits, jnp.roll(bits, 1, axis=1)), axis=1)
            within = jnp.take_along_axis(changes, last, axis=1) - jnp.take_along_axis(changes, first, axis=1)
            moved = jnp.moveaxis(output, axis, -1)
            differs = jnp.moveaxis(lax.gt(within, 0).reshape(moved.shape), -1, axis)
            marked.append(lax.select(differs, marks(output), output))
        return marked

    return model


def _differs_from_the_one_before(key: Any) -> Any:
    """`[rows, length]`, True where a run of equal keys begins. All NaNs are equal, and so are both zeros."""
    before = jnp.roll(key, 1, axis=1)
    is_same = lax.eq(key, before)
    if jnp.issubdtype(key.dtype, jnp.floating):
        is_same = lax.bitwise_or(is_same, lax.bitwise_and(lax.ne(key, key), lax.ne(before, before)))
    return lax.bitwise_or(lax.bitwise_not(is_same), jnp.arange(key.shape[1])[None, :] == 0)


def _bits(array: Any) -> Any:
    """The bits of each element as an integer of at least 32 bits."""
    if array.dtype == jnp.bool_:
        return array.astype(jnp.int32)
    if jnp.issubdtype(array.dtype, jnp.floating):
        array = lax.bitcast_convert_type(array, jnp.dtype(f"int{8 * array.dtype.itemsize}"))
    return array if array.dtype.itemsize >= 4 else array.astype(jnp.int32)


def _from_bits(bits: Any, dtype: Any) -> Any:
    """The array of type `dtype` whose `_bits` are `bits`."""
    if not jnp.issubdtype(dtype, jnp.floating):
        return bits.astype(dtype)
    return lax.bitcast_convert_type(bits.astype(jnp.dtype(f"int{8 * dtype.itemsize}")), dtype)


def _scatter(equation: Equation) -> Model | None:
    """Models a scatter: marks an element if the bits of its updates differ, because any update may come last."""
    indices, params = equation.invars[1], equation.params
    if all(size == 1 for size in indices.aval.shape[:-1]):
        return None

    def model(operand: Any, indices: Any, updates: Any) -> Any:
        bits = _bits(updates)
        beyond = jnp.full(operand.shape, jnp.iinfo(bits.dtype).min, bits.dtype)

        def most(bits: Any) -> Any:
            return lax.scatter_max(beyond, indices, bits, params["dimension_numbers"], mode=params["mode"])

        # One scatter computes maximum and minimum: XLA on a CPU (jaxlib 0.10.2) crashes if it fuses several scatters of
        # rows.
        largest, smallest = jax.vmap(most)(jnp.stack((bits, lax.bitwise_not(bits))))
        smallest = lax.bitwise_not(smallest)
        # If an element was not written, its largest update is less than its smallest.
        written = lax.select(lax.ge(largest, smallest), _from_bits(largest, operand.dtype), operand)
        return lax.select(lax.gt(largest, smallest), marks(written), written)

    return model


def _quotient(equation: Equation) -> Model | None:
    is_of_integers = jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.integer)
    return divided(equation) if is_of_integers else None


MODELS: dict[str, Callable[[Equation], Model | None]] = {
    "sort": _sort,
    "scatter": _scatter,
    "div": _quotient,
    "rem": _quotient,
    **dict.fromkeys(SHIFTS, shifted),
    "convert_element_type": converted,
}


# The float32 models that replace these operations both in kernels and outside, if the chip is a TPU.
ON_TPU: dict[str, Callable[[Equation, Chip], Model | None]] = {"div": quotient, "rem": remainder, "sqrt": root}
