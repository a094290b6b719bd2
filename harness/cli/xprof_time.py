"""The subcommands of `xprof` on where time goes, answered: operations, classes, steps, gaps, roofline."""

from argparse import Namespace
from collections.abc import Callable
from typing import TypeAlias

from harness.cli.verb import Outcome
from harness.errors import UsageError
from harness.records import Capture, Table
from harness.workbench.profiles import (
    breakdown,
    compare,
    gaps,
    lines,
    mfu,
    operations,
    overlap,
    reading,
    roofline,
    scopes,
    steps,
    utilization,
)
from harness.workbench.profiles.places import Place

# What is printed: tables, or text that is to stay as it is (a graph, an address).
# Tables or text, or all of it where a subcommand says how it ended.
Answer: TypeAlias = tuple[Table, ...] | str | Outcome
# What answers a subcommand, from its options and its captures.
Analysis: TypeAlias = Callable[[Namespace, tuple[Place, ...]], Answer]


def _of_capture(analysis: Callable[[Capture], Answer]) -> Analysis:
    """For an analysis of one capture that takes no options."""
    return lambda given, found: analysis(reading.read(found[0].paths))


def _rows(given: Namespace) -> int | None:
    """What --top says, None for all. Raises UsageError `usage`."""
    top: int = given.top
    if top < 0:
        raise UsageError("usage", f"expected --top 0 (all) or more, got {top}")
    return top or None


def _ops(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return operations.ops(reading.read(found[0].paths), _rows(given))


def _framework_ops(given: Namespace, found: tuple[Place, ...]) -> Answer:
    wanted = [name for word in given.category for name in word.split(",")]
    return operations.framework_ops(reading.read(found[0].paths), wanted, _rows(given))


def _compare(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return compare.compare(reading.read(found[0].paths), reading.read(found[1].paths), _rows(given))


def _mfu(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return mfu.mfu(reading.read(found[0].paths), given.gbs, given.seq, given.flops_per_token, given.num_chips)


def _roofline(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return roofline.roofline(reading.read(found[0].paths), _rows(given))


def _gaps(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return gaps.gaps(reading.read(found[0].paths), _rows(given))


def _lines(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return lines.lines(reading.read(found[0].paths), _rows(given))


def _scopes(given: Namespace, found: tuple[Place, ...]) -> Answer:
    return scopes.scopes(reading.read(found[0].paths), given.depth, given.at_least)


TIME: dict[str, Analysis] = {
    "ops": _ops,
    "framework-ops": _framework_ops,
    "compare": _compare,
    "breakdown": _of_capture(breakdown.breakdown),
    "mfu": _mfu,
    "overlap": _of_capture(overlap.overlap),
    "roofline": _roofline,
    "utilization": _of_capture(utilization.utilization),
    "gaps": _gaps,
    "steps": _of_capture(steps.steps_table),
    "lines": _lines,
    "scopes": _scopes,
}
