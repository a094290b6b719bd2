"""Events of lines made executions of operations: numbered operations, self time without what is nested."""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

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


class Serial:
    """The executions of one line; an event within another one is nested in it and counts as its child.

    Events that overlap without one holding the other are taken as neighbours. Times of millions of events are kept as
    they lie in a file, from the first one's start on.
    """

    def __init__(self) -> None:
        self._origin_ps = 0
        self._numbers = array("I")
        self._starts, self._lengths, self._seconds = array("q"), array("q"), array("q")

    def add(self, event: Event, number: int) -> None:
        """One more event, of operation `number`. Raises OverflowError for one half a year from the first."""
        if not self._starts:
            self._origin_ps = event.start_ps
        self._numbers.append(number)
        self._starts.append(event.start_ps - self._origin_ps)
        self._lengths.append(event.duration_ps)
        self._seconds.append(seconds_ps(event))

    def executions(self, zero_ps: int) -> list[Execution]:
        """All of them by start, nested ones after those around them. Raises OverflowError like `add`."""
        starts, lengths = self._starts, self._lengths
        longest_first = sorted(range(len(starts)), key=lengths.__getitem__, reverse=True)
        order = array("q", sorted(longest_first, key=starts.__getitem__))
        del longest_first
        self_ps = array("q", self._seconds)
        around: list[int] = []
        for at in order:
            start = starts[at]
            while around and not _holds(starts[around[-1]], lengths[around[-1]], start, start + lengths[at]):
                around.pop()
            if around:
                self_ps[around[-1]] -= self._seconds[at]
            around.append(at)
        zero_ps -= self._origin_ps
        return [
            _execution(self._numbers[at], starts[at] - zero_ps, self._seconds[at], max(0, self_ps[at])) for at in order
        ]


def _execution(operation: int, start_ps: int, seconds_ps: int, self_ps: int) -> Execution:
    seconds = seconds_ps / _PICOSECONDS
    # Most have no other within them: one number then stands for both.
    alone = seconds if self_ps == seconds_ps else self_ps / _PICOSECONDS
    return Execution(operation=operation, start=start_ps / _PICOSECONDS, seconds=seconds, self_seconds=alone)


def sorted_by_start(executions: Iterable[Execution]) -> tuple[Execution, ...]:
    """Of several lines together, nested ones after those around them."""
    return tuple(sorted(sorted(executions, key=attrgetter("seconds"), reverse=True), key=attrgetter("start")))


def seconds_ps(event: Event) -> int:
    """How long it took by the device's own clock, where the event says it."""
    taken = event.stats.get("device_duration_ps")
    return taken if isinstance(taken, int) else event.duration_ps


def end_ps(event: Event) -> int:
    """When it ended, by the clock of the line."""
    return event.start_ps + event.duration_ps


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


def _holds(outer: int, length: int, start: int, end: int) -> bool:
    return outer <= start and end <= outer + length and start < outer + length
