"""Two captures against each other, by category and by operation: largest changes first, new and vanished among them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from harness.records import Capture, Column, Operation, Table
from harness.workbench.profiles.classes import category
from harness.workbench.profiles.op_times import comparable, devices, op_times, origin, share, step_count, steps
from harness.workbench.tables import Field, Fields, table, table_of

_TOTALS = (
    Column(name="what", title="what"),
    Column(name="a_seconds", title="A", unit="s"),
    Column(name="b_seconds", title="B", unit="s"),
    Column(name="change_seconds", title="change", unit="s"),
    Column(name="time_ratio", title="B/A", unit="ratio"),
)
_CATEGORIES = (Column(name="category", title="category"), *_TOTALS[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPair:
    """One operation in both captures; None where it is not there. Seconds are self time by step and device."""

    a: Operation | None
    b: Operation | None
    a_seconds: float
    b_seconds: float

    @property
    def operation(self) -> Operation:
        """The operation as B has it, else as A has it."""
        found = self.b or self.a
        assert found is not None
        return found

    @property
    def change(self) -> float:
        """B minus A: negative where B is faster."""
        return self.b_seconds - self.a_seconds

    @property
    def what(self) -> str:
        """What became of it."""
        if self.a is None:
            return "new"
        if self.b is None:
            return "vanished"
        return "changed" if self.a.name == self.b.name else f"was {self.a.name}"


_OPS: Fields[OperationPair] = (
    Field("operation", "operation", lambda pair: pair.operation.name),
    Field("what", "what", lambda pair: pair.what),
    Field("a_seconds", "A", lambda pair: None if pair.a is None else pair.a_seconds, "s"),
    Field("b_seconds", "B", lambda pair: None if pair.b is None else pair.b_seconds, "s"),
    Field("change_seconds", "change", lambda pair: pair.change, "s"),
    Field("time_ratio", "B/A", lambda pair: share(pair.b_seconds, pair.a_seconds) if pair.b else None, "ratio"),
    Field("category", "category", lambda pair: category(pair.operation)),
)


def compare(a: Capture, b: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Totals, categories, then every operation by the size of its change; with `top` only so many operations.

    Raises RatchetError `not-comparable` like `comparable`.
    """
    why = comparable(a, b)
    counts = [step_count(devices(one)) for one in (a, b)]
    per_step = all(counts)
    divisors = [
        count if per_step and count else len(devices(one)) or 1 for count, one in zip(counts, (a, b), strict=True)
    ]
    pairs = (
        [] if why else sorted(matched(_by_name(a, divisors[0]), _by_name(b, divisors[1])), key=lambda p: -abs(p.change))
    )
    totals = () if why else tuple(_totals(a, b, pairs))
    cut = (f"{len(pairs[:top])} of {len(pairs)} operations are shown.",) if top and top < len(pairs) else ()
    where, title = origin(a), "Change by operation, largest first"
    return (
        table("totals", f"A = {a.name}, B = {b.name}", where, _TOTALS, totals, _notes(a, b, per_step=per_step), why),
        table("categories", "Change by category, largest first", where, _CATEGORIES, _by_category(pairs), (), why),
        table_of("operations", title, where, _OPS, pairs[:top], cut, why),
    )


# Self time by step and device, and the operation.
_Side = Mapping[str, tuple[Operation, float]]


def matched(a: _Side, b: _Side) -> Iterator[OperationPair]:
    """Operations of one name; of the rest those that alone on each side have a category, tf_op and source in common.

    The compiler numbers fusions anew each time: what is called `fusion.7` in one may be `fusion.9` in the other.
    """
    for name in (name for name in a if name in b):
        yield OperationPair(a=a[name][0], b=b[name][0], a_seconds=a[name][1], b_seconds=b[name][1])
    rest_a, rest_b = _by_origin(a, b.keys()), _by_origin(b, a.keys())
    renamed = [key for key in rest_a if key in rest_b and key[1] and len(rest_a[key]) == len(rest_b[key]) == 1]
    for key in renamed:
        (old,), (new,) = rest_a[key], rest_b[key]
        yield OperationPair(a=a[old][0], b=b[new][0], a_seconds=a[old][1], b_seconds=b[new][1])
    for key, names in rest_a.items():
        for name in () if key in renamed else names:
            yield OperationPair(a=a[name][0], b=None, a_seconds=a[name][1], b_seconds=0.0)
    for key, names in rest_b.items():
        for name in () if key in renamed else names:
            yield OperationPair(a=None, b=b[name][0], a_seconds=0.0, b_seconds=b[name][1])


def _by_name(capture: Capture, divisor: int) -> dict[str, tuple[Operation, float]]:
    """Operations by name. Two modules with one name in common: together, as module numbers change from run to run."""
    found: dict[str, tuple[Operation, float]] = {}
    for one in op_times(devices(capture)):
        operation, took = found.get(one.operation.name, (one.operation, 0.0))
        found[one.operation.name] = (operation, took + one.self_seconds / divisor)
    return found


def _by_origin(side: _Side, others: Iterable[str]) -> dict[tuple[str, str, str], list[str]]:
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    matched_already = set(others)
    for name, (operation, _) in side.items():
        if name not in matched_already:
            groups[category(operation), operation.framework_name, operation.source].append(name)
    return groups


def _totals(a: Capture, b: Capture, pairs: Sequence[OperationPair]) -> Iterator[tuple[str | float | None, ...]]:
    lengths = [_step_seconds(one) for one in (a, b)]
    if lengths[0] is not None and lengths[1] is not None:
        yield "step, median", lengths[0], lengths[1], lengths[1] - lengths[0], share(lengths[1], lengths[0])
    old, new = sum(pair.a_seconds for pair in pairs), sum(pair.b_seconds for pair in pairs)
    yield "all operations", old, new, new - old, share(new, old)
    for word in ("new", "vanished"):
        some = [pair for pair in pairs if pair.what == word]
        if some:
            old, new = sum(pair.a_seconds for pair in some), sum(pair.b_seconds for pair in some)
            yield f"{len(some)} {word}", old or None, new or None, new - old, None


def _by_category(pairs: Sequence[OperationPair]) -> list[tuple[str | float | None, ...]]:
    """What each category took in A and in B; None where nothing of it ran there."""
    old: dict[str, float] = defaultdict(float)
    new: dict[str, float] = defaultdict(float)
    for pair in pairs:
        if pair.a is not None:
            old[category(pair.a)] += pair.a_seconds
        if pair.b is not None:
            new[category(pair.b)] += pair.b_seconds
    change = {name: new.get(name, 0.0) - old.get(name, 0.0) for name in (*old, *new)}
    return [
        (
            name,
            old.get(name),
            new.get(name),
            change[name],
            share(new[name], old[name]) if name in old and name in new else None,
        )
        for name in sorted(change, key=lambda name: -abs(change[name]))
    ]


def _step_seconds(capture: Capture) -> float | None:
    found = [step.seconds for device in devices(capture) for step in steps(device)[0]]
    return median(found) if found else None


def _notes(a: Capture, b: Capture, *, per_step: bool) -> Iterator[str]:
    if per_step:
        yield "Self time by step and device, so that captures of different length compare. B/A below 1: B is faster."
    else:
        yield "Self time by device over the whole capture: one of them shows no steps, so mind their lengths."
    kinds = [sorted({device.kind or device.platform for device in devices(one)}) for one in (a, b)]
    if kinds[0] != kinds[1]:
        yield f"The devices differ: A ran on {', '.join(kinds[0])}, B on {', '.join(kinds[1])}."
    numbers = [len(devices(one)) for one in (a, b)]
    if numbers[0] != numbers[1]:
        yield f"The number of devices differs: {numbers[0]} in A, {numbers[1]} in B."
