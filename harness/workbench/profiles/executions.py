"""Executions of operations, built from the events of lines: on the device's own clock, with self times."""

from array import array
from collections.abc import Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
from google.protobuf import message  # type: ignore[import-untyped]

from harness.dumps.schema import message_class
from harness.dumps.xplane import Event, Value
from harness.records import Execution
from harness.workbench.profiles.spans import Values

_PICOSECONDS = 1e12
# XLA does not know the cost of this opcode, so a cost of 0 means unknown.
_OPAQUE = "custom-call"
# The bytes by memory, from XProf's op_metrics.proto. Memory 1 is HBM: operations that only read HBM have entries for
# memory 1, and operations that only access the host's memory have none.
_ACCESSES = {
    "MemoryAccessBreakdown": (("accesses", 1, "MemoryAccess*"),),
    "MemoryAccess": (("operation_type", 1, "int64"), ("memory_space", 2, "uint64"), ("bytes_accessed", 3, "uint64")),
}
_HBM = 1


# The two clocks agree on a duration if their values differ by at most _AGREE_PS, or by at most the share _DRIFT of the
# duration. Rounding is at most 1 ns, a jump at least 0.1 ms; the clocks of a v6e drift by 10 to 18 millionths.
_AGREE_PS, _DRIFT = 1_000_000, 50e-6


class DeviceClock:
    """Times of a device's events by the device's own clock, aligned with the capture's clock at the first operation.

    A TPU's operations have times by this clock (`device_offset_ps`, `device_duration_ps`), and times adjusted to the
    host's clock. In the only whole TPU capture available here, the adjusted clock stops during some operations, and
    jumps by up to 130 ms in the next.
    """

    def __init__(self) -> None:
        self._laid_ps: int | None = None
        self._least = self._most = 0
        self._adjusted, self._device = array("q"), array("q")
        self._order: tuple[Values, Values] | None = None

    @property
    def spread_ps(self) -> int:
        """The range of the difference between the two clocks."""
        return self._most - self._least

    def learn(self, event: Event) -> tuple[int, int]:
        """Start and length of an operation by the device's clock, or by the adjusted clock if it has no device time.

        Records both clocks for `span`.
        """
        device_span = device_span_of(event.stats)
        if device_span is None:
            return event.start_ps, event.duration_ps
        if self._laid_ps is None:
            self._laid_ps = event.start_ps - device_span[0]
        start, length = device_span[0] + self._laid_ps, device_span[1]
        for adjusted, laid in ((event.start_ps, start), (event.start_ps + event.duration_ps, start + length)):
            self._least, self._most = min(self._least, adjusted - laid), max(self._most, adjusted - laid)
            self._adjusted.append(adjusted)
            self._device.append(laid)
        return start, length

    def span(self, event: Event) -> tuple[int, int]:
        """Start and length of any other event of the device, such as the run of a module.

        If an event has only the adjusted time, its place follows from the operations next to it. Raises OverflowError
        for times that do not fit into 64 bits.
        """
        device_span = device_span_of(event.stats)
        if device_span is not None and self._laid_ps is not None:
            return device_span[0] + self._laid_ps, device_span[1]
        start = self._at(event.start_ps)
        return start, max(0, self._at(event.start_ps + event.duration_ps) - start)

    def _at(self, adjusted_ps: int) -> int:
        """The moment by the device's clock, measured from the nearest beginning or end of an operation.

        The distance comes from the adjusted clock. Between two ends, the clocks may disagree on the distance of these
        ends; then the distance to the nearest end is unknown and taken as 0.
        """
        if self.spread_ps <= _AGREE_PS:
            return adjusted_ps
        adjusted, device = self._sort()
        after = min(int(np.searchsorted(adjusted, adjusted_ps)), len(adjusted) - 1)
        ends = [(int(adjusted[place]), int(device[place])) for place in (after, max(after - 1, 0))]
        nearest = min(ends, key=lambda end: abs(end[0] - adjusted_ps))
        (later, device_later), (earlier, device_earlier) = ends
        jump = abs((later - earlier) - (device_later - device_earlier))
        is_between = earlier < adjusted_ps < later
        is_unknown = is_between and jump > max(_AGREE_PS, _DRIFT * (later - earlier))
        return nearest[1] + (0 if is_unknown else adjusted_ps - nearest[0])

    def _sort(self) -> tuple[Values, Values]:
        if self._order is None:
            adjusted, device = np.frombuffer(self._adjusted, np.int64), np.frombuffer(self._device, np.int64)
            order = np.lexsort((device, adjusted))
            self._order = adjusted[order], device[order]
        return self._order


def device_span_of(stats: Mapping[str, Value]) -> tuple[int, int] | None:
    """Start and length by the device's own clock; None if start or length is missing (XProf requires both, too)."""
    start, length = stats.get("device_offset_ps"), stats.get("device_duration_ps")
    return (start, length) if isinstance(start, int) and isinstance(length, int) else None


class Serial:
    """Executions of one line. An event inside another event is nested; the outer event's self time excludes its time.

    Events that overlap partly count as neighbours. There may be millions of events, so times are stored compactly: in
    the file's order and relative to the start of the first event.
    """

    def __init__(self) -> None:
        self._origin_ps = 0
        self._numbers = array("I")
        self._starts, self._lengths = array("q"), array("q")

    def add(self, start_ps: int, duration_ps: int, number: int) -> None:
        """Adds an event of operation `number`. Raises OverflowError for events over 106 days from the first event."""
        if not self._starts:
            self._origin_ps = start_ps
        self._numbers.append(number)
        self._starts.append(start_ps - self._origin_ps)
        self._lengths.append(duration_ps)

    def executions(self, zero_ps: int) -> list[Execution]:
        """All executions by start, outer before nested executions. Raises OverflowError like `add`."""
        starts, lengths = self._starts, self._lengths
        order = nesting_order(starts, lengths)
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


def nesting_order(starts: "array[int]", lengths: "array[int]") -> "array[int]":
    """The indices of events, sorted by start; outer events come before nested events."""
    return array("q", np.lexsort((np.negative(lengths), np.asarray(starts))).tobytes())


def _execution(operation: int, start_ps: int, seconds_ps: int, self_ps: int) -> Execution:
    seconds = seconds_ps / _PICOSECONDS
    # Most executions contain no nested execution, so one float object serves as both times.
    alone = seconds if self_ps == seconds_ps else self_ps / _PICOSECONDS
    return Execution(operation=operation, start=start_ps / _PICOSECONDS, seconds=seconds, self_seconds=alone)


def sorted_by_start(executions: Iterable[Execution]) -> tuple[Execution, ...]:
    """Executions of several lines, sorted by start; outer executions come before nested executions."""
    return tuple(sorted(sorted(executions, key=attrgetter("seconds"), reverse=True), key=attrgetter("start")))


def cost(stats: Mapping[str, Value], name: str, category: str) -> float | None:
    """XLA's count for one execution: `flops`, or `bytes_accessed` in all memories together.

    None if XLA states no count, or states 0 because it does not know the cost.
    """
    value = stats.get(name)
    if not isinstance(value, (int, float)) or (value == 0 and category.startswith(_OPAQUE)):
        return None
    return float(value)


def hbm_bytes(stats: Mapping[str, Value]) -> float | None:
    """The accessed bytes that are in HBM; None if the capture does not split bytes by memory."""
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
