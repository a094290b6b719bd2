"""Interprets copies and writes of reshaped references, which TPU interpret mode cannot handle (jax 0.10.2, 0.12.0).

The accessed part of a reshaped reference must be a block of the original reference; otherwise the access is refused.
Races and bounds are checked for that block.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

from jax import tree_util
from jax._src.pallas.mosaic.interpret import shared_memory
from jax._src.pallas.mosaic.interpret import utils as interpret_utils
from jax._src.state.indexing import NDIndexer
from jax._src.state.types import ReshapeTransform, TransformedRef
from jax._src.tree_util import tracing_registry

from harness.judge.evaluate.interpret.replaced import replaced
from harness.judge.evaluate.interpret.rewriting import rewritten
from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, equations, line_of

NO_BLOCK = "NO BLOCK OF THE REFERENCE"
_COPIES = ("dma_start", "dma_wait")
Range = tuple[int | slice, ...]


def with_indices_first(jaxpr: Jaxpr) -> Jaxpr:
    """The same kernel, with an index of the whole reference before its first reshape. This index records the shape."""
    return rewritten(jaxpr, lambda equation: [_index_first(equation) if _reshaped(equation) else equation])


def _index_first(equation: Equation) -> Equation:
    if equation.primitive.name == "swap":
        reference, value, *indices = equation.invars
        whole = TransformedRef(reference, tree_util.tree_unflatten(equation.params["tree"], indices))
        flat, tree = tree_util.tree_flatten(_indexed(whole).transforms)
        flat = [reference, value, *flat]
    else:
        flat, tree = tracing_registry.flatten(tuple(map(_indexed, _operands(equation))))
    return equation.replace(invars=flat, params={**equation.params, "tree": tree})


def lines(jaxpr: Jaxpr) -> list[str]:
    """The lines at which kernels copy or write reshaped references, as `line_of` returns them."""
    return [line_of(equation) for equation in equations(jaxpr) if _reshaped(equation)]


def _operands(equation: Equation) -> tuple[Any, ...]:
    return tuple(tree_util.tree_unflatten(equation.params["tree"], equation.invars))


def _reshaped(equation: Equation) -> bool:
    """True if the equation copies or writes a reshaped reference."""
    if equation.primitive.name in _COPIES:
        return any(any(map(_is_reshape, _transforms(operand))) for operand in _operands(equation))
    if equation.primitive.name == "swap":
        return any(map(_is_reshape, tree_util.tree_unflatten(equation.params["tree"], equation.invars[2:])))
    return False


def _is_reshape(transform: Any) -> bool:
    return isinstance(transform, ReshapeTransform)


def _transforms(operand: Any) -> tuple[Any, ...]:
    return tuple(operand.transforms) if isinstance(operand, TransformedRef) else ()


def _indexed(operand: Any) -> Any:
    """The operand, preceded by an index of the whole; unchanged if the operand begins with an index or has no shape."""
    transforms = _transforms(operand)
    reference = getattr(operand, "ref", operand)
    if not isinstance(getattr(getattr(reference, "aval", None), "shape", None), tuple) or not reference.aval.shape:
        return operand
    if transforms and isinstance(transforms[0], NDIndexer):
        return operand
    return TransformedRef(reference, (NDIndexer.make_trivial_indexer(reference.aval.shape), *transforms))


@contextlib.contextmanager
def reshaped_references() -> Iterator[None]:
    """Within this context, an access of part of a reshaped reference becomes an access of a block of the original.

    Raises RuntimeError (NO_BLOCK) at run time if there is no such block.
    """
    memory = shared_memory.SharedMemory
    usual, store, swap = interpret_utils.to_range, memory.store_buffer_content, memory.swap_buffer_content

    def to_range(transforms: Sequence[Any]) -> Range:
        selection: Range = ()
        shape: tuple[int, ...] | None = None
        indexers: list[Any] = []
        for transform in (*transforms, None):
            if transform is not None and not _is_reshape(transform):
                indexers.append(transform)
                continue
            part = usual(indexers)
            selection = part if shape is None else _within(selection, shape, part)
            shape, indexers = getattr(transform, "shape", None), []
        return selection

    def stored(self: Any, key: Any, rnge: Range, value: Any, *arguments: Any, **named: Any) -> Any:
        return store(self, key, rnge, _fitted(value, rnge), *arguments, **named)

    def swapped(self: Any, key: Any, rnge: Range, value: Any, mask: Any, *arguments: Any, **named: Any) -> Any:
        before, *others = swap(self, key, rnge, _fitted(value, rnge), mask, *arguments, **named)
        return (before if before is None or before.size != value.size else before.reshape(value.shape), *others)

    with (
        replaced(interpret_utils, to_range=to_range),
        replaced(memory, store_buffer_content=stored, swap_buffer_content=swapped),
    ):
        yield


def _size(part: slice) -> int:
    return int((part.stop - part.start) // part.step)


def _fitted(value: Any, rnge: Range) -> Any:
    """The value in the shape of its target `rnge`, a range along the axes of the original reference."""
    shape = tuple(_size(part) for part in rnge if isinstance(part, slice))
    is_same = shape == value.shape[: len(shape)] or math.prod(shape) != value.size
    return value if is_same else value.reshape(shape)


def _within(base: Range, shape: Sequence[int], box: Range) -> Range:
    """The part of `base` that `box` selects after `base` is reshaped to `shape`."""
    parts = [index for index in base if isinstance(index, slice)]
    wide = [index if isinstance(index, slice) else slice(index, index + 1, 1) for index in box]
    wide += [slice(0, length, 1) for length in shape[len(box) :]]
    slices: list[slice] = []
    for old, new in _groups([_size(part) for part in parts], list(shape)):
        slices += _block([_size(parts[place]) for place in old], [(shape[place], wide[place]) for place in new])
    composed = iter(
        slice(part.start + piece.start * part.step, part.start + piece.stop * part.step, part.step * piece.step)
        for part, piece in zip(parts, slices, strict=True)
    )
    return tuple(next(composed) if isinstance(index, slice) else index for index in base)


def _groups(old: list[int], new: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The positions of the axes of both shapes, in the smallest groups whose lengths have equal products."""
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = [i] if i < len(old) else [], [j] if j < len(new) else []
        i, j = i + len(left), j + len(right)
        while (a := math.prod(old[axis] for axis in left)) != (b := math.prod(new[axis] for axis in right)):
            if a < b:
                left.append(i)
                i += 1
            else:
                right.append(j)
                j += 1
        yield left, right


def _block(old: list[int], new: list[tuple[int, slice]]) -> list[slice]:
    """The block along axes `old` that these parts of axes `new` form. Raises RuntimeError if they form no block."""
    if len(old) == len(new) == 1:
        return [new[0][1]]
    start, step, count, stride = 0, 0, 1, 1
    for length, part in reversed(new):
        start += part.start * stride
        size = _size(part)
        if size != 1:
            # The selected elements must be equally spaced.
            if step and step * count != part.step * stride:
                raise _no_block()
            step, count = step or part.step * stride, count * size
        stride *= length
    return _unravelled(old, start, count, step or 1)


def _unravelled(lengths: list[int], start: int, count: int, step: int) -> list[slice]:
    """The block of `count` elements along axes of these lengths: the first at `start`, each `step` after the previous.

    Raises RuntimeError if these elements form no block.
    """
    if not lengths:
        return []
    stride = math.prod(lengths[1:])
    first, left = divmod(start, stride)
    if len(lengths) == 1:
        return [slice(start, start + count * step, step)]
    if count == 1 or (start + (count - 1) * step) // stride == first:
        return [slice(first, first + 1, 1), *_unravelled(lengths[1:], left, count, step)]
    if step % stride == 0:
        rows = slice(first, first + count * (step // stride), step // stride)
        return [rows, *_unravelled(lengths[1:], left, 1, 1)]
    each = stride // step
    if stride % step == 0 and left < step and count % each == 0:
        return [slice(first, first + count // each, 1), *_unravelled(lengths[1:], left, each, step)]
    raise _no_block()


def _no_block() -> RuntimeError:
    return RuntimeError(f"{NO_BLOCK}: a copy or write of a part of a reshaped reference")
