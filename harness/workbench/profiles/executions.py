"""Events of lines made executions of operations: numbered operations, self time without what is nested."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.dumps.xplane import Event, Value
from harness.records import Execution, Operation

_PICOSECONDS = 1e12
# Opcodes whose cost XLA does not know: it says 0 there and means nothing by it.
_OPAQUE = "custom-call"


@dataclass(slots=True)
class Operations:
    """The operations seen so far; equal ones have one number."""

    numbers: dict[Operation, int] = field(default_factory=dict)

    def number(self, operation: Operation) -> int:
        """Where `operation` stands among them."""
        return self.numbers.setdefault(operation, len(self.numbers))

    @property
    def all(self) -> tuple[Operation, ...]:
        """In the order in which they were first seen."""
        return tuple(self.numbers)


def serial(events: Sequence[Event], numbers: Sequence[int], zero_ps: int) -> list[Execution]:
    """The executions of one line; an event within another one is nested in it and counts as its child.

    `numbers` are the operations of `events`. Events that overlap without one holding the other are taken
    as neighbours.
    """
    order = sorted(range(len(events)), key=lambda at: (events[at].start_ps, -events[at].duration_ps))
    self_ps = [seconds_ps(event) for event in events]
    around: list[int] = []
    for at in order:
        event = events[at]
        end = event.start_ps + event.duration_ps
        while around and not _holds(events[around[-1]], event.start_ps, end):
            around.pop()
        if around:
            self_ps[around[-1]] -= seconds_ps(event)
        around.append(at)
    return [
        Execution(
            operation=numbers[at],
            start=(events[at].start_ps - zero_ps) / _PICOSECONDS,
            seconds=seconds_ps(events[at]) / _PICOSECONDS,
            self_seconds=max(0, self_ps[at]) / _PICOSECONDS,
        )
        for at in order
    ]


def sorted_by_start(executions: Iterable[Execution]) -> tuple[Execution, ...]:
    """Of several lines together, nested ones after those around them."""
    return tuple(sorted(executions, key=lambda execution: (execution.start, -execution.seconds)))


def seconds_ps(event: Event) -> int:
    """How long it took by the device's own clock, where the event says it."""
    taken = event.stats.get("device_duration_ps")
    return taken if isinstance(taken, int) else event.duration_ps


def flops(stats: Mapping[str, Value], category: str) -> float | None:
    """XLA's count for one execution; None where it says nothing, and where a 0 means that it does not know."""
    return _cost(stats.get("flops"), category)


def bytes_accessed(stats: Mapping[str, Value], category: str) -> float | None:
    """Bytes moved by one execution, likewise."""
    return _cost(stats.get("bytes_accessed"), category)


def _cost(value: Value | None, category: str) -> float | None:
    if not isinstance(value, (int, float)) or (value == 0 and category.startswith(_OPAQUE)):
        return None
    return float(value)


def _holds(outer: Event, start: int, end: int) -> bool:
    return outer.start_ps <= start and end <= outer.start_ps + outer.duration_ps and start < _end(outer)


def _end(event: Event) -> int:
    return event.start_ps + event.duration_ps
