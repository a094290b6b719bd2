"""Reads and writes of memory that JAX's interpreters (0.10.2, 0.12.0) cannot make, in steps that they can.

A reference that is indexed, then reshaped or taken for other numbers, then indexed again: TPU interpret mode knows the
first indices alone. All that they point at is read, and so looked at for races. A write under a mask: TPU interpret
mode takes the length of a later axis for that of the first, and finds it out of bounds; `interpret=True` knows no
constant index. Here all is read, and written again with what the mask lets by.
"""

from collections.abc import Callable
from typing import Any

from jax import lax, tree_util
from jax._src.state.discharge import transform_array
from jax._src.state.indexing import NDIndexer
from jax._src.state.primitives import get_p, swap_p
from jax.extend import core

from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inlined, inner, with_inner


def with_plain_reads(jaxpr: Jaxpr) -> Jaxpr:
    """The same kernel with whatever follows the first indices of a read done to the values that were read."""
    return _rewritten(jaxpr, "get", _plain_read)


def with_plain_writes(jaxpr: Jaxpr) -> Jaxpr:
    """The same kernel with a read ahead of each write under a mask."""
    return _rewritten(jaxpr, "masked_swap", _plain_write)


def _rewritten(jaxpr: Jaxpr, name: str, steps: Callable[[Equation], list[Equation]]) -> Jaxpr:
    changed: list[Equation] = []
    for equation in jaxpr.eqns:
        if inner(equation):
            equation = with_inner(equation, lambda each: _rewritten(each, name, steps))
        changed += steps(equation) if equation.primitive.name == name else [equation]
    return jaxpr.replace(eqns=changed)


def _plain_read(equation: Equation) -> list[Equation]:
    reference, *operands = equation.invars
    transforms = tree_util.tree_unflatten(equation.params["tree"], operands)
    later = next((place for place, one in enumerate(transforms) if not isinstance(one, NDIndexer)), None)
    if later is None:
        return [equation]
    first, tree = tree_util.tree_flatten(tuple(transforms[:later]))
    rest, tree_of_rest = tree_util.tree_flatten(tuple(transforms[later:]))
    shape = transforms[later - 1].get_indexer_shape() if later else reference.aval.shape
    (out,) = equation.outvars
    read = core.Var(out.aval.update(shape=shape, dtype=reference.aval.dtype))

    def model(values: Any, *indices: Any) -> Any:
        return transform_array(values, tree_util.tree_unflatten(tree_of_rest, indices))

    before = equation.replace(invars=[reference, *first], outvars=[read], params={**equation.params, "tree": tree})
    return [before, *inlined(model, [read, *rest], [out], equation.source_info)]


def _plain_write(equation: Equation) -> list[Equation]:
    reference, transforms, value, mask = tree_util.tree_unflatten(equation.params["args_tree"], equation.invars)
    if mask is None:
        return [equation]
    indices, tree = tree_util.tree_flatten(transforms)
    old, new = core.Var(value.aval), core.Var(value.aval)
    about: dict[str, Any] = {"params": {"tree": tree}, "effects": equation.effects}
    return [
        equation.replace(primitive=get_p, invars=[reference, *indices], outvars=[old], **about),
        *inlined(lax.select, [mask, value, old], [new], equation.source_info),
        equation.replace(primitive=swap_p, invars=[reference, new, *indices], **about),
    ]
