"""Time by HLO operation, by framework operation and part of the model, by source line and by named scope."""

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
NO_NAME, NO_SOURCE, NO_SCOPE = "(no tf_op in the capture)", "(no source in the capture)", "(no tf_op)"


def ops(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Every HLO operation, longest self time first; with `top` only so many."""
    found = op_times(devices(capture))
    whole = total_seconds(found)
    fields: Fields[OperationTime] = (
        Field("operation", "operation", lambda one: one.operation.name),
        Field("category", "category", lambda one: one.operation.category or op_class(one.operation)),
        Field("self_seconds", "self time", lambda one: one.self_seconds, "s"),
        Field("share", "share", lambda one: share(one.self_seconds, whole), "fraction"),
        Field("seconds", "total", lambda one: one.seconds, "s"),
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


def lines(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Self time by `file:line`, longest first; with `top` only so many."""
    groups: dict[str, list[OperationTime]] = defaultdict(list)
    found = op_times(devices(capture))
    for one in found:
        groups[one.operation.source or NO_SOURCE].append(one)
    whole = total_seconds(found)
    ranked = sorted(groups, key=lambda source: -total_seconds(groups[source]))
    fields: Fields[str] = (
        Field("source", "source line", lambda source: source),
        Field("self_seconds", "self time", lambda source: total_seconds(groups[source]), "s"),
        Field("share", "share", lambda source: share(total_seconds(groups[source]), whole), "fraction"),
        Field("count", "runs", lambda source: total_runs(groups[source]), "count"),
        Field("longest", "longest operation", lambda source: groups[source][0].operation.name),
    )
    why = ""
    if not found:
        why = why_nothing_ran(capture)
    elif groups.keys() == {NO_SOURCE}:
        why = (
            "no operation of the capture names its source: simulated captures have none, others only where the "
            "compiler kept what the program said (for the simulator, `ratchet.sh lines` says more)"
        )
    shown = [] if why else ranked[:top]
    unnamed = total_seconds(groups.get(NO_SOURCE, ()))
    notes = ["A fusion counts for the one line its metadata names, though it may hold work of several."]
    if unnamed:
        notes.append(f"{percent(unnamed / whole)} of the time names no line.")
    if len(shown) < len(ranked):
        notes.append(f"{len(shown)} of {len(ranked)} lines are shown.")
    return (table_of("lines", "Time by source line", origin(capture), fields, shown, notes, why),)


def scopes(capture: Capture, depth: int = 4, at_least: float = 0.0) -> tuple[Table, ...]:
    """Self time under each scope down to `depth` (1 or more), those below `at_least` of the whole left out."""
    found = op_times(devices(capture))
    whole = total_seconds(found)
    took: dict[tuple[str, ...], float] = defaultdict(float)
    runs: dict[tuple[str, ...], int] = defaultdict(int)
    for one in found:
        path = segments(one.operation.framework_name) or (NO_SCOPE,)
        for length in range(1, min(depth, len(path)) + 1):
            took[path[:length]] += one.self_seconds
            runs[path[:length]] += one.count
    why = ""
    if not found:
        why = why_nothing_ran(capture)
    elif took.keys() == {(NO_SCOPE,)}:
        why = "no operation of the capture bears a tf_op: simulated captures have none, others only with HLO metadata"
    kept = [] if why else [path for path in took if whole == 0 or took[path] >= at_least * whole]
    # A scope stands below the one around it, the longer ones first.
    kept.sort(key=lambda path: [(-took[path[: length + 1]], path[length]) for length in range(len(path))])
    notes = ["Each scope's time holds that of the scopes in it; the last segment is the operation itself."]
    if len(kept) < len(took):
        notes.append(f"{len(took) - len(kept)} scopes below {at_least:.1%} of the time are left out.")
    fields: Fields[tuple[str, ...]] = (
        Field("scope", "scope", lambda path: "  " * (len(path) - 1) + path[-1]),
        Field("depth", "depth", len, "count"),
        Field("seconds", "time", lambda path: took[path], "s"),
        Field("share", "share", lambda path: share(took[path], whole), "fraction"),
        Field("count", "runs", lambda path: runs[path], "count"),
    )
    return (table_of("scopes", "Time by named scope", origin(capture), fields, kept, notes, why),)


def segments(framework_name: str) -> tuple[str, ...]:
    """The scopes of a tf_op from the outside in; a slash inside parentheses parts nothing, a colon ends it."""
    parts, depth, start = [], 0, 0
    # XProf writes `path:type`, and the type is mostly empty.
    text = framework_name.rsplit(":", 1)[0] if ":" in framework_name else framework_name
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "/" and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return tuple(part for part in (*parts, text[start:]) if part)


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
