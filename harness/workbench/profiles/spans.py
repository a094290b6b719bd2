"""Spans of time as columns of starts and ends: merging of spans that touch, lengths, and the time that sets share."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

Values: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Spans: TypeAlias = tuple[Values, Values]
# Captures count whole picoseconds; a time shorter than half of one comes from rounding.
LEAST = 0.5e-12


def spans(pairs: Iterable[tuple[float, float]]) -> Spans:
    """The merged spans of pairs of start and end."""
    ends = np.array(list(pairs), float).reshape(-1, 2)
    return merge(ends[:, 0], ends[:, 1])


def merge(starts: Values, ends: Values, apart: float = LEAST) -> Spans:
    """The spans in order, merged unless they lie more than `apart` from each other."""
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, so_far = starts[order], np.maximum.accumulate(ends[order])
    is_new = np.r_[True, starts[1:] > so_far[:-1] + apart]
    return starts[is_new], so_far[np.r_[np.flatnonzero(is_new)[1:] - 1, len(starts) - 1]]


def length(merged: Spans) -> float:
    """Seconds of merged spans."""
    return float((merged[1] - merged[0]).sum())


def within(merged: Spans, start: float, end: float) -> float:
    """Seconds of merged spans between two moments."""
    low, high = np.searchsorted(merged[1], start, "right"), np.searchsorted(merged[0], end)
    return float((np.minimum(merged[1][low:high], end) - np.maximum(merged[0][low:high], start)).sum())


def shared_seconds(first: Spans, second: Spans) -> float:
    """Seconds that both of two sets of merged spans cover."""
    both = merge(np.r_[first[0], second[0]], np.r_[first[1], second[1]])
    return length(first) + length(second) - length(both)
