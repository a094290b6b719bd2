"""Replaces reads and writes that JAX's interpreters (0.10.2, 0.12.0) cannot perform.

- If a reference is indexed, then reshaped or bitcast, then indexed again, TPU interpret mode handles only the first
  indices. The replacement reads everything that the first indices select, and all of it is checked for races. A write
  through a bitcast reference becomes a write of everything that the first indices select, with the old values around
  the new values.
- For a write under a mask, TPU interpret mode mistakes the length of a later axis for that of the first axis, and
  reports an access out of bounds. `interpret=True` cannot handle a constant index in such a write. The replacement
  reads everything that the indices select and writes it back, with the new values where the mask is true.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, tree_util
from jax._src.state.discharge import transform_array, transform_swap_array
from jax._src.state.indexing import NDIndexer, Slice
from jax._src.state.primitives import get_p, swap_p
from jax._src.state.types import BitcastTransform, ReshapeTransform
from jax._src.state.utils import bitcast
from jax.extend import core

from harness.judge.evaluate.interpret.rewriting import rewritten
from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, inlined

# An offset beyond the end of any memory.
FAR = 1 << 24


def with_plain_reads(jaxpr: Jaxpr) -> Jaxpr:
    """The same kernel; in a read, the transforms after the first indices are applied to the values that were read."""
    return rewritten(jaxpr, lambda each: _plain_read(each) if each.primitive.name == "get" else [each])


def with_plain_bitcasts(jaxpr: Jaxpr) -> Jaxpr:
    """The same kernel; a write through a bitcast reference writes everything that the first indices select."""
    return rewritten(jaxpr, lambda each: _plain_bitcast(each) if each.primitive.name == "swap" else [each])


def with_plain_writes(jaxpr: Jaxpr) -> Jaxpr:
    """The same kernel; each write under a mask becomes a read, a selection by the mask, and a plain write."""
    return rewritten(jaxpr, lambda each: _plain_write(each) if each.primitive.name == "masked_swap" else [each])


def _plain_read(equation: Equation) -> list[Equation]:
    reference, *operands = equation.invars
    transforms, later = _split(reference, equation.params["tree"], operands)
    if later == len(transforms):
        indices, tree = tree_util.tree_flatten(transforms)
        return [equation.replace(invars=[reference, *indices], params={**equation.params, "tree": tree})]
    rest, tree_of_rest = tree_util.tree_flatten(transforms[later:])
    shape, bounds, first, tree = _bounded(reference, transforms, later, equation)
    (out,) = equation.outvars
    read = core.Var(out.aval.update(shape=shape, dtype=reference.aval.dtype))

    def model(values: Any, *indices: Any) -> Any:
        return transform_array(values, tree_util.tree_unflatten(tree_of_rest, indices))

    before = equation.replace(invars=[reference, *first], outvars=[read], params={**equation.params, "tree": tree})
    return [*bounds, before, *inlined(model, [read, *rest], [out], equation.source_info)]


def _plain_bitcast(equation: Equation) -> list[Equation]:
    reference, value, *operands = equation.invars
    transforms, later = _split(reference, equation.params["tree"], operands)
    if not any(isinstance(transform, BitcastTransform) for transform in transforms):
        return [equation]
    rest, tree_of_rest = tree_util.tree_flatten(transforms[later:])
    shape, bounds, first, tree = _bounded(reference, transforms, later, equation)
    whole = value.aval.update(shape=shape, dtype=reference.aval.dtype)
    old, new, dropped = core.Var(whole), core.Var(whole), core.Var(whole)

    def model(values: Any, written: Any, *indices: Any) -> Any:
        rest_transforms = tree_util.tree_unflatten(tree_of_rest, indices)
        return transform_array(values, rest_transforms), _written(values, rest_transforms, written)

    about: dict[str, Any] = {"params": {"tree": tree}, "effects": equation.effects}
    return [
        *bounds,
        equation.replace(primitive=get_p, invars=[reference, *first], outvars=[old], **about),
        *inlined(model, [old, value, *rest], [equation.outvars[0], new], equation.source_info),
        equation.replace(invars=[reference, new, *first], outvars=[dropped], **about),
    ]


def _split(reference: Any, tree: Any, operands: Sequence[Any]) -> tuple[tuple[Any, ...], int]:
    """The transforms as `_indices_first` returns them, and the number of indices before the first other transform."""
    transforms = _indices_first(reference, tree_util.tree_unflatten(tree, operands))
    places = (place for place, transform in enumerate(transforms) if not isinstance(transform, NDIndexer))
    return transforms, next(places, len(transforms))


def _bounded(
    reference: Any, transforms: tuple[Any, ...], later: int, equation: Equation
) -> tuple[tuple[int, ...], list[Equation], list[Any], Any]:
    """The shape that the transforms before position `later` select; equations; new first transforms, flattened; a tree.

    The new transforms use the results of the equations, and point far out of bounds if a later transform points out of
    bounds. If the later index were applied to values, JAX would move it back within bounds. On a chip, the index would
    reach other memory.
    """
    rest, tree = tree_util.tree_flatten(transforms[later:])
    first = transforms[:later]
    shape = first[-1].get_indexer_shape() if first else reference.aval.shape
    if not rest:
        return shape, [], *tree_util.tree_flatten(first)
    offset = core.Var(jax.core.ShapedArray((), jnp.int32))

    def model(*indices: Any) -> Any:
        is_out = jnp.bool_(False)
        for transform in tree_util.tree_unflatten(tree, indices):
            if not isinstance(transform, NDIndexer):
                continue
            for index, length in zip(transform.indices, transform.shape, strict=True):
                start = last = index
                if isinstance(index, Slice):
                    start, last = index.start, index.start + (index.size - 1) * index.stride
                is_beyond = lax.bitwise_or(jnp.less(start, 0), jnp.greater_equal(last, length))
                is_out = lax.bitwise_or(is_out, lax.reduce_or(is_beyond, tuple(range(is_beyond.ndim))))
        return lax.select(is_out, jnp.int32(FAR), jnp.int32(0))

    indices = (Slice(offset, shape[0]), *(Slice(0, length) for length in shape[1:]))
    operands, tree_of_first = tree_util.tree_flatten((*first, NDIndexer(indices, shape, ())))
    return shape, inlined(model, rest, [offset], equation.source_info), operands, tree_of_first


def _written(values: Any, transforms: Sequence[Any], value: Any) -> Any:
    """A copy of `values` that has `value` at the place that these transforms select."""
    if not transforms:
        return value
    first, *rest = transforms
    part = _written(transform_array(values, [first]), rest, value)
    if isinstance(first, NDIndexer):
        return transform_swap_array(values, [first], part)[1]
    return bitcast(part, values.dtype) if isinstance(first, BitcastTransform) else part.reshape(values.shape)


def _indices_first(reference: Any, transforms: Sequence[Any]) -> tuple[Any, ...]:
    """The same transforms; indices of a bitcast or reshaped reference are moved ahead as far as possible.

    Indices of leading axes can move. All indices of a bitcast reference can move if they select its last two axes
    whole. Without the move, an access would cover the whole reference, including parts that a copy is writing.
    """
    shape = tuple(reference.aval.shape)
    reordered = _without_no_reshapes(shape, _leading_first(shape, list(transforms)))
    for place, transform in enumerate(reordered[:-1]):
        following = reordered[place + 1]
        if isinstance(transform, BitcastTransform) and isinstance(following, NDIndexer):
            rows, columns = following.indices[-2:]
            if all(map(_is_whole, (rows, columns), following.shape[-2:])):
                indices = (*following.indices[:-2], Slice(0, shape[-2]), columns)
                reordered[place : place + 2] = [dataclasses.replace(following, indices=indices, shape=shape), transform]
        if not isinstance(reordered[place], NDIndexer):
            break
        shape = tuple(reordered[place].get_indexer_shape())
    return tuple(reordered)


def _without_no_reshapes(shape: tuple[int, ...], transforms: list[Any]) -> list[Any]:
    """The same transforms without the leading reshapes that keep the shape; indices may be between these reshapes."""
    kept: list[Any] = []
    for place, transform in enumerate(transforms):
        if isinstance(transform, NDIndexer):
            shape = tuple(transform.get_indexer_shape())
        elif not isinstance(transform, ReshapeTransform) or tuple(transform.shape) != shape:
            return [*kept, *transforms[place:]]
        else:
            continue
        kept.append(transform)
    return kept


def _leading_first(shape: tuple[int, ...], transforms: list[Any]) -> list[Any]:
    """The same transforms; the first indices are moved ahead for leading axes that no transform before them changes.

    A bitcast changes the second to last axis. A reshape changes the first axis whose length differs, and all axes after
    it.
    """
    place = next((place for place, each in enumerate(transforms) if isinstance(each, NDIndexer)), 0)
    indexer = transforms[place] if place else None
    if indexer is None or indexer.int_indexer_shape:
        return transforms
    shapes = [shape, *(each.shape for each in transforms[:place] if isinstance(each, ReshapeTransform))]
    count = 0
    while all(count < len(each) - 2 and each[count] == shape[count] for each in shapes):
        count += 1
    indices = indexer.indices[:count]
    if all(map(_is_whole, indices, shape)):
        return transforms
    kept = tuple(index.size for index in indices if isinstance(index, Slice))

    def later(lengths: tuple[int, ...]) -> tuple[int, ...]:
        return (*kept, *lengths[count:])

    return [
        NDIndexer((*indices, *(Slice(0, length) for length in shape[count:])), shape, ()),
        *(
            ReshapeTransform(later(each.shape)) if isinstance(each, ReshapeTransform) else each
            for each in transforms[:place]
        ),
        NDIndexer((*(Slice(0, size) for size in kept), *indexer.indices[count:]), later(indexer.shape), ()),
        *transforms[place + 1 :],
    ]


def _is_whole(index: Any, length: int) -> bool:
    return isinstance(index, Slice) and (index.start, index.size, index.stride) == (0, length, 1)


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
