"""Finds inputs that a kernel overwrites although the caller keeps them. XLA first copies these inputs."""

from collections.abc import Iterator, Mapping
from typing import Any

from jax.extend import core

from harness.judge.evaluate.trace.grids import is_triton
from harness.judge.evaluate.trace.jaxprs import Jaxpr, inner, is_pallas_call, line_of
from harness.records import Statement

# Operations whose result is in the operand's memory, with another shape.
_SAME_MEMORY = ("reshape", "squeeze", "expand_dims", "optimization_barrier")


def written_over(jaxpr: Jaxpr, statement: Statement) -> tuple[str, ...]:
    """The inputs in a kernel's `input_output_aliases` that are not donated, each as `x in kernel.py line 12`."""
    pairs = enumerate(zip(jaxpr.invars, statement.inputs, strict=True))
    kept = {var: array.name for place, (var, array) in pairs if place not in statement.donated}
    return tuple(dict.fromkeys(_written_over(jaxpr, kept)))


def _written_over(jaxpr: Jaxpr, kept: Mapping[Any, str]) -> Iterator[str]:
    names = dict(kept)
    for equation in jaxpr.eqns:
        # A literal is not an input, and it cannot be a key because it has no hash.
        named = [None if isinstance(var, core.Literal) else names.get(var) for var in equation.invars]
        if is_pallas_call(equation) and not is_triton(equation):
            bounds = equation.params["grid_mapping"].num_dynamic_grid_bounds
            for source, _ in equation.params["input_output_aliases"]:
                name = named[bounds + source]
                if name is not None:
                    yield f"{name} in {line_of(equation).removesuffix(': ') or 'a kernel'}"
        elif equation.primitive.name in _SAME_MEMORY and named[0] is not None:
            names[equation.outvars[0]] = named[0]
        else:
            for part in inner(equation):
                if len(part.invars) == len(named):
                    pairs = zip(part.invars, named, strict=True)
                    yield from _written_over(part, {var: name for var, name in pairs if name is not None})
