"""Spans of time as columns of starts and ends: merged spans, their lengths, and the time that two sets share."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

Values: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Spans: TypeAlias = tuple[Values, Values]
# Captures count whole picoseconds, so a time shorter than half a picosecond comes from rounding.
LEAST = 0.5e-12


def spans(pairs: Iterable[tuple[float, float]]) -> Spans:
    """The merged spans of these (start, end) pairs."""
    ends = np.array(list(pairs), float).reshape(-1, 2)
    return merge(ends[:, 0], ends[:, 1])


def merge(starts: Values, ends: Values, apart: float = LEAST) -> Spans:
    """The spans in order; neighbours with a gap of at most `apart` are merged."""
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, so_far = starts[order], np.maximum.accumulate(ends[order])
    is_new = np.r_[True, starts[1:] > so_far[:-1] + apart]
    return starts[is_new], so_far[np.r_[np.flatnonzero(is_new)[1:] - 1, len(starts) - 1]]


def length(merged: Spans) -> float:
    """The total seconds of merged spans."""
    return float((merged[1] - merged[0]).sum())


def within(merged: Spans, start: float, end: float) -> float:
    """The seconds of merged spans that lie between `start` and `end`."""
    low, high = np.searchsorted(merged[1], start, "right"), np.searchsorted(merged[0], end)
    return float((np.minimum(merged[1][low:high], end) - np.maximum(merged[0][low:high], start)).sum())


def shared_seconds(first: Spans, second: Spans) -> float:
    """The seconds that are in both sets of merged spans."""
    both = merge(np.r_[first[0], second[0]], np.r_[first[1], second[1]])
    return length(first) + length(second) - length(both)


def meet(merged: Spans, start: float, end: float) -> bool:
    """True if merged spans cover more time between `start` and `end` than rounding explains."""
    return within(merged, start, end) > LEAST


def without(parts: Spans, cut: Spans) -> tuple[Values, Values, Values]:
    """The parts of spans that are outside the merged spans `cut`: starts, ends, and the index of each part's span."""
    starts, ends = parts
    low, high = np.searchsorted(cut[1], starts, "right"), np.searchsorted(cut[0], ends)
    left: list[tuple[float, float, int]] = []
    for at in np.flatnonzero(low < high):
        opens, closes = np.r_[starts[at], cut[1][low[at] : high[at]]], np.r_[cut[0][low[at] : high[at]], ends[at]]
        left += [(*part, int(at)) for part in zip(opens, closes, strict=True) if part[1] > part[0] + LEAST]
    whole, cut_up = np.flatnonzero(low >= high), np.array(left).reshape(-1, 3)
    numbers = np.r_[whole, cut_up[:, 2].astype(int)]
    order = np.argsort(numbers, kind="stable")
    return np.r_[starts[whole], cut_up[:, 0]][order], np.r_[ends[whole], cut_up[:, 1]][order], numbers[order]
