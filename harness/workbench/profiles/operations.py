"""Time by HLO operation, and by framework operation with the part of the model it belongs to."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from harness.errors import UsageError
from harness.records import Capture, Column, Table
from harness.records.table import Cell
from harness.units import percent, seconds
from harness.workbench.profiles.classes import (
    FRAMEWORK_CATEGORIES,
    direction,
    framework_category,
    is_custom_call,
    op_class,
)
from harness.workbench.profiles.op_times import OperationTime, devices, op_times, origin, why_nothing_ran

_Key = TypeVar("_Key")

_TIME = (
    Column(name="self_seconds", title="self time", unit="s"),
    Column(name="share", title="share", unit="fraction"),
    Column(name="count", title="runs", unit="count"),
)
_OPS = (
    Column(name="operation", title="operation"),
    Column(name="category", title="category"),
    *_TIME,
    Column(name="mean_seconds", title="mean", unit="s"),
    Column(name="flops_per_second", title="FLOP rate", unit="FLOP/s"),
    Column(name="bytes_per_second", title="bandwidth", unit="B/s"),
)
_CATEGORIES = (Column(name="category", title="category"), *_TIME)
_FRAMEWORK_OPS = (
    Column(name="framework_name", title="framework operation (tf_op)"),
    Column(name="category", title="category"),
    Column(name="direction", title="direction"),
    *_TIME,
)
NO_NAME = "(no tf_op in the capture)"


def ops(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Every HLO operation, longest self time first; with `top` only so many."""
    found = op_times(devices(capture))
    whole = sum(one.self_seconds for one in found)
    rows = tuple(
        (
            one.operation.name,
            one.operation.category or op_class(one.operation),
            one.self_seconds,
            _share(one.self_seconds, whole),
            one.count,
            one.mean_seconds,
            one.flops_per_second,
            one.bytes_per_second,
        )
        for one in found[:top]
    )
    return (
        Table(
            name="ops",
            title="Time by HLO operation",
            origin=origin(capture),
            columns=_OPS,
            rows=rows,
            notes=(*_sums(capture, whole, len(found), len(rows)), *uncounted(found)) if rows else (),
            why_empty="" if rows else why_nothing_ran(capture),
        ),
    )


def framework_ops(capture: Capture, categories: Sequence[str] = (), top: int | None = None) -> tuple[Table, ...]:
    """Time by framework category, then by tf_op; with `categories` only those. Raises UsageError `unknown-category`."""
    for name in categories:
        if name not in FRAMEWORK_CATEGORIES:
            known = ", ".join(FRAMEWORK_CATEGORIES)
            raise UsageError("unknown-category", f"expected a framework category, one of {known}, got {name!r}")
    everything = op_times(devices(capture))
    whole = sum(one.self_seconds for one in everything)
    if not everything:
        why = why_nothing_ran(capture)
        return _tables(capture, (), (), (), why, why)
    by_category: dict[str, list[OperationTime]] = defaultdict(list)
    by_name: dict[tuple[str, str, str], list[OperationTime]] = defaultdict(list)
    for one in everything:
        category = framework_category(one.operation)
        by_category[category].append(one)
        if not categories or category in categories:
            name = one.operation.framework_name or NO_NAME
            by_name[name, category, direction(one.operation)[0]].append(one)
    summary = tuple((name, *_time(group, whole)) for name, group in _longest(by_category))
    rows = tuple((*name, *_time(group, whole)) for name, group in _longest(by_name))
    unnamed = sum(one.self_seconds for one in everything if not one.operation.framework_name)
    notes = [*_sums(capture, whole, len(rows), len(rows[:top]), "framework operations")]
    if unnamed:
        notes.append(f"{_percent(unnamed, whole)} of the time bears no tf_op: its own name decides the category.")
    there = ", ".join(name for name, _ in _longest(by_category))
    why = f"no operation belongs to {', '.join(categories)}; what there is: {there}"
    return _tables(capture, summary, rows[:top], tuple(notes), "", "" if rows else why)


def uncounted(found: Sequence[OperationTime]) -> tuple[str, ...]:
    """A sentence on the kernels whose FLOPs nobody counted, if there are any."""
    silent = [one for one in found if is_custom_call(one.operation) and one.operation.flops is None]
    if not silent:
        return ()
    whole = sum(one.self_seconds for one in found)
    share = _percent(sum(one.self_seconds for one in silent), whole)
    return (
        f"{share} of the time is in custom calls that count 0 FLOPs, shown as unknown: a Pallas kernel is counted only "
        "with pl.CostEstimate.",
    )


def _tables(
    capture: Capture,
    summary: tuple[tuple[Cell, ...], ...],
    rows: tuple[tuple[Cell, ...], ...],
    notes: tuple[str, ...],
    why_no_summary: str,
    why_no_rows: str,
) -> tuple[Table, ...]:
    return (
        Table(
            name="categories",
            title="Time by framework category",
            origin=origin(capture),
            columns=_CATEGORIES,
            rows=summary,
            why_empty=why_no_summary,
        ),
        Table(
            name="framework_ops",
            title="Time by framework operation",
            origin=origin(capture),
            columns=_FRAMEWORK_OPS,
            rows=rows,
            notes=notes,
            why_empty=why_no_rows,
        ),
    )


def _longest(groups: dict[_Key, list[OperationTime]]) -> list[tuple[_Key, list[OperationTime]]]:
    return sorted(groups.items(), key=lambda item: -sum(one.self_seconds for one in item[1]))


def _time(group: Sequence[OperationTime], whole: float) -> tuple[float, float | None, int]:
    took = sum(one.self_seconds for one in group)
    return took, _share(took, whole), sum(one.count for one in group)


def _sums(capture: Capture, whole: float, known: int, shown: int, what: str = "operations") -> tuple[str, ...]:
    count = len(devices(capture))
    on = "one device" if count == 1 else f"{count} devices"
    left = f" {shown} of {known} {what} are shown." if shown < known else ""
    return (f"All {what} together: {seconds(whole)} of self time, summed over {on}.{left}",)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _percent(part: float, whole: float) -> str:
    return percent(part / whole) if whole > 0 else "an unknown share"
