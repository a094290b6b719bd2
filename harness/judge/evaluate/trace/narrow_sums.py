"""Finds sums and maxima in bfloat16. Such sums are inexact, and such maxima are wrong for large scores."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from jax.extend import core

from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, distinct, equations, every_program, scan_constants
from harness.judge.evaluate.trace.packages import place_of

# The operations that may occur between a row's maximum and the conversion of the running maximum.
_PASSES_ON = frozenset(("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "max", "transpose"))
# The operations that may occur between the read of a stored sum and the addition, and between the addition and the
# write.
_CARRIES = frozenset(("broadcast_in_dim", "convert_element_type", "reshape", "squeeze", "expand_dims"))


def lines(jaxpr: Jaxpr) -> tuple[str, ...]:
    """The lines, inside and outside kernels, that add in bfloat16 or carry a bfloat16 sum between iterations."""
    narrow = [
        equation
        for equation in equations(jaxpr)
        if equation.primitive.name == "reduce_sum" and equation.invars[0].aval.dtype == jnp.bfloat16
    ]
    narrow += [addition for program in every_program(jaxpr) for addition in _added_to_references(program)]
    narrow += [addition for equation in equations(jaxpr) for addition in _added_to_values(equation)]
    return distinct(map(place_of, narrow))


def _added_to_references(program: Jaxpr) -> Iterator[Equation]:
    """The additions to a value of a bfloat16 reference that write the result back to the same reference."""
    origins: dict[Any, Any] = {}
    sums: dict[tuple[Any, Any], Equation] = {}
    for equation in program.eqns:
        name, operands = equation.primitive.name, equation.invars
        if name == "get":
            origins[equation.outvars[0]] = operands[0]
        elif name == "addupdate" and operands[0].aval.dtype == jnp.bfloat16:
            yield equation
        elif name == "swap" and operands[0].aval.dtype == jnp.bfloat16:
            if isinstance(operands[1], core.Var) and (operands[1], operands[0]) in sums:
                yield sums[operands[1], operands[0]]
        else:
            _follow(equation, origins, sums)


def _added_to_values(loop: Equation) -> Iterator[Equation]:
    """The additions to a bfloat16 value that a loop carries into its next iteration."""
    if loop.primitive.name == "scan":
        body, constants = loop.params["jaxpr"].jaxpr, scan_constants(loop)
    elif loop.primitive.name == "while":
        body, constants = loop.params["body_jaxpr"].jaxpr, loop.params["body_nconsts"]
    else:
        return
    # The body's parameters are the constants, then the values in the order of the results.
    pairs = list(zip(body.invars[constants:], body.outvars, strict=False))
    origins = {value: value for value, _ in pairs if value.aval.dtype == jnp.bfloat16}
    sums: dict[tuple[Any, Any], Equation] = {}
    for equation in body.eqns:
        _follow(equation, origins, sums)
    carried = ((result, value) for value, result in pairs if not isinstance(result, core.Literal))
    yield from (sums[each] for each in carried if each in sums)


def _follow(equation: Equation, origins: dict[Any, Any], sums: dict[tuple[Any, Any], Equation]) -> None:
    """Adds the results of an equation to `origins` and `sums`.

    `origins` maps a variable to the reference or loop value that it comes from. `sums` maps a variable and its origin
    to the addition.
    """
    name, operands = equation.primitive.name, [var for var in equation.invars if isinstance(var, core.Var)]
    if name == "add":
        sums |= {(equation.outvars[0], origins[var]): equation for var in operands if var in origins}
    elif name in _CARRIES:
        for var in filter(origins.__contains__, operands):
            origins[equation.outvars[0]] = origins[var]
        sums |= {(equation.outvars[0], to): addition for (var, to), addition in sums.items() if var in operands}


def of_maxima(jaxpr: Jaxpr) -> tuple[str, ...]:
    """The lines, inside and outside kernels, that convert the maximum of a row to bfloat16."""
    conversions = []
    for program in every_program(jaxpr):
        maxima: set[object] = set()
        for equation in program.eqns:
            name = equation.primitive.name
            derived = any(not isinstance(operand, core.Literal) and operand in maxima for operand in equation.invars)
            if name == "reduce_max" or (derived and name in _PASSES_ON):
                maxima.update(equation.outvars)
            elif derived and name == "convert_element_type" and equation.outvars[0].aval.dtype == jnp.bfloat16:
                conversions.append(equation)
    return distinct(map(place_of, conversions))
