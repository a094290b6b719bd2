"""Rewrites traced programs equation by equation."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jax.extend import core

from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inner, is_pallas_call, with_inner

_CALLS = frozenset(("jit", "call", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2"))


def rewritten(
    jaxpr: Jaxpr, steps: Callable[[Equation], list[Equation]], enters: Callable[[Equation], bool] = lambda _: True
) -> Jaxpr:
    """The program with the equations `steps(equation)` in place of each equation.

    The programs within an equation are rewritten first, if `enters(equation)` is true.
    """
    changed: list[Equation] = []
    for equation in jaxpr.eqns:
        if inner(equation) and enters(equation):
            equation = with_inner(equation, lambda part: rewritten(part, steps, enters))
        changed += steps(equation)
    return jaxpr.replace(eqns=changed)


def holds_operations(equation: Equation) -> bool:
    """True if operations outside kernels may be within the equation. The program in a scatter only combines updates."""
    return not is_pallas_call(equation) and not equation.primitive.name.startswith("scatter")


def with_calls_written_out(jaxpr: Jaxpr) -> Jaxpr:
    """The same program; outside its kernels, the equations of a called function replace the call."""
    equations, results = _written_out(jaxpr, {})
    return jaxpr.replace(eqns=equations, outvars=results)


def _written_out(jaxpr: Jaxpr, values: dict[Any, Any]) -> tuple[list[Equation], list[Any]]:
    """The equations and the results of the program; `values` replace its parameters."""
    changed: list[Equation] = []

    def read(var: Any) -> Any:
        return var if isinstance(var, core.Literal) else values.get(var, var)

    for equation in jaxpr.eqns:
        operands = [*map(read, equation.invars)]
        if equation.primitive.name in _CALLS and not _has_constants(equation):
            (called, *_) = inner(equation)
            equations, results = _written_out(called, dict(zip(called.invars, operands, strict=True)))
            changed += equations
        else:
            # A function that is called twice needs new variables each time.
            results = [var if isinstance(var, core.DropVar) else core.Var(var.aval) for var in equation.outvars]
            changed.append(equation.replace(invars=operands, outvars=results))
        values.update(zip(equation.outvars, results, strict=True))
    return changed, [*map(read, jaxpr.outvars)]


def _has_constants(call: Equation) -> bool:
    return any(part.consts for part in call.params.values() if isinstance(part, core.ClosedJaxpr))


def moved(effects: Iterable[Any], variables: Mapping[Any, Any]) -> set[Any]:
    """These effects, in which an effect on a key of `variables` becomes the same effect on the key's value."""
    return {
        effect.replace(input=variables[effect.input]) if getattr(effect, "input", None) in variables else effect
        for effect in effects
    }
