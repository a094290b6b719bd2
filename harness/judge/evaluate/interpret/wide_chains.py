"""Rewrites chains of bfloat16 operations outside kernels as a chip computes them: in float32, rounded at the end.

For a TPU, XLA fuses elementwise operations. Within a fusion, results stay in float32 for the next operation and for
a conversion. They are rounded where bfloat16 is stored or passed to a kernel, and before a choice (`where`). A
conversion from float32 to bfloat16 that is written in the program does round (read off the programs for v5e and v6e;
libtpu 0.0.42.1).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from harness.judge.evaluate.interpret.chip_model import conversion, is_bfloat16
from harness.judge.evaluate.interpret.rewriting import holds_operations
from harness.judge.evaluate.trace.jaxprs import ELEMENTWISE, EXPS, Equation, Jaxpr, inner, with_inner

_CALLS = frozenset(("jit", "call", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2"))
_CONVERSION = "convert_element_type"
_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
# XLA converts before it moves.
_MOVES = frozenset(("broadcast_in_dim", "reshape", "slice", "squeeze", "transpose"))
# The number of bfloat16 after a number is not the number of float32 after it.
_ARITHMETIC = ELEMENTWISE - {*EXPS, "nextafter"}


def with_wide_chains(jaxpr: Jaxpr) -> Jaxpr:
    """The same program; outside kernels, elementwise operations and conversions get operands that were not rounded."""
    equations, results = _rewritten(jaxpr, {}, {})
    return jaxpr.replace(eqns=equations, outvars=results)


def _rewritten(jaxpr: Jaxpr, values: dict[Any, Any], wide: dict[Any, Any]) -> tuple[list[Equation], list[Any]]:
    """The equations and the results of a program, in which `values` replace variables. Calls are written out.

    `wide` has the unrounded float32 value of each bfloat16 variable that was computed. Both are extended.
    """
    changed: list[Equation] = []

    def read(var: Any) -> Any:
        return var if isinstance(var, core.Literal) else values.get(var, var)

    for equation in jaxpr.eqns:
        operands = [*map(read, equation.invars)]
        parts = inner(equation) if holds_operations(equation) else []
        if equation.primitive.name in _CALLS and not _has_constants(equation):
            equations, results = _rewritten(parts[0], dict(zip(parts[0].invars, operands, strict=True)), wide)
            changed += equations
            values.update(zip(equation.outvars, results, strict=True))
            continue
        # A program that is called twice needs new variables each time.
        results = [var if isinstance(var, core.DropVar) else core.Var(var.aval) for var in equation.outvars]
        values.update(zip(equation.outvars, results, strict=True))
        equation = equation.replace(invars=operands, outvars=results)
        changed += _in_float32(equation, wide) if not parts else [with_inner(equation, with_wide_chains)]
    return changed, [*map(read, jaxpr.outvars)]


def _has_constants(call: Equation) -> bool:
    return any(part.consts for part in call.params.values() if isinstance(part, core.ClosedJaxpr))


def _in_float32(equation: Equation, wide: dict[Any, Any]) -> list[Equation]:
    """The equation, computed from the unrounded values of its operands."""
    name, operands = equation.primitive.name, equation.invars
    has_wide = any(isinstance(operand, core.Var) and operand in wide for operand in operands)
    if len(equation.outvars) != 1:
        return [equation]
    (out,) = equation.outvars
    is_computed = name in _ARITHMETIC and is_bfloat16(out)
    if not is_computed and not (has_wide and name in _COMPARISONS | _MOVES | {_CONVERSION}):
        return [equation]
    if name == _CONVERSION and is_bfloat16(out):
        wide[out] = wide[operands[0]]
        return [equation]
    before: list[Equation] = []

    def widened(operand: Any) -> Any:
        if not is_bfloat16(operand):
            return operand
        aval = operand.aval.update(dtype=jnp.dtype(jnp.float32))
        if isinstance(operand, core.Literal):
            return core.Literal(np.float32(operand.val), aval)
        if operand not in wide:
            wide[operand] = core.Var(aval)
            before.append(conversion(operand, wide[operand]))
        return wide[operand]

    computed = equation.replace(invars=[*map(widened, operands)])
    if not is_bfloat16(out):
        return [*before, computed]
    wide[out] = core.Var(out.aval.update(dtype=jnp.dtype(jnp.float32)))
    return [*before, computed.replace(outvars=[wide[out]]), conversion(wide[out], out)]
