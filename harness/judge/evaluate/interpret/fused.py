"""Rewrites operations outside kernels as fusions for a TPU compute them: simplified, and bfloat16 in float32.

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
from harness.judge.evaluate.interpret.rewriting import holds_operations, with_calls_written_out
from harness.judge.evaluate.interpret.simplified import simplified
from harness.judge.evaluate.trace.jaxprs import ELEMENTWISE, EXPS, Equation, Jaxpr, inner, with_inner

_CONVERSION = "convert_element_type"
_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
# Operations that move elements. XLA applies them to the float32 values.
_MOVES = frozenset(("broadcast_in_dim", "reshape", "slice", "squeeze", "transpose"))
# `nextafter` is left out, because the next larger bfloat16 number is not the next larger float32 number.
_ARITHMETIC = ELEMENTWISE - {*EXPS, "nextafter"}


def as_fused(jaxpr: Jaxpr) -> Jaxpr:
    """The same program, computed outside its kernels as in fusions for a TPU."""
    # The unrounded float32 value of each bfloat16 variable that was computed.
    wide: dict[Any, Any] = {}
    changed: list[Equation] = []
    simpler = simplified(with_calls_written_out(jaxpr))
    for equation in simpler.eqns:
        if holds_operations(equation) and inner(equation):
            changed.append(with_inner(equation, as_fused))
        else:
            changed += _in_float32(equation, wide)
    return simpler.replace(eqns=changed)


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
