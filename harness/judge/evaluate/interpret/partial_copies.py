"""Copies whose size is known only at run time (such as the last block of an inner pipeline), on a CPU.

XLA knows no such sizes, and JAX's rules for copies fail on them (seen in 0.10.2 and 0.12.0). Here the largest possible
range is read, and only the part within the size is written.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax._src.state import discharge, indexing
from jax._src.state.types import ReshapeTransform


@dataclass(frozen=True, slots=True)
class _CopiedPart:
    """`sizes` elements of `whole` from `starts` on, along each axis; the copied array lacks `squeezed` axes."""

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
    """Within this context `interpret=True` is lowered for copies of any size. Raises NotImplementedError for others."""
    read, swap = discharge.transform_array, discharge.transform_swap_array

    def read_part(x: Any, transforms: Any) -> Any:
        return _part(x, transforms, read) if _is_sized(transforms) else read(x, transforms)

    def write_part(x: Any, transforms: Any, value: Any) -> Any:
        place = next(
            (place for place, transform in enumerate(transforms or ()) if isinstance(transform, ReshapeTransform)), None
        )
        if place is not None:
            # As much of the reference as is reshaped is taken out, changed, and put back.
            inner = read(x, transforms[:place])
            old, new = write_part(inner.reshape(transforms[place].shape), transforms[place + 1 :], value)
            return old, swap(x, transforms[:place], new.reshape(inner.shape))[1]
        if not _is_sized(transforms) and not isinstance(value, _CopiedPart):
            return swap(x, transforms, value)
        if not _is_sized(transforms):
            # The target is all of what a static index gives.
            inner = read(x, transforms)
            target = _CopiedPart(inner, (0,) * inner.ndim, inner.shape, ())
            return value, swap(x, transforms, _written(target, value))[1]
        *before, _ = transforms
        target = _part(x, transforms, read)
        if not isinstance(value, _CopiedPart):
            value = _CopiedPart(value, (0,) * value.ndim, value.shape, ())
        return value, swap(x, before, _written(target, value))[1]

    discharge.transform_array, discharge.transform_swap_array = read_part, write_part
    try:
        yield
    finally:
        discharge.transform_array, discharge.transform_swap_array = read, swap


def _is_sized(transforms: Any) -> bool:
    """True if one of these has a size that is known only at run time."""
    indexers = (transform for transform in transforms or () if isinstance(transform, indexing.NDIndexer))
    return any(indexer.is_dynamic_size for indexer in indexers)


def _part(x: Any, transforms: Sequence[Any], read: Any) -> _CopiedPart:
    *before, last = transforms
    sliced = discharge._maybe_convert_to_dynamic_slice(last) if isinstance(last, indexing.NDIndexer) else None
    if _is_sized(before) or sliced is None:
        raise NotImplementedError("a copy whose size is known at run time only, of a reference that is indexed further")
    starts, sizes, squeezed = sliced
    return _CopiedPart(read(x, before), tuple(starts), tuple(sizes), tuple(squeezed))


def _written(target: _CopiedPart, source: _CopiedPart) -> Any:
    """The whole target after the copy; elements beyond the sizes keep their values."""
    kept = [axis for axis in range(source.whole.ndim) if axis not in source.squeezed]
    free = [axis for axis in range(target.whole.ndim) if axis not in target.squeezed]
    if len(kept) != len(free):
        raise NotImplementedError("a copy whose size is known at run time only, between arrays of different ranks")
    value = source.whole
    for axis in source.squeezed:
        value = lax.dynamic_slice_in_dim(value, source.starts[axis], 1, axis)
    value = lax.squeeze(value, source.squeezed)
    # The most that can be copied, and where that much of the target begins.
    shape, begins, is_copied = [1] * target.whole.ndim, list(target.starts), jnp.bool_(True)
    for place, (of, to) in enumerate(zip(kept, free, strict=True)):
        most = min(source.whole.shape[of], target.whole.shape[to])
        shape[to] = most
        begins[to] = jnp.clip(target.starts[to], 0, target.whole.shape[to] - most)
        position = jnp.arange(most) + begins[to] - target.starts[to]
        value = jnp.take(value, position + source.starts[of], axis=place, mode="clip")
        within = (position >= 0) & (position < target.sizes[to])
        is_copied &= within.reshape([-1 if axis == place else 1 for axis in range(len(kept))])
    old = lax.dynamic_slice(target.whole, begins, shape)
    new = jnp.where(is_copied, value, lax.squeeze(old, target.squeezed))
    return lax.dynamic_update_slice(target.whole, lax.expand_dims(new, target.squeezed), begins)
