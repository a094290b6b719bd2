"""Turns references into values for a CPU in two cases in which JAX's rules fail (0.10.2 and 0.12.0).

- The size of a copy may be known only at run time, for example in the last block of an inner pipeline. XLA has no
  dynamic sizes. So this lowering has a loop along each axis of unknown size; an iteration copies one index.
- JAX's rule for scoped memory turns references into values scope by scope, and fails if a loop within two scopes
  contains a third scope. This lowering turns the references of all scopes into values together.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax._src.interpreters import partial_eval
from jax._src.pallas import primitives
from jax._src.state import discharge, indexing
from jax._src.state.types import AbstractRef, ReshapeTransform
from jax.extend import core

from harness.judge.evaluate.interpret.replaced import replaced


@dataclass(frozen=True, slots=True)
class _CopiedPart:
    """A part of `whole`: along each axis, `sizes` elements that begin at `starts`. The axes `squeezed` are dropped."""

    whole: Any
    starts: tuple[Any, ...]
    sizes: tuple[Any, ...]
    squeezed: tuple[int, ...]

    @property
    def size(self) -> Any:
        """The number of copied elements, which semaphores count."""
        return math.prod(self.sizes)


@contextlib.contextmanager
def copies_of_any_size() -> Iterator[None]:
    """Within this context `interpret=True` is lowered for copies of any size.

    Raises NotImplementedError for a copy of unknown size whose reference is indexed again, or whose source and target
    differ in rank.
    """
    read, swap = discharge.transform_array, discharge.transform_swap_array

    def read_part(x: Any, transforms: Any) -> Any:
        return _part(x, transforms, read) if _is_sized(transforms) else read(x, transforms)

    def write_part(x: Any, transforms: Any, value: Any) -> Any:
        place = next(
            (place for place, transform in enumerate(transforms or ()) if isinstance(transform, ReshapeTransform)), None
        )
        if place is not None:
            # The reshaped part of the reference is read, changed and written back.
            inner = read(x, transforms[:place])
            old, new = write_part(inner.reshape(transforms[place].shape), transforms[place + 1 :], value)
            return old, swap(x, transforms[:place], new.reshape(inner.shape))[1]
        is_sized = _is_sized(transforms)
        if not is_sized and not isinstance(value, _CopiedPart):
            return swap(x, transforms, value)
        # If no index has a size known only at run time, the whole selected part is the target.
        target = _part(x, transforms, read) if is_sized else _all_of(read(x, transforms))
        source = value if isinstance(value, _CopiedPart) else _all_of(value)
        return source, swap(x, transforms[:-1] if is_sized else transforms, _written(target, source))[1]

    with replaced(discharge, transform_array=read_part, transform_swap_array=write_part):
        yield


def _is_sized(transforms: Any) -> bool:
    """True if one of these transforms has a size that is known only at run time."""
    indexers = (transform for transform in transforms or () if isinstance(transform, indexing.NDIndexer))
    return any(indexer.is_dynamic_size for indexer in indexers)


def _all_of(x: Any) -> _CopiedPart:
    return _CopiedPart(x, (0,) * x.ndim, x.shape, ())


def _part(x: Any, transforms: Sequence[Any], read: Any) -> _CopiedPart:
    *before, last = transforms
    sliced = discharge._maybe_convert_to_dynamic_slice(last) if isinstance(last, indexing.NDIndexer) else None
    if _is_sized(before) or sliced is None:
        raise NotImplementedError(
            "a copy whose size is known only at run time, if its reference is indexed again after the index with that "
            "size"
        )
    starts, sizes, squeezed = sliced
    return _CopiedPart(read(x, before), tuple(starts), tuple(sizes), tuple(squeezed))


def _written(target: _CopiedPart, source: _CopiedPart) -> Any:
    """The whole target after the copy; elements outside the copied part keep their values."""
    kept = [axis for axis in range(source.whole.ndim) if axis not in source.squeezed]
    free = [axis for axis in range(target.whole.ndim) if axis not in target.squeezed]
    if len(kept) != len(free):
        raise NotImplementedError("a copy whose size is known only at run time, between arrays of different ranks")
    pairs = list(zip(kept, free, strict=True))
    # Each step copies one index along the axes of unknown size, so that nothing beyond the copied part is moved.
    unknown = [
        (of, to) for of, to in pairs if not (isinstance(source.sizes[of], int) and isinstance(target.sizes[to], int))
    ]
    read, write = [1] * source.whole.ndim, [1] * target.whole.ndim
    for of, to in pairs:
        if (of, to) not in unknown:
            read[of] = write[to] = min(source.whole.shape[of], target.whole.shape[to], target.sizes[to])

    def step(indices: dict[tuple[int, int], Any], whole: Any) -> Any:
        begins_of, begins_to = list(source.starts), list(target.starts)
        for of, to in unknown:
            begins_of[of], begins_to[to] = source.starts[of] + indices[of, to], target.starts[to] + indices[of, to]
        value = lax.squeeze(lax.dynamic_slice(source.whole, begins_of, read), source.squeezed)
        return lax.dynamic_update_slice(whole, lax.expand_dims(value, target.squeezed), begins_to)

    def along(axes: list[tuple[int, int]], indices: dict[tuple[int, int], Any], whole: Any) -> Any:
        if not axes:
            return step(indices, whole)
        (of, to), *rest = axes
        first = jnp.maximum(0, -target.starts[to])
        size = jnp.minimum(source.sizes[of], target.sizes[to])
        end = jnp.minimum(size, target.whole.shape[to] - target.starts[to])
        return lax.fori_loop(first, end, lambda index, whole: along(rest, {**indices, (of, to): index}, whole), whole)

    return along(unknown, {}, target.whole)


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
        # `results` has the body's results, then the last values of outer references, then those of this scope's
        # references.
        changed = iter(results[count:])
        return [next(changed) if is_ref else None for is_ref in are_refs], results[:count]

    rules[primitives.run_scoped_p] = rule
    try:
        yield
    finally:
        rules[primitives.run_scoped_p] = usual
