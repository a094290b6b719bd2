"""Lowers scoped memory for a CPU, however deeply scopes, loops and branches are nested.

`interpret=True` (jax 0.10.2, 0.12.0) turns references into values scope by scope, and fails if a loop within two scopes
contains a third scope. This lowering turns the references of all scopes into values together.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
from jax._src.interpreters import partial_eval
from jax._src.pallas import primitives
from jax._src.state import discharge
from jax._src.state.types import AbstractRef
from jax.extend import core


@contextlib.contextmanager
def scopes_of_any_depth() -> Iterator[None]:
    """Within this context `interpret=True` is lowered for scoped memory at any depth."""
    # jax 0.12 has a single table of rules, and passes a context to each rule.
    has_context = not hasattr(discharge, "_partial_discharge_rules")
    rules: Any = discharge._discharge_rules if has_context else discharge._partial_discharge_rules
    usual = rules[primitives.run_scoped_p]

    def rule(*arguments: Any, jaxpr: Any, **params: Any) -> Any:
        if has_context:
            context, *values = arguments
            should, avals = context.should_discharge, context.in_avals
            options = {"strip_memory_space": context.strip_memory_space}
        else:
            should, avals, _, *values = arguments
            options = {}
        are_refs = [isinstance(aval, AbstractRef) for aval in avals]
        if params["collective_axes"] or list(should) != are_refs:
            return usual(*arguments, jaxpr=jaxpr, **params)
        body = partial_eval.convert_constvars_jaxpr(jaxpr)
        count = len(body.outvars)
        closed = body if has_context else core.ClosedJaxpr(body, ())
        whole = discharge.discharge_state(closed, should_discharge=True, **options)
        pure = whole if has_context else whole.jaxpr
        empty = [primitives.uninitialized_value(var.aval.shape, var.aval.dtype) for var in pure.invars[len(values) :]]
        results = jax.core.eval_jaxpr(pure, whole.consts, *values, *empty)
        # In this order: the body's results, the last values of outer references, those of this scope's references.
        changed = iter(results[count:])
        return [next(changed) if is_ref else None for is_ref in are_refs], results[:count]

    rules[primitives.run_scoped_p] = rule
    try:
        yield
    finally:
        rules[primitives.run_scoped_p] = usual
