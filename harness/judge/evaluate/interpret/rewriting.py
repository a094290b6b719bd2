"""Rewrites traced programs equation by equation."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inner, is_pallas_call, with_inner


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
    """True if operations outside kernels may be within the equation. Those of a scatter only name its combination."""
    return not is_pallas_call(equation) and not equation.primitive.name.startswith("scatter")


def moved(effects: Iterable[Any], variables: Mapping[Any, Any]) -> set[Any]:
    """These effects, in which an effect on a key of `variables` becomes the same effect on the key's value."""
    return {
        effect.replace(input=variables[effect.input]) if getattr(effect, "input", None) in variables else effect
        for effect in effects
    }
