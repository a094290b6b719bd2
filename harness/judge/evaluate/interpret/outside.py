"""Operations outside kernels whose result no source defines for some inputs, made to show: a mark in its place.

docs/SEMANTICS.md lists them. XLA on a CPU and on a chip may differ there, and each is right.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from harness.judge.evaluate.interpret import chip_model
from harness.judge.evaluate.interpret.undefined import marks
from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inlined, inner, is_pallas_call, with_inner


def with_marked_results(jaxpr: Jaxpr) -> Jaxpr:
    """The same program, with a mark wherever an operation outside its kernels has no defined result."""
    changed: list[Equation] = []
    for equation in jaxpr.eqns:
        if is_pallas_call(equation):
            changed.append(equation)
            continue
        if inner(equation) and not equation.primitive.name.startswith("scatter"):
            equation = with_inner(equation, with_marked_results)
        make = MODELS.get(equation.primitive.name)
        model = make(equation) if make is not None else None
        if model is None:
            changed.append(equation)
        else:
            changed += inlined(model, equation.invars, equation.outvars, equation.source_info)
    return jaxpr.replace(eqns=changed)


Model = Callable[..., Any]


def _sort(equation: Equation) -> Model | None:
    """Values of equal keys come in any order, unless the sort is stable: sorted the other way round they differ."""
    keys, axis = equation.params["num_keys"], equation.params["dimension"]
    if equation.params["is_stable"] or keys == len(equation.invars):
        return None

    def model(*operands: Any) -> Any:
        first = _bound(equation, *operands)
        second = _bound(equation, *(lax.rev(operand, (axis,)) for operand in operands))
        return [_agreed(one, other) for one, other in zip(first, second, strict=True)]

    return model


def _scatter(equation: Equation) -> Model | None:
    """Of several updates of one element any may be the last: written in the opposite order they differ."""
    windows = equation.params["dimension_numbers"].update_window_dims
    indices, updates = equation.invars[1:]
    if all(size == 1 for size in indices.aval.shape[:-1]):
        return None
    places = tuple(axis for axis in range(updates.aval.ndim) if axis not in windows)

    def model(operand: Any, indices: Any, updates: Any) -> Any:
        first = _bound(equation, operand, indices, updates)
        backwards = (lax.rev(indices, tuple(range(indices.ndim - 1))), lax.rev(updates, places))
        return _agreed(first, _bound(equation, operand, *backwards))

    return model


def _bound(equation: Equation, *operands: Any) -> Any:
    return equation.primitive.bind(*operands, **equation.primitive.get_bind_params(equation.params))


def _agreed(one: Any, other: Any) -> Any:
    """The one where both are the same, and a mark elsewhere."""
    is_same = lax.eq(one, other)
    if jnp.issubdtype(one.dtype, jnp.floating):
        is_same = lax.bitwise_or(is_same, lax.bitwise_and(lax.ne(one, one), lax.ne(other, other)))
    return lax.select(is_same, one, marks(one))


def _quotient(equation: Equation) -> Model | None:
    is_of_integers = jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.integer)
    return chip_model.divided(equation) if is_of_integers else None


MODELS: dict[str, Callable[[Equation], Model | None]] = {
    "sort": _sort,
    "scatter": _scatter,
    "div": _quotient,
    "rem": _quotient,
    "shift_left": chip_model.shifted,
    "shift_right_logical": chip_model.shifted,
    "shift_right_arithmetic": chip_model.shifted,
    "convert_element_type": chip_model.converted,
}
