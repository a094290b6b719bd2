"""Executions of operations, made from events of lines: numbered operations, self time without nested events."""

from array import array
from collections.abc import Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

from google.protobuf import message  # type: ignore[import-untyped]

from harness.dumps.schema import message_class
from harness.dumps.xplane import Value
from harness.records import Execution

_PICOSECONDS = 1e12
# Opcodes whose cost XLA does not know: for these, 0 means unknown.
_OPAQUE = "custom-call"
# XProf's op_metrics.proto. It numbers memories, and one number is known: every operation that only reads HBM has it,
# and none that only accesses the host's memory.
_ACCESSES = {
    "MemoryAccessBreakdown": (("accesses", 1, "MemoryAccess*"),),
    "MemoryAccess": (("operation_type", 1, "int64"), ("memory_space", 2, "uint64"), ("bytes_accessed", 3, "uint64")),
}
_HBM = 1


class Serial:
    """Executions of one line; an event within another one is nested in it and counts as its child.

    Events that overlap without containing each other are treated as neighbours. Times of millions of events are kept
    in the order of the file, counted from the start of the first event.
    """

    def __init__(self) -> None:
        self._origin_ps = 0
        self._numbers = array("I")
        self._starts, self._lengths = array("q"), array("q")

    def add(self, start_ps: int, duration_ps: int, number: int) -> None:
        """Adds an event of operation `number`. Raises OverflowError if it is over 106 days from the first event."""
        if not self._starts:
            self._origin_ps = start_ps
        self._numbers.append(number)
        self._starts.append(start_ps - self._origin_ps)
        self._lengths.append(duration_ps)

    def executions(self, zero_ps: int) -> list[Execution]:
        """All executions by start, nested ones after those around them. Raises OverflowError like `add`."""
        starts, lengths = self._starts, self._lengths
        longest_first = sorted(range(len(starts)), key=lengths.__getitem__, reverse=True)
        order = array("q", sorted(longest_first, key=starts.__getitem__))
        del longest_first
        self_ps = array("q", lengths)
        around: list[int] = []
        for at in order:
            start = starts[at]
            while around and not _holds(starts[around[-1]], lengths[around[-1]], start, start + lengths[at]):
                around.pop()
            if around:
                self_ps[around[-1]] -= lengths[at]
            around.append(at)
        zero_ps -= self._origin_ps
        return [_execution(self._numbers[at], starts[at] - zero_ps, lengths[at], max(0, self_ps[at])) for at in order]


def _execution(operation: int, start_ps: int, seconds_ps: int, self_ps: int) -> Execution:
    seconds = seconds_ps / _PICOSECONDS
    # Most executions have none nested in them, so one float object serves as both times.
    alone = seconds if self_ps == seconds_ps else self_ps / _PICOSECONDS
    return Execution(operation=operation, start=start_ps / _PICOSECONDS, seconds=seconds, self_seconds=alone)


def sorted_by_start(executions: Iterable[Execution]) -> tuple[Execution, ...]:
    """Executions of several lines together, nested ones after those around them."""
    return tuple(sorted(sorted(executions, key=attrgetter("seconds"), reverse=True), key=attrgetter("start")))


def cost(stats: Mapping[str, Value], name: str, category: str) -> float | None:
    """XLA's count for one execution: `flops`, or `bytes_accessed` in whatever memory.

    None if XLA states no count, or states 0 for an operation whose cost it does not know.
    """
    value = stats.get(name)
    if not isinstance(value, (int, float)) or (value == 0 and category.startswith(_OPAQUE)):
        return None
    return float(value)


def hbm_bytes(stats: Mapping[str, Value]) -> float | None:
    """The part of the accessed bytes that is in HBM; None if the capture does not divide bytes by memory."""
    parts = stats.get("memory_access_breakdown")
    if not isinstance(parts, bytes):
        return None
    try:
        accesses = _accesses().FromString(parts).accesses
    except message.DecodeError:
        return None
    return float(sum(access.bytes_accessed for access in accesses if access.memory_space == _HBM))


@cache
def _accesses() -> Any:
    return message_class("memory_accesses", _ACCESSES, "MemoryAccessBreakdown")


def _holds(outer: int, length: int, start: int, end: int) -> bool:
    return outer <= start and end <= outer + length and start < outer + length
