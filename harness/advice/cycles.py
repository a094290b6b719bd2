"""Where a simulated run's cycles go, as shares: kinds of waiting, source lines, register spills."""

from collections import defaultdict
from collections.abc import Iterable

from harness.records import Anatomy, CycleShares, LineTime, Share, Simulation

_HOTTEST = 3


def cycle_shares(run: Simulation | None) -> CycleShares | None:
    """The shares of a run that came to its end and was taken apart, or None."""
    anatomy = run.anatomy if run else None
    if run is None or anatomy is None or not anatomy.cycles:
        return None
    hottest = sorted(named_lines(anatomy), key=lambda line: line.cycles, reverse=True)[:_HOTTEST]
    steps = anatomy.steps or None
    return CycleShares(
        cycles=anatomy.cycles,
        clock_hz=run.clock_hz,
        parts=_parts(anatomy),
        bubble_fraction=anatomy.bubble_fraction,
        dearest=tuple(_share(line, line.cycles / anatomy.cycles) for line in hottest),
        spilled_bytes_per_step=anatomy.spilled_bytes / steps if steps else None,
        filled_bytes_per_step=anatomy.filled_bytes / steps if steps else None,
        spill_fraction=anatomy.spill_cycles / anatomy.cycles,
        spill_lines=_spill_lines(anatomy.lines),
    )


def named_lines(anatomy: Anatomy) -> tuple[LineTime, ...]:
    """The lines without what belongs to none."""
    return tuple(line for line in anatomy.lines if line.line)


def _parts(anatomy: Anatomy) -> tuple[Share, ...]:
    """Shares of the parts, the largest first; parts of one kind and name are one."""
    cycles: dict[str, float] = defaultdict(float)
    for part in anatomy.parts:
        cycles[f"{part.kind} {part.name}".strip()] += part.cycles
    ordered = sorted(cycles.items(), key=lambda item: item[1], reverse=True)
    return tuple(Share(name=name, fraction=value / anatomy.cycles) for name, value in ordered if value)


def _spill_lines(lines: Iterable[LineTime]) -> tuple[Share, ...]:
    """The lines' shares of the spilled and filled bytes, the largest first."""
    moved = [(line, line.spilled_bytes + line.filled_bytes) for line in lines]
    total = sum(count for _, count in moved)
    ordered = sorted(moved, key=lambda item: item[1], reverse=True)
    return tuple(_share(line, count / total) for line, count in ordered if count)


def _share(line: LineTime, fraction: float) -> Share:
    return Share(name=f"{line.file}:{line.line}" if line.line else "no line", fraction=fraction, line=line.line)
