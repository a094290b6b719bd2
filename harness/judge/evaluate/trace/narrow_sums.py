"""Sums and maxima that a kernel keeps in bfloat16: a cause of results that are slightly wrong, or wrong at large
scores.
"""

from collections.abc import Iterable

import jax.numpy as jnp
from jax.extend import core

from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, equations, every_program
from harness.judge.evaluate.trace.packages import place_of

# What a running maximum goes through on its way from a row's maximum to where it is kept.
_PASSES_ON = frozenset(("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "max", "transpose"))


def lines(jaxpr: Jaxpr) -> tuple[str, ...]:
    """The lines of kernels, and of their packages, that add up in bfloat16."""
    return _places(
        equation
        for equation in equations(jaxpr)
        if equation.primitive.name == "reduce_sum" and equation.invars[0].aval.dtype == jnp.bfloat16
    )


def of_maxima(jaxpr: Jaxpr) -> tuple[str, ...]:
    """The lines that round the maximum of a row to bfloat16 before it is used."""
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
    return _places(conversions)


def _places(rounding_equations: Iterable[Equation]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(filter(None, (place_of(equation).removesuffix(": ") for equation in rounding_equations)))
    )
