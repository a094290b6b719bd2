"""Computes the grids of a program's Pallas calls from the contents of the program's tables."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inner, is_pallas_call, pallas_calls

# Calls whose programs are evaluated too. Each program runs once, with the operands of the call.
_NAMES = "jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vmap_call remat2 checkpoint"
_CALLS = frozenset(_NAMES.split())


def grids(closed: Any, inputs: Sequence[Any]) -> dict[int, tuple[int | None, ...]]:
    """The grid of every Pallas call, by the identity of its equation; an unknown bound is None.

    `inputs` holds an array for each known input of the program, and None for each unknown input.
    """
    grid_by_call = {
        id(call): tuple(map(_static, call.params["grid_mapping"].grid)) for call in pallas_calls(closed.jaxpr)
    }
    if not any(None in grid for grid in grid_by_call.values()):
        return grid_by_call
    reached: list[int] = []

    def bounds(arrays: dict[int, Any]) -> list[tuple[Any, ...]]:
        bounds_by_call: dict[int, tuple[Any, ...]] = {}
        _walk(closed.jaxpr, closed.consts, [arrays.get(place) for place in range(len(inputs))], bounds_by_call)
        reached[:] = bounds_by_call
        return list(bounds_by_call.values())

    # The bounds are computed in one program, because otherwise JAX would compile each operation separately. Calls
    # within loops are left out, because their operands are unknown.
    values = jax.jit(bounds)({place: value for place, value in enumerate(inputs) if value is not None})
    for call, grid in zip(reached, values, strict=True):
        grid_by_call[call] = tuple(None if bound is None else int(bound) for bound in grid)
    return grid_by_call


def _walk(
    jaxpr: Jaxpr, constants: Sequence[Any], inputs: Sequence[Any], bounds_by_call: dict[int, tuple[Any, ...]]
) -> list[Any]:
    """The outputs; None for an output that the known inputs do not determine. Adds grids to `bounds_by_call`."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    values |= {var: value for var, value in zip(jaxpr.invars, inputs, strict=True) if value is not None}

    def read(var: Any) -> Any:
        return var.val if isinstance(var, core.Literal) else values.get(var)

    for equation in jaxpr.eqns:
        operands = [read(var) for var in equation.invars]
        results: Sequence[Any] = ()
        if is_pallas_call(equation):
            bounds_by_call[id(equation)] = _grid(equation, operands)
        elif equation.primitive.name in _CALLS:
            closed = (part.consts for part in equation.params.values() if isinstance(part, core.ClosedJaxpr))
            results = _walk(inner(equation)[0], next(closed, ()), operands, bounds_by_call)
        elif all(operand is not None for operand in operands) and _is_integer(equation):
            results = _result(equation, operands)
        values |= {var: value for var, value in zip(equation.outvars, results, strict=False) if value is not None}
    return [read(var) for var in jaxpr.outvars]


def _grid(call: Equation, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The bounds of a call's grid. Bounds that are known only at run time are the call's first operands, in order."""
    mapping = call.params["grid_mapping"]
    dynamic_bounds = iter(operands[: mapping.num_dynamic_grid_bounds])
    bounds = [_static(bound) for bound in mapping.grid]
    return tuple(next(dynamic_bounds) if bound is None else bound for bound in bounds)


def _static(bound: Any) -> int | None:
    return int(bound) if isinstance(bound, (int, np.integer)) else None


def _is_integer(equation: Equation) -> bool:
    """True if the equation computes integers from integers, so that its results are the same on every machine."""
    dtypes = [getattr(var.aval, "dtype", None) for var in (*equation.invars, *equation.outvars)]
    kinds = (np.integer, np.bool_)
    return all(dtype is not None and any(np.issubdtype(dtype, kind) for kind in kinds) for dtype in dtypes)


def _result(equation: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """The result of the equation for known operands."""
    params = equation.primitive.get_bind_params(equation.params)
    made = equation.primitive.bind(*map(jnp.asarray, operands), **params)
    return made if equation.primitive.multiple_results else (made,)
