"""The analyses of a capture as functions, for tests that ask one after the other."""

from collections.abc import Sequence

from harness.records import Capture, Table
from harness.workbench.profiles import ceilings, hotspots, timeline
from harness.workbench.profiles.analysis import tables
from harness.workbench.profiles.ceilings import mfu
from harness.workbench.profiles.communication import overlap
from harness.workbench.profiles.comparison import compare, report
from harness.workbench.profiles.overview import overview
from harness.workbench.profiles.timeline import gaps_and_inside, steps_table
from harness.workbench.profiles.waste import waste

__all__ = (
    "breakdown",
    "compare",
    "framework_ops",
    "gaps",
    "gaps_and_inside",
    "lines",
    "mfu",
    "ops",
    "overlap",
    "overview",
    "report",
    "roofline",
    "scopes",
    "steps_table",
    "utilization",
    "waste",
)


def ops(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """The tables of `xprof ops`."""
    return tables(capture, (hotspots.OPS,), top=top, useful_flops=None)


def framework_ops(capture: Capture, categories: Sequence[str] = (), top: int | None = None) -> tuple[Table, ...]:
    """The tables of `xprof framework-ops`."""
    return hotspots.framework_ops(capture, ",".join(categories), top)


def lines(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """The tables of `xprof lines`."""
    return tables(capture, (hotspots.LINES,), top=top)


def scopes(capture: Capture, depth: int = 4, at_least: float = 0.0) -> tuple[Table, ...]:
    """The tables of `xprof scopes`."""
    return tables(capture, (hotspots.SCOPES,), depth=depth, at_least=at_least)


def breakdown(capture: Capture) -> tuple[Table, ...]:
    """The tables of `xprof breakdown`."""
    return tables(capture, hotspots.BREAKDOWN)


def roofline(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """The tables of `xprof roofline`."""
    return tables(capture, (ceilings.ROOFLINE,), top=top)


def utilization(capture: Capture) -> tuple[Table, ...]:
    """The tables of `xprof utilization`."""
    return tables(capture, (ceilings.UTILIZATION,))


def gaps(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """The tables of `xprof gaps` on the time between operations."""
    return tables(capture, timeline.GAPS, top=top)
