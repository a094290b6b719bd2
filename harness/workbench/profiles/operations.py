"""Time by HLO operation, and by framework operation with the part of the model it belongs to."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from harness.errors import UsageError
from harness.records import Capture, Cell, Column, Table
from harness.units import percent, seconds
from harness.workbench.profiles.classes import (
    FRAMEWORK_CATEGORIES,
    direction,
    framework_category,
    is_custom_call,
    op_class,
)
from harness.workbench.profiles.op_times import (
    OperationTime,
    devices,
    op_times,
    origin,
    share,
    total_runs,
    total_seconds,
    why_nothing_ran,
)
from harness.workbench.tables import Field, Fields, table, table_of

_Key = TypeVar("_Key")

_TIME = (
    Column(name="self_seconds", title="self time", unit="s"),
    Column(name="share", title="share", unit="fraction"),
    Column(name="count", title="runs", unit="count"),
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
    whole = total_seconds(found)
    fields: Fields[OperationTime] = (
        Field("operation", "operation", lambda one: one.operation.name),
        Field("category", "category", lambda one: one.operation.category or op_class(one.operation)),
        Field("self_seconds", "self time", lambda one: one.self_seconds, "s"),
        Field("share", "share", lambda one: share(one.self_seconds, whole), "fraction"),
        Field("count", "runs", lambda one: one.count, "count"),
        Field("mean_seconds", "mean", lambda one: one.mean_seconds, "s"),
        Field("flops_per_second", "FLOP rate", lambda one: one.flops_per_second, "FLOP/s"),
        Field("bytes_per_second", "bandwidth", lambda one: one.bytes_per_second, "B/s"),
    )
    notes = (*_sums(capture, whole, len(found), len(found[:top])), *uncounted(found))
    title, why = "Time by HLO operation", why_nothing_ran(capture)
    return (table_of("ops", title, origin(capture), fields, found[:top], notes, why),)


def framework_ops(capture: Capture, categories: Sequence[str] = (), top: int | None = None) -> tuple[Table, ...]:
    """Time by framework category, then by tf_op; with `categories` only those. Raises UsageError `unknown-category`."""
    for name in categories:
        if name not in FRAMEWORK_CATEGORIES:
            known = ", ".join(FRAMEWORK_CATEGORIES)
            raise UsageError("unknown-category", f"expected a framework category, one of {known}, got {name!r}")
    everything = op_times(devices(capture))
    whole = total_seconds(everything)
    if not everything:
        return _tables(capture, (), (), (), why_nothing_ran(capture))
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
    unnamed = total_seconds(one for one in everything if not one.operation.framework_name)
    notes = [*_sums(capture, whole, len(rows), len(rows[:top]), "framework operations")]
    if unnamed:
        notes.append(f"{_percent(unnamed, whole)} of the time bears no tf_op: its own name decides the category.")
    there = ", ".join(name for name, _ in _longest(by_category))
    why = f"no operation belongs to {', '.join(categories)}; what there is: {there}"
    return _tables(capture, summary, rows[:top], notes, why)


def uncounted(found: Sequence[OperationTime]) -> tuple[str, ...]:
    """A sentence on the kernels whose FLOPs nobody counted, if there are any."""
    silent = [one for one in found if is_custom_call(one.operation) and one.operation.flops is None]
    if not silent:
        return ()
    part = _percent(total_seconds(silent), total_seconds(found))
    return (
        f"{part} of the time is in custom calls that count 0 FLOPs, shown as unknown: a Pallas kernel is counted only "
        "with pl.CostEstimate.",
    )


def _tables(
    capture: Capture,
    summary: Sequence[Sequence[Cell]],
    rows: Sequence[Sequence[Cell]],
    notes: Sequence[str],
    why: str,
) -> tuple[Table, ...]:
    where = origin(capture)
    return (
        table("categories", "Time by framework category", where, _CATEGORIES, summary, (), why),
        table("framework_ops", "Time by framework operation", where, _FRAMEWORK_OPS, rows, notes, why),
    )


def _longest(groups: dict[_Key, list[OperationTime]]) -> list[tuple[_Key, list[OperationTime]]]:
    return sorted(groups.items(), key=lambda item: -total_seconds(item[1]))


def _time(group: Sequence[OperationTime], whole: float) -> tuple[float, float | None, int]:
    took = total_seconds(group)
    return took, share(took, whole), total_runs(group)


def _sums(capture: Capture, whole: float, known: int, shown: int, what: str = "operations") -> tuple[str, ...]:
    count = len(devices(capture))
    on = "one device" if count == 1 else f"{count} devices"
    left = f" {shown} of {known} {what} are shown." if shown < known else ""
    return (f"All {what} together: {seconds(whole)} of self time, summed over {on}.{left}",)


def _percent(part: float, whole: float) -> str:
    return percent(part / whole) if whole > 0 else "an unknown share"
