"""Stated expectations next to their outcome: expected and actual gains of the attempts that stated a number."""

import statistics
from collections.abc import Sequence

from harness.records import Calibration, Row

# A guess of the right kind (a loop halved, a re-read saved) is seldom off by more than a factor of two.
_FACTOR = 2.0
# Two attempts may agree by luck; with three, one outlier can no longer move the median at will.
FEWEST = 3


def calibration(rows: Sequence[Row]) -> Calibration:
    """Expected and actual gains of those `rows` that state an expectation and were compared."""
    stated = [row for row in rows if row.expected_time_ratio is not None]
    gains = [
        (1 - row.expected_time_ratio, 1 - row.time_ratio)
        for row in stated
        if row.expected_time_ratio is not None and row.time_ratio is not None
    ]
    # A gain cannot be compared with an expected gain of 0.
    ratios = [got / expected for expected, got in gains if expected]
    return Calibration(
        stated=len(stated),
        compared=len(gains),
        same_sign=sum(ratio > 0 for ratio in ratios),
        within_factor=sum(1 / _FACTOR <= ratio <= _FACTOR for ratio in ratios),
        median_ratio=statistics.median(ratios) if len(ratios) >= FEWEST else None,
    )
