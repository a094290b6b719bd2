"""Where the time goes by class of operation, by direction, and how many mixture-of-experts layers ran."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from harness.records import Capture, Column, Device, Table
from harness.units import percent
from harness.workbench.profiles.classes import (
    CLASSES,
    DATA_FORMATTING,
    direction,
    is_exponential,
    is_grouped_matmul,
    op_class,
)
from harness.workbench.profiles.op_times import (
    OperationTime,
    devices,
    op_times,
    origin,
    share,
    step_count,
    steps,
    total_runs,
    total_seconds,
    why_nothing_ran,
)
from harness.workbench.tables import table

# Protocol, section 6: more of a step than this in data formatting, and the sharding deserves a look.
FORMATTING_LIMIT = 0.05
# Protocol, section 3, item 5: more than this in exp, and the vector unit binds.
EXPONENTIAL_LIMIT = 0.10
# Section 6 again: a mixture-of-experts layer runs four GMMs (two forward, two backward) and two TGMMs (backward).
GMMS, TGMMS = 4, 2

_SHARES = (
    Column(name="self_seconds", title="self time", unit="s"),
    Column(name="share", title="share", unit="fraction"),
    Column(name="step_seconds", title="per step", unit="s"),
    Column(name="count", title="runs", unit="count"),
)
_CLASSES = (Column(name="class", title="class"), *_SHARES, Column(name="longest", title="longest operation"))
_DIRECTIONS = (Column(name="direction", title="direction"), Column(name="known_by", title="known by"), *_SHARES)
_EXPERTS = (
    Column(name="kernel", title="kernel"),
    Column(name="count", title="runs", unit="count"),
    Column(name="step_count", title="per step and device"),
    Column(name="layers", title="layers"),
    Column(name="self_seconds", title="self time", unit="s"),
)


def breakdown(capture: Capture) -> tuple[Table, ...]:
    """Self time by class and by direction, then the grouped matmuls and the layers they stand for."""
    found = devices(capture)
    every = op_times(found)
    why = "" if every else why_nothing_ran(capture)
    whole = total_seconds(every)
    count = step_count(found)
    by_class: dict[str, list[OperationTime]] = defaultdict(list)
    by_direction: dict[tuple[str, str], list[OperationTime]] = defaultdict(list)
    for one in every:
        by_class[op_class(one.operation)].append(one)
        by_direction[direction(one.operation)].append(one)
    ordered = sorted(by_class.items(), key=lambda item: (-total_seconds(item[1]), CLASSES.index(item[0])))
    classes = [(name, *_shares(group, whole, count), group[0].operation.name) for name, group in ordered]
    directions = [
        (name, how or None, *_shares(group, whole, count))
        for (name, how), group in sorted(by_direction.items(), key=lambda item: -total_seconds(item[1]))
    ]
    class_notes = _class_notes(by_class, whole, found, count)
    direction_note = (
        "By tf_op first (transpose(jvp(..)) backward, jvp(..) forward), by name second; the rest is neither: "
        "no gradient, an update, or nothing known (protocol, section 6)."
    )
    where = origin(capture)
    return (
        table("classes", "Time by class of operation", where, _CLASSES, classes, class_notes, why),
        table("directions", "Forward and backward", where, _DIRECTIONS, directions, (direction_note,), why),
        _experts(capture, every, count, why),
    )


def _experts(capture: Capture, every: Sequence[OperationTime], count: int | None, why: str) -> Table:
    rows = []
    for name, transposed, per_layer in (("GMM", False, GMMS), ("TGMM", True, TGMMS)):
        group = [one for one in every if is_grouped_matmul(one.operation, transposed=transposed)]
        if group:
            runs = total_runs(group)
            each = runs / count if count else None
            rows.append((name, runs, each, each / per_layer if each is not None else None, total_seconds(group)))
    layers = {row[3] for row in rows}
    notes = [f"Layers = GMM/{GMMS} = TGMM/{TGMMS} (protocol, section 6)."]
    if len(layers) > 1:
        notes.append("The two disagree: recomputation runs forward GMMs again, and inference has no TGMM.")
    if count is None:
        notes.append("The capture shows no steps, so runs per step are unknown.")
    why = why or "no operation is called gmm or tgmm: no mixture of experts in this form ran"
    return table("experts", "Mixture-of-experts layers", origin(capture), _EXPERTS, rows, notes, why)


def _class_notes(
    by_class: dict[str, list[OperationTime]], whole: float, found: Sequence[Device], count: int | None
) -> Iterator[str]:
    on = f"{len(found)} devices" if len(found) > 1 else "one device"
    per = f"; per step is the mean ({steps(found[0])[1]}: {count})" if count else "; it shows no steps"
    yield f"Time is summed over {on}{per}."
    exponentials = total_seconds(one for group in by_class.values() for one in group if is_exponential(one.operation))
    if whole > 0 and exponentials > EXPONENTIAL_LIMIT * whole:
        yield (
            f"Exponentials take {percent(exponentials / whole)}, over {percent(EXPONENTIAL_LIMIT, 0)}: the vector unit "
            "binds (protocol, section 3, item 5)."
        )
    formatting = total_seconds(by_class.get(DATA_FORMATTING, ()))
    if whole > 0 and formatting > FORMATTING_LIMIT * whole:
        yield (
            f"Data formatting takes {percent(formatting / whole)}, over {percent(FORMATTING_LIMIT, 0)}: look at "
            "sharding and layouts (protocol, section 6)."
        )


def _shares(
    group: Sequence[OperationTime], whole: float, count: int | None
) -> tuple[float, float | None, float | None, int]:
    took = total_seconds(group)
    return took, share(took, whole), took / count if count else None, total_runs(group)
