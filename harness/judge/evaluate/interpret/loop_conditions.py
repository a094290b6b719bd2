"""Rewrites loops whose condition reads references, because `interpret=True` reads them only before the loop.

`interpret=True` (jax 0.10.2, 0.12.0) turns references into values, and in every iteration the condition gets the values
from before the loop. The rewritten loop computes the condition before the loop and at the end of each iteration.
"""

from collections.abc import Sequence
from typing import Any

from jax._src.state.types import AbstractRef
from jax.extend import core

from harness.judge.evaluate.interpret.rewriting import moved, rewritten
from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, open_program, with_change, without_names


def with_conditions_in_the_body(jaxpr: Jaxpr) -> Jaxpr:
    """The same kernel, in which a loop whose condition reads references carries the condition's value."""
    return rewritten(jaxpr, _loop)


def _loop(equation: Equation) -> list[Equation]:
    """For a loop whose condition reads references: equations that compute the condition, and the loop that carries it.

    Any other equation is returned unchanged.
    """
    of_condition, of_body = (equation.params.get(name, 0) for name in ("cond_nconsts", "body_nconsts"))
    first, rest = equation.invars[:of_condition], equation.invars[of_condition:]
    if equation.primitive.name != "while" or not any(isinstance(operand.aval, AbstractRef) for operand in first):
        return [equation]
    constants, values = rest[:of_body], rest[of_body:]
    condition, body = (open_program(equation.params[name]) for name in ("cond_jaxpr", "body_jaxpr"))
    before, goes_on = _with_operands(condition, [*first, *values])
    # Each reference has one variable in the body, so that the condition reads the values that the body wrote.
    inside = dict(zip(map(id, constants), body.invars[:of_body], strict=True))
    others = {id(operand): (operand, core.Var(operand.aval)) for operand in first if id(operand) not in inside}
    names = [inside[id(operand)] if id(operand) in inside else others[id(operand)][1] for operand in first]
    behind, goes_on_again = _with_operands(condition, [*names, *body.outvars])
    carried, kept = core.Var(goes_on.aval), core.Var(goes_on.aval)
    turn = body.replace(
        invars=[*(var for _, var in others.values()), *body.invars, carried],
        eqns=[*body.eqns, *behind],
        outvars=[*body.outvars, goes_on_again],
        effects={*body.effects, *(effect for each in behind for effect in each.effects)},
        debug_info=without_names(body),
    )
    parameters = [*(core.Var(value.aval) for value in values), kept]
    ask = condition.replace(
        invars=parameters, eqns=[], outvars=[kept], effects=set(), debug_info=without_names(condition)
    )
    params = {
        **equation.params,
        "cond_nconsts": 0,
        "body_nconsts": len(others) + of_body,
        "cond_jaxpr": with_change(equation.params["cond_jaxpr"], lambda _: ask),
        "body_jaxpr": with_change(equation.params["body_jaxpr"], lambda _: turn),
    }
    invars = [*(operand for operand, _ in others.values()), *constants, *values, goes_on]
    outvars = [*equation.outvars, core.Var(goes_on.aval)]
    return [*before, equation.replace(invars=invars, outvars=outvars, params=params)]


def _with_operands(program: Jaxpr, operands: Sequence[Any]) -> tuple[list[Equation], Any]:
    """The equations of a program applied to these operands, and the program's only result."""
    new: dict[Any, Any] = dict(zip(program.invars, operands, strict=True))

    def renamed(var: Any) -> Any:
        if isinstance(var, (core.Literal, core.DropVar)):
            return var
        return new[var] if var in new else new.setdefault(var, core.Var(var.aval))

    equations = [
        equation.replace(
            invars=[renamed(var) for var in equation.invars],
            outvars=[renamed(var) for var in equation.outvars],
            effects=moved(equation.effects, new),
        )
        for equation in program.eqns
    ]
    return equations, renamed(program.outvars[0])
