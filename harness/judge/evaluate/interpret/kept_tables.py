"""Makes values that a grid step writes to a table in scalar memory visible to later steps, as on a chip.

JAX's `interpret=True` gives every step the table that the caller passed. In a rewritten kernel that writes to a table,
the first step copies the table to scratch memory, and all steps use the copy. TPU interpret mode needs no copy.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, tree_util
from jax._src.pallas import primitives as pallas_primitives
from jax._src.state.primitives import get_p, swap_p
from jax._src.state.types import ReadEffect, WriteEffect
from jax.extend import core

from harness.judge.evaluate.interpret.rewriting import moved
from harness.judge.evaluate.trace.forbidden_operations import written_tables
from harness.judge.evaluate.trace.jaxprs import Equation, inlined

_WHOLE = tree_util.tree_structure(())


def with_kept_tables(equation: Equation) -> dict[str, Any]:
    """The changed parameters of this Pallas call: its kernel uses a scratch copy of each table that it writes to."""
    body, mapping = equation.params["jaxpr"], equation.params["grid_mapping"]
    tables = written_tables(equation)
    if not tables:
        return {}
    copies = {table: core.Var(table.aval) for table in tables}
    added = [core.Var(jax.core.ShapedArray((), jnp.int32)) for _ in mapping.grid]
    first: list[Equation] = [
        core.new_jaxpr_eqn([], [place], pallas_primitives.program_id_p, {"axis": axis}, set())
        for axis, place in enumerate(added)
    ]
    for table, copy in copies.items():
        first += _copied_at_the_first_step(table, copy, added)

    equations = [
        each.replace(
            invars=[copies.get(var, var) if isinstance(var, core.Var) else var for var in each.invars],
            effects=moved(each.effects, copies),
        )
        for each in body.eqns
    ]
    invars = [*body.invars, *copies.values()]
    effects = {*moved(body.effects, copies), *map(ReadEffect, tables)}
    changed = body.replace(invars=invars, eqns=[*first, *equations], effects=effects)
    if body.debug_info.arg_names is not None:
        names = (*body.debug_info.arg_names, *("" for _ in tables))
        changed = changed.replace(debug_info=body.debug_info._replace(arg_names=names))
    scratch = (*mapping.scratch_avals, *(copy.aval for copy in copies.values()))
    return {"jaxpr": changed, "grid_mapping": dataclasses.replace(mapping, scratch_avals=scratch)}


def _copied_at_the_first_step(table: Any, copy: Any, places: list[Any]) -> list[Equation]:
    array = jax.core.ShapedArray(table.aval.shape, table.aval.dtype)
    initial_var, kept, chosen, before = (core.Var(array) for _ in range(4))

    def model(initial: Any, kept: Any, *places: Any) -> Any:
        is_first = lax.full((), True)
        for place in places:
            is_first = lax.bitwise_and(is_first, lax.eq(place, lax.full_like(place, 0)))
        return lax.select(lax.broadcast(is_first, initial.shape), initial, kept)

    params = {"tree": _WHOLE}
    return [
        core.new_jaxpr_eqn([table], [initial_var], get_p, params, {ReadEffect(table)}),
        core.new_jaxpr_eqn([copy], [kept], get_p, params, {ReadEffect(copy)}),
        *inlined(model, [initial_var, kept, *places], [chosen], None),
        core.new_jaxpr_eqn([copy, chosen], [before], swap_p, params, {WriteEffect(copy)}),
    ]
