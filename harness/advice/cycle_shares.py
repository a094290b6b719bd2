"""Shares of a simulated run's cycles: kinds of waiting, source lines, register spills."""

from collections import defaultdict
from collections.abc import Iterable

from harness.records import CycleBreakdown, CycleShares, LineTime, Share, Simulation
from harness.records.report_words import part_words

_HOTTEST = 3


def cycle_shares(run: Simulation | None) -> CycleShares | None:
    """The shares of a finished run whose cycles are broken down; None for any other run."""
    breakdown = run.breakdown if run else None
    if run is None or breakdown is None or not breakdown.cycles:
        return None
    lines = [line for line in breakdown.lines if line.line]
    hottest = sorted(lines, key=lambda line: line.cycles, reverse=True)[:_HOTTEST]
    steps = breakdown.steps or None
    return CycleShares(
        cycles=breakdown.cycles,
        clock_hz=run.clock_hz,
        parts=_parts(breakdown),
        bubble_fraction=breakdown.bubble_fraction,
        hottest=tuple(_share(line, line.cycles / breakdown.cycles) for line in hottest),
        spilled_bytes_per_step=breakdown.spilled_bytes / steps if steps else None,
        filled_bytes_per_step=breakdown.filled_bytes / steps if steps else None,
        spill_fraction=breakdown.spill_cycles / breakdown.cycles,
        spill_lines=_spill_lines(breakdown.lines),
    )


def _parts(breakdown: CycleBreakdown) -> tuple[Share, ...]:
    """Shares of the parts, the largest first; parts of the same kind and name are added up."""
    cycles: dict[str, float] = defaultdict(float)
    for part in breakdown.parts:
        cycles[part_words(part)] += part.cycles
    ordered = sorted(cycles.items(), key=lambda item: item[1], reverse=True)
    return tuple(Share(name=name, fraction=value / breakdown.cycles) for name, value in ordered if value)


def _spill_lines(lines: Iterable[LineTime]) -> tuple[Share, ...]:
    """The lines' shares of the spilled and filled bytes, the largest first."""
    moved = [(line, line.spilled_bytes + line.filled_bytes) for line in lines]
    total = sum(count for _, count in moved)
    ordered = sorted(moved, key=lambda item: item[1], reverse=True)
    return tuple(_share(line, count / total) for line, count in ordered if count)


def _share(line: LineTime, fraction: float) -> Share:
    return Share(name=f"{line.file}:{line.line}" if line.line else "no line", fraction=fraction, line=line.line)
