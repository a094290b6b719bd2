"""Copies the constants of a traced program. The trace itself holds kernel.py's arrays, which kernel.py could change."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import array, checkify, literals
from jax._src.interpreters import partial_eval
from jax._src.random import prng
from jax.extend import core

from harness.sandbox.messages import Rejected

# Types whose values cannot change (ml_dtypes adds types to numpy's), and types of arrays.
_NUMBERS = frozenset((bool, int, float, complex, *literals.typed_scalar_types, *np.sctypeDict.values())) - {np.void}
_ARRAYS = frozenset((np.ndarray, literals.TypedNdArray))


def own_copy(closed: Any) -> Any:
    """The same program, without debugging checks, with its own equations, literals and constants (also in index maps).

    The compiled and the checked program are made from one trace at different times. If an object of kernel.py changed
    between these times, the two programs would differ. Variables and options, such as compiler parameters, stay the
    same objects. Debugging checks (pl.debug_check) can be removed, because they are compiled only under a setting that
    the judge leaves off.

    Raises Rejected `unusual-constant` for a constant whose class is neither JAX's nor numpy's.
    """
    # A program that is called twice is copied once. The originals are kept alive, so that no id() is reused.
    copies: dict[int, tuple[Any, Any]] = {}

    def program(original: Any) -> Any:
        if id(original) not in copies:
            copies[id(original)] = original, _rebuilt(original, value)
        return copies[id(original)][1]

    def value(parameter: Any) -> Any:
        if isinstance(parameter, (core.ClosedJaxpr, core.Jaxpr)):
            return program(parameter)
        if type(parameter) in (tuple, list):
            return type(parameter)(map(value, parameter))
        if hasattr(parameter, "block_mappings"):
            blocks = parameter.block_mappings
            maps = [replace(block, index_map_jaxpr=program(block.index_map_jaxpr)) for block in blocks]
            return replace(parameter, block_mappings=tuple(maps))
        return parameter

    return program(closed)


def _rebuilt(program: Any, value: Callable[[Any], Any]) -> Any:
    """A program with new equations, literals and constants; `value` returns the copy of a parameter."""

    def operand(var: Any) -> Any:
        return core.Literal(_copied(var.val), var.aval) if isinstance(var, core.Literal) else var

    # In jax 0.12 a closed program and the program that it closes are the same object.
    if (within := getattr(program, "jaxpr", program)) is not program:
        return program.replace(jaxpr=value(within), consts=[*map(_copied, program.consts)])
    equations = [
        equation.replace(
            invars=[*map(operand, equation.invars)],
            params={name: value(parameter) for name, parameter in equation.params.items()},
        )
        for equation in _without_debug_checks(program)
    ]
    closed = {"consts": [*map(_copied, program.consts)]} if hasattr(program, "consts") else {}
    return program.replace(eqns=equations, outvars=[*map(operand, program.outvars)], **closed)


def _without_debug_checks(jaxpr: Any) -> list[Any]:
    """The equations of a program without its debugging checks and without computations that only the checks need.

    These computations contain the number of checks traced in the process so far. With them, no two traces would be
    equal.
    """
    kept: list[Any] = []
    used, checked = _variables(jaxpr.outvars), set[Any]()
    for equation in reversed(jaxpr.eqns):
        results = _variables(equation.outvars)
        is_check = equation.primitive is checkify.check_p and equation.params["debug"]
        if is_check or (not equation.effects and results & checked and not results & used):
            checked |= _variables(equation.invars)
        else:
            used |= _variables(equation.invars)
            kept.append(equation)
    return kept[::-1]


def _variables(operands: Iterable[Any]) -> set[Any]:
    return {var for var in operands if isinstance(var, core.Var)}


def _copied(value: Any) -> Any:
    """A copy of the value, made by its exact type, because a method of a class in kernel.py could return anything."""
    kind = type(value)
    # In jax 0.12 an inner program (of run_scoped) keeps values of the outer program, which are not constants.
    if kind in _NUMBERS or kind is partial_eval.DynamicJaxprTracer:
        return value
    if kind in _ARRAYS:
        return np.ndarray.copy(value)
    if kind is prng.PRNGKeyArray:
        data = jnp.array(jax.random.key_data(value), copy=True)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value))
    if kind is array.ArrayImpl:
        # The value may be a view of a numpy array.
        return jnp.array(value, copy=True)
    message = f"expected constants to be arrays or numbers of numpy or JAX, got a {kind.__name__}; use jnp.asarray"
    raise Rejected("static", "unusual-constant", message)
