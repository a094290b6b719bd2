"""The gain of a contest's accepted attempts on one scale, and how attempts' gains compare with expected gains."""

import statistics
from collections.abc import Sequence
from typing import Literal

from harness.hardware import chip
from harness.judge.verdict import roofline
from harness.ledger.table import ScaledTable
from harness.records import TITLE_MOVES, Attempt, Calibration, Gain, Row

# A guess of the right kind (a loop halved, a re-read saved) is seldom off by more than a factor of two.
_FACTOR = 2.0
# The fewest attempts for a median: two attempts may agree by luck, and one outlier among three cannot determine the
# median.
FEWEST = 3


def gain(table: ScaledTable) -> Gain | None:
    """The gain from the first accepted kernel to the champion's; None if nothing was accepted."""
    scale, champion = table.scale, table.champion_row
    if scale is None:
        return None
    on_scale = [row for row in table.rows if table.is_on_scale(row) and row.row.kind not in TITLE_MOVES]
    attempts = [row for row in on_scale if row.row.kind != "rebaseline"]
    titles = [row for row in on_scale if row.is_accepted]
    first = next((row for row in titles if row.row.seconds is not None), None)
    if first and champion and _is_same(first.row, champion.row):
        # Attempts that only checked the champion again made no gain.
        first, titles = champion, [champion, *titles] if first is titles[0] else titles
    seconds = champion.row.seconds if champion else None
    bound_by, share = _bound(table.champion, seconds) if table.champion and seconds else (None, None)
    return Gain(
        source=scale.source,
        chip=scale.chip,
        attempts=len(attempts),
        accepted=sum(row.is_accepted for row in attempts),
        revoked=sum(row.row.is_title and not row.is_accepted for row in attempts),
        champion=table.number,
        champion_seconds=seconds,
        first=first.row.number if first else None,
        first_seconds=first.row.seconds if first else None,
        is_whole=first is not None and first is titles[0],
        bound_by=bound_by,
        peak_share=share,
    )


def _is_same(first: Row, champion: Row) -> bool:
    """True if two attempts have the same text, or texts with the same program and time."""
    is_traced_alike = first.fingerprint != "" and first.fingerprint == champion.fingerprint
    return first.kernel_sha256 == champion.kernel_sha256 or (is_traced_alike and first.seconds == champion.seconds)


def _bound(champion: Attempt, seconds: float) -> tuple[Literal["compute", "memory"] | None, float | None]:
    """The resource that bounds the champion at `seconds`, and the share of that resource's peak that is used.

    Both are None for a suite, for a time on a CPU, if the traffic is unknown, or if neither compute nor memory bounds
    the champion. A time on a CPU says nothing about the chip's peaks.
    """
    evidence = champion.evidence
    if evidence.members or champion.key.source == "measured cpu":
        return None, None
    hardware, work = chip(evidence.chip), evidence.problem.work
    moved, _ = roofline.traffic(evidence)
    if moved is None:
        return None, None
    peak = roofline.peak(work, hardware)
    util = roofline.utilisation(work.flops, seconds, peak)
    bandwidth = roofline.memory_only_seconds(moved, hardware) / seconds
    intensity = work.flops / moved if moved else float("inf")
    regime = roofline.regime(util, bandwidth, intensity, hardware.ridge(work.matmul_dtype))
    if regime == "memory-bound":
        return "memory", bandwidth
    if regime == "latency-bound" or not work.matmul_flops:
        return None, None
    return "compute", roofline.utilisation(work.matmul_flops, seconds, peak)


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
