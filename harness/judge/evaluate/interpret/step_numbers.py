"""Moves `pl.program_id` and `pl.num_programs` to the top of a kernel, where JAX's interpreter can evaluate them.

`interpret=True` (jax 0.10.2, 0.12.0) cannot evaluate them within branches, loops and scoped memory; Mosaic can. So each
query is made once at the top, and its result is passed down to its uses.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax._src.pallas import primitives
from jax.extend import core

from harness.judge.evaluate.trace import jaxprs
from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inner, scan_constants, with_change, without_names

_QUERIES = {"program_id": primitives.program_id_p, "num_programs": primitives.num_programs_p}
# A query: `program_id` or `num_programs`, and the axis of the grid.
Asked = tuple[str, int]
# Calls that are replaced by the body of the called function.
_CALLS = ("jit", "closed_call", "call", "core_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2")


def with_step_numbers_at_the_top(jaxpr: Jaxpr) -> Jaxpr:
    """The same kernel; each query for the step's number or the grid's size is made once, at the top."""
    asked = [query for equation in jaxpr.eqns for part in inner(equation) for query in _asked(part)]
    if not asked:
        return jaxpr
    variables = {query: core.Var(jax.core.ShapedArray((), jnp.int32)) for query in dict.fromkeys(asked)}
    first = [
        core.new_jaxpr_eqn([], [var], _QUERIES[name], {"axis": axis}, set()) for (name, axis), var in variables.items()
    ]
    equations, outvars = _handed_down(jaxpr, variables, is_top=True)
    return jaxpr.replace(eqns=[*first, *equations], outvars=outvars)


def _asked(jaxpr: Jaxpr) -> list[Asked]:
    """The queries for step numbers in a program and the programs within it."""
    queries = (equation for equation in jaxprs.equations(jaxpr) if equation.primitive.name in _QUERIES)
    return [(query.primitive.name, query.params["axis"]) for query in queries]


def _handed_down(
    jaxpr: Jaxpr, variables: Mapping[Asked, Any], *, is_top: bool = False
) -> tuple[list[Equation], list[Any]]:
    """The equations and the results of a program, with `variables` in place of queries for step numbers.

    At the top, queries outside branches, loops and scopes stay.
    """
    values: dict[Any, Any] = {}
    changed: list[Equation] = []

    def read(var: Any) -> Any:
        return values.get(var, var) if isinstance(var, core.Var) else var

    for equation in jaxpr.eqns:
        equation = equation.replace(invars=[read(var) for var in equation.invars])
        if equation.primitive.name in _QUERIES and not is_top:
            values[equation.outvars[0]] = variables[equation.primitive.name, equation.params["axis"]]
        elif not any(map(_asked, inner(equation))):
            changed.append(equation)
        elif equation.primitive.name in _CALLS:
            inlined, results = _inlined(equation, variables)
            changed += inlined
            values.update(zip(equation.outvars, results, strict=True))
        else:
            changed.append(_WITH_MORE[equation.primitive.name](equation, variables))
    return changed, [read(var) for var in jaxpr.outvars]


def _with_parameters(program: Any, variables: Mapping[Asked, Any], place: int) -> Any:
    """The program with a parameter for each of `variables`, inserted at this position among its parameters."""
    parameters = {query: core.Var(var.aval) for query, var in variables.items()}

    def extended(jaxpr: Jaxpr) -> Jaxpr:
        equations, outvars = _handed_down(jaxpr, parameters)
        invars = [*jaxpr.invars[:place], *parameters.values(), *jaxpr.invars[place:]]
        return jaxpr.replace(invars=invars, eqns=equations, outvars=outvars, debug_info=without_names(jaxpr))

    return with_change(program, extended)


def _cond(equation: Equation, variables: Mapping[Asked, Any]) -> Equation:
    branches = tuple(
        _with_parameters(branch, variables, len(branch.jaxpr.invars)) for branch in equation.params["branches"]
    )
    invars = [*equation.invars, *variables.values()]
    return equation.replace(invars=invars, params={**equation.params, "branches": branches})


def _scan(equation: Equation, variables: Mapping[Asked, Any]) -> Equation:
    constants = scan_constants(equation)
    if "ft_in" in equation.params:
        trees = importlib.import_module("jax._src.flattree")
        _, carried, rows = equation.params["ft_in"].unpack()
        more: dict[str, Any] = {"ft_in": trees.pack((trees.nones(constants + len(variables)), carried, rows))}
    else:
        more = {"num_consts": constants + len(variables)}
    if "linear" in equation.params:
        linear = equation.params["linear"]
        more["linear"] = (*linear[:constants], *(False for _ in variables), *linear[constants:])
    more["jaxpr"] = _with_parameters(equation.params["jaxpr"], variables, constants)
    invars = [*equation.invars[:constants], *variables.values(), *equation.invars[constants:]]
    return equation.replace(invars=invars, params={**equation.params, **more})


def _while(equation: Equation, variables: Mapping[Asked, Any]) -> Equation:
    of_cond, of_body = equation.params["cond_nconsts"], equation.params["body_nconsts"]
    more = {
        "cond_jaxpr": _with_parameters(equation.params["cond_jaxpr"], variables, of_cond),
        "body_jaxpr": _with_parameters(equation.params["body_jaxpr"], variables, of_body),
        "cond_nconsts": of_cond + len(variables),
        "body_nconsts": of_body + len(variables),
    }
    first, rest = equation.invars[:of_cond], equation.invars[of_cond:]
    invars = [*first, *variables.values(), *rest[:of_body], *variables.values(), *rest[of_body:]]
    return equation.replace(invars=invars, params={**equation.params, **more})


def _run_scoped(equation: Equation, variables: Mapping[Asked, Any]) -> Equation:
    """The equation with `variables` among the constants of its body. The body gets all outside values as constants."""
    body = equation.params["jaxpr"]
    constvars = {query: core.Var(var.aval) for query, var in variables.items()}
    equations, outvars = _handed_down(body, constvars)
    # jax 0.12 keeps the values of constants with the program.
    constants = getattr(body, "consts", None)
    body = body.replace(constvars=[*body.constvars, *constvars.values()], eqns=equations, outvars=outvars)
    if constants is not None:
        body = body.with_consts((*constants, *variables.values()))
    return equation.replace(invars=[*equation.invars, *variables.values()], params={**equation.params, "jaxpr": body})


def _inlined(equation: Equation, variables: Mapping[Asked, Any]) -> tuple[list[Equation], list[Any]]:
    """The equations of a called function, which replace the call, and the results of the function."""
    body = inner(equation)[0]
    constants = next((part.consts for part in equation.params.values() if isinstance(part, core.ClosedJaxpr)), ())
    equations, outvars = _handed_down(body, variables)
    values: dict[Any, Any] = dict(zip(body.constvars, constants, strict=True))
    values.update(zip(body.invars, equation.invars, strict=True))
    variable_ids = {id(var) for var in variables.values()}

    def renamed(var: Any) -> Any:
        if not isinstance(var, core.Var) or isinstance(var, core.DropVar) or id(var) in variable_ids:
            return var
        return values.setdefault(var, core.Var(var.aval))

    new_equations = [
        each.replace(invars=[renamed(var) for var in each.invars], outvars=[renamed(var) for var in each.outvars])
        for each in equations
    ]
    return new_equations, [renamed(var) for var in outvars]


_WITH_MORE = {"cond": _cond, "scan": _scan, "while": _while, "run_scoped": _run_scoped}
