"""Stretches of time as columns of starts and ends: merged where they touch, and how much one has of another."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

Values: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Spans: TypeAlias = tuple[Values, Values]
# Captures count whole picoseconds; what is shorter than half of one comes from rounding.
LEAST = 0.5e-12


def spans(pairs: Iterable[tuple[float, float]]) -> Spans:
    """The same time as `pairs` of start and end, merged."""
    ends = np.array(list(pairs), float).reshape(-1, 2)
    return merged(ends[:, 0], ends[:, 1])


def merged(starts: Values, ends: Values, apart: float = LEAST) -> Spans:
    """The same time in stretches that lie more than `apart` from each other, in order."""
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, so_far = starts[order], np.maximum.accumulate(ends[order])
    is_new = np.r_[True, starts[1:] > so_far[:-1] + apart]
    return starts[is_new], so_far[np.r_[np.flatnonzero(is_new)[1:] - 1, len(starts) - 1]]


def length(some: Spans) -> float:
    """Seconds of merged stretches."""
    return float((some[1] - some[0]).sum())


def within(some: Spans, start: float, end: float) -> float:
    """Seconds of merged stretches between two moments."""
    low, high = np.searchsorted(some[1], start, "right"), np.searchsorted(some[0], end)
    return float((np.minimum(some[1][low:high], end) - np.maximum(some[0][low:high], start)).sum())


def shared(one: Spans, other: Spans) -> float:
    """Seconds that two merged stretches have in common."""
    both = merged(np.r_[one[0], other[0]], np.r_[one[1], other[1]])
    return length(one) + length(other) - length(both)
