"""Rewrites a traced program's Pallas calls so that JAX's interpreters on a CPU compute the chip's results."""

import dataclasses
import functools
from typing import Any

from jax._src.pallas import core as pallas_core
from jax.experimental.pallas import tpu as pltpu
from jax.extend import core
from jax.extend.core import primitives

from harness.hardware import Chip
from harness.judge.evaluate.interpret import (
    aliased,
    chip_model,
    kept_tables,
    loop_conditions,
    plain_accesses,
    reshaped,
    step_numbers,
    undefined,
)
from harness.judge.evaluate.trace import grids
from harness.judge.evaluate.trace.jaxprs import (
    Equation,
    Jaxpr,
    inner,
    is_pallas_call,
    pallas_calls,
    with_change,
    with_inner,
)

# Functions with custom derivatives; JAX forbids the effects of interpret mode in them.
_WITH_DERIVATIVES = ("custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2")


def with_interpret(
    jaxpr: Jaxpr, interpret: object, chip: Chip, *, is_flipped: bool = False, joins_windows: bool = False
) -> Jaxpr:
    """The same program with every Pallas call's `interpret` set: False for the compiler, otherwise a mode.

    An interpreted kernel computes the results of `chip`. `is_flipped` reverses its comparisons of unwritten memory.
    With `joins_windows`, the windows of aliased arrays that fit into VMEM share their memory (not in TPU interpret
    mode). In TPU interpret mode a call has effects, and so have the loops, branches and functions around it. A function
    with custom derivatives must not have effects, so it is called without its derivatives.
    """
    if not pallas_calls(jaxpr):
        return jaxpr
    effects = pallas_core.get_interpret_effects(interpret)
    change_within = functools.partial(
        with_interpret, interpret=interpret, chip=chip, is_flipped=is_flipped, joins_windows=joins_windows
    )
    changed = []
    for equation in jaxpr.eqns:
        if is_pallas_call(equation):
            kept = kept_tables.with_kept_tables(equation) if interpret is True else {}
            params = {**equation.params, **kept, "interpret": interpret}
            body = params["jaxpr"]
            if interpret:
                body = chip_model.as_on_chip(body, chip)
                params["grid_mapping"] = _index_maps_as_on_chip(params["grid_mapping"], chip)
                body = plain_accesses.with_plain_bitcasts(plain_accesses.with_plain_writes(body))
            if is_flipped:
                body = undefined.with_flipped_comparisons(body)
            if interpret is True:
                body = loop_conditions.with_conditions_in_the_body(body)
                vmem_bytes = chip.vmem_bytes if joins_windows else 0
                body = aliased.with_one_memory(equation.replace(params={**params, "jaxpr": body}), vmem_bytes)
                # TPU interpret mode checks indices itself.
                body = undefined.with_marked_indices(step_numbers.with_step_numbers_at_the_top(body))
            if isinstance(interpret, pltpu.InterpretParams):
                body = reshaped.with_indices_first(plain_accesses.with_plain_reads(body))
                params |= grids.as_interpreted(equation, interpret)
            equation = equation.replace(params={**params, "jaxpr": body}, effects={*equation.effects, *effects})
        elif any(map(pallas_calls, inner(equation))):
            equation = with_inner(equation, change_within)
            if effects and equation.primitive.name in _WITH_DERIVATIVES:
                equation = _without_derivatives(equation)
            equation = equation.replace(effects={*equation.effects, *effects})
        changed.append(equation)
    return jaxpr.replace(eqns=changed, effects={*jaxpr.effects, *effects})


def _without_derivatives(equation: Equation) -> Equation:
    """A call of the same function without its custom derivatives."""
    function = next(equation.params[name] for name in ("call_jaxpr", "jaxpr") if name in equation.params)
    params = {"call_jaxpr": function if isinstance(function, core.ClosedJaxpr) else core.ClosedJaxpr(function, ())}
    return core.new_jaxpr_eqn(
        equation.invars, equation.outvars, primitives.closed_call_p, params, equation.effects, equation.source_info
    )


def _index_maps_as_on_chip(mapping: Any, chip: Chip) -> Any:
    def as_on_chip(block: Any) -> Any:
        index_map = with_change(block.index_map_jaxpr, lambda jaxpr: chip_model.as_on_chip(jaxpr, chip))
        return dataclasses.replace(block, index_map_jaxpr=index_map)

    return dataclasses.replace(mapping, block_mappings=tuple(map(as_on_chip, mapping.block_mappings)))
