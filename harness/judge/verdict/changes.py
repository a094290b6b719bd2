"""The changes from champion to candidate in the figures that explain a verdict."""

import math
from dataclasses import replace
from typing import Literal

from harness.judge.verdict import roofline
from harness.records import Change, Evidence

# The unit and number of each figure, by its name.
Figures = dict[str, tuple[Literal["", "B", "cycles"], float | None]]
# A smaller change cannot explain a verdict, because the minimum effect is 1 %.
_NOTABLE_CHANGE = math.log(1.01)


def changes(candidate: Evidence, champion: Evidence) -> tuple[Change, ...]:
    """Changes of more than 1 % from champion to candidate in traffic, steps, cycles, spills and copies, largest first.

    For a suite, the changes of each member, with the member's name.
    """
    if candidate.members:
        each = (
            replace(change, name=f"{change.name} of {name}")
            for (name, ours), (_, theirs) in zip(candidate.programs, champion.programs, strict=False)
            for change in changes(ours, theirs)
        )
        return tuple(sorted(each, key=_size, reverse=True))
    before = movable(champion)
    moved = [
        Change(name=name, unit=unit, before=old, after=new)
        for name, (unit, new) in movable(candidate).items()
        if (old := before[name][1]) is not None and new is not None
    ]
    return tuple(change for change in sorted(moved, key=_size, reverse=True) if _size(change) > _NOTABLE_CHANGE)


def _size(change: Change) -> float:
    # Because of the added 1, a count that rises from zero is a large change instead of an infinite change.
    return abs(math.log((change.after + 1) / (change.before + 1)))


def movable(evidence: Evidence) -> Figures:
    """The figures that a kernel can change or that explain its time, by name: unit, and number (None: unknown)."""
    run, trace = roofline.finished_run(evidence), evidence.trace
    return {
        "bundles executed": ("", run.bundle_cycles if run else None),
        "DMA waits": ("cycles", run.dma_wait_cycles if run else None),
        "unit stalls": ("cycles", run.unit_stall_cycles if run else None),
        "spills executed": ("", run.executed_spills if run else None),
        "fills executed": ("", run.executed_fills if run else None),
        "grid steps": ("", sum(call.steps for call in trace.pallas_calls) if trace else None),
        "HBM traffic": ("B", roofline.traffic(evidence)[0]),
        "copies around the kernel": ("", evidence.hlo.copy if evidence.hlo else None),
    }
