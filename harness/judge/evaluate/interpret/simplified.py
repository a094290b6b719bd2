"""Rewrites floating-point operations outside kernels as XLA's algebraic simplifier does for a TPU.

The simplifier gives other numbers where an intermediate result is rounded, overflows or is NaN. In kernels, the
compiler rewrites no arithmetic. The rules are read off compiled programs (v5e, v6e; libtpu 0.0.42.1).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inlined

_SQUARES = ("mul", "square", "integer_pow")


def simplified(jaxpr: Jaxpr) -> Jaxpr:
    """The same program after the simplifier; programs within its equations and its kernels are left as they are."""
    changed: list[Equation] = []
    # The equation that computes each variable.
    sources: dict[Any, Equation] = {}
    for equation in jaxpr.eqns:
        steps = [equation]
        if len(equation.outvars) == 1 and _is_float(equation.outvars[0]):
            rule = _RULES.get(equation.primitive.name)
            simpler = rule(equation, sources) if rule is not None else None
            if simpler is not None:
                model, operands = simpler
                steps = inlined(model, [*operands], equation.outvars, equation.source_info)
        sources.update((out, step) for step in steps for out in step.outvars)
        changed += steps
    return jaxpr.replace(eqns=changed)


def _is_float(var: Any) -> bool:
    return jnp.issubdtype(getattr(var.aval, "dtype", int), jnp.floating)


# A function that computes the result, and its operands.
_Simpler = tuple[Callable[..., Any], Sequence[Any]]


def _operands(var: Any, name: str, sources: dict[Any, Equation]) -> tuple[Any, ...]:
    """The operands of the operation `name` if it computes the variable, else ()."""
    equation = sources.get(var) if isinstance(var, core.Var) else None
    return tuple(equation.invars) if equation is not None and equation.primitive.name == name else ()


def _product(equation: Equation, sources: dict[Any, Equation]) -> _Simpler | None:
    """x c1 c2 is x (c1 c2), and x * mask is where(mask, x, 0)."""
    x, y = equation.invars
    if (merged := _with_one_factor(equation, sources)) is not None:
        return merged
    for number, factor in ((x, y), (y, x)):
        converted = _operands(factor, "convert_element_type", sources)
        if converted and converted[0].aval.dtype == jnp.bool_ and number.aval.shape == factor.aval.shape:
            return lambda mask, number: lax.select(mask, number, lax.full_like(number, 0)), (converted[0], number)
    return None


def _with_one_factor(equation: Equation, sources: dict[Any, Equation]) -> _Simpler | None:
    """The product with one merged constant; None unless the equation and its operand both have a constant factor."""
    factor, number = _factor(equation)
    before, first = _factor(sources[number]) if factor is not None and number in sources else (None, None)
    if factor is None or before is None:
        return None
    with np.errstate(all="ignore"):
        merged = np.asarray(before * factor, factor.dtype)
    return lambda x: lax.mul(x, lax.full_like(x, merged)), (first,)


def _factor(equation: Equation) -> tuple[Any, Any]:
    """The constant by which the equation multiplies a variable, and this variable; (None, None) for other equations."""
    name, operands = equation.primitive.name, equation.invars
    if name not in ("mul", "div") or not _is_float(equation.outvars[0]):
        return None, None
    number, constant = operands if name == "div" or isinstance(operands[1], core.Literal) else reversed(operands)
    if not isinstance(number, core.Var) or not isinstance(constant, core.Literal) or np.ndim(constant.val):
        return None, None
    factor = np.asarray(constant.val, constant.aval.dtype)
    with np.errstate(all="ignore"):
        return (np.asarray(1 / factor, factor.dtype) if name == "div" else factor), number


def _quotient(equation: Equation, sources: dict[Any, Equation]) -> _Simpler | None:
    """x / (y / z) is x z / y, x / y / z is x / (y z), x / sqrt(y) is x rsqrt(y), and x / rsqrt(y) is x sqrt(y)."""
    x, y = equation.invars
    if (merged := _with_one_factor(equation, sources)) is not None:
        return merged
    if below := _operands(y, "div", sources):
        return lambda x, y, z: jnp.divide(jnp.multiply(x, z), y), (x, *below)
    if above := _operands(x, "div", sources):
        return lambda x, y, z: jnp.divide(x, jnp.multiply(y, z)), (*above, y)
    if root := _operands(y, "sqrt", sources):
        return lambda x, y: jnp.multiply(x, lax.rsqrt(y)), (x, *root)
    if inverse := _operands(y, "rsqrt", sources):
        return lambda x, y: jnp.multiply(x, lax.sqrt(y)), (x, *inverse)
    return None


def _root(equation: Equation, sources: dict[Any, Equation]) -> _Simpler | None:
    """sqrt(x x) is |x|."""
    (square,) = equation.invars
    for name in _SQUARES:
        operands = _operands(square, name, sources)
        if operands and len({*map(id, operands)}) == 1 and sources[square].params.get("y", 2) == 2:
            return lax.abs, operands[:1]
    return None


def _sum(equation: Equation, sources: dict[Any, Equation]) -> _Simpler | None:
    """x y + x z is x (y + z)."""
    first, second = (_operands(var, "mul", sources) for var in equation.invars)
    for place in range(len(first)):
        x, y = first[place], first[1 - place]
        others = [var for var in second if var is not x]
        is_plain = all(isinstance(var, core.Var) for var in (x, y, *others))
        if is_plain and len(second) - len(others) == 1:
            return lambda x, y, z: lax.mul(x, lax.add(y, z)), (x, y, others[0])
    return None


_RULES: dict[str, Callable[[Equation, dict[Any, Equation]], _Simpler | None]] = {
    "mul": _product,
    "div": _quotient,
    "sqrt": _root,
    "add": _sum,
}
