"""Removes the chip's memory spaces from the types of arrays outside kernels: on a CPU all arrays are in one memory."""

from typing import Any

import jax
from jax._src.pallas import core as pallas_core
from jax.experimental.pallas import tpu as pltpu
from jax.extend import core

from harness.judge.evaluate.trace.jaxprs import Jaxpr, is_pallas_call, with_inner

_CONSTRAINT = "with_memory_space_constraint"
_OF_A_CHIP = (pallas_core.MemorySpace, pltpu.MemorySpace)


def without_memory_spaces(jaxpr: Jaxpr) -> Jaxpr:
    """The same program; outside its kernels no constraint and no type names a memory space of the chip.

    JAX computes with two arrays only if both have the same memory space, but its interpreters give the arrays of a
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
