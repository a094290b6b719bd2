"""Placement of events by their device's own clock, because the profiler's clock, adjusted to the host's, jumps."""

from array import array
from collections.abc import Mapping

import numpy as np

from harness.dumps.xplane import Event, Value
from harness.workbench.profiles.spans import Values

# The two clocks agree on a duration if their values differ by at most this: rounding is 1 ns at most, a jump some ms
# (v6e).
_AGREE_PS = 1_000_000


class DeviceClock:
    """Times of a device's events by the device's own clock, aligned with the capture's clock at the first operation.

    A TPU's operations carry the time of this clock (`device_offset_ps`, `device_duration_ps`) as well as the time
    adjusted to the host's clock. In the only whole TPU capture available here, the adjusted clock stands still in one
    operation and jumps in the next, by up to 130 ms.
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
        """Start and length of an operation by the device's clock, or the adjusted one if need be; `span` uses them."""
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

        An event with only the adjusted time is placed by the operations next to it. Raises OverflowError for times
        that do not fit into 64 bits.
        """
        device_span = device_span_of(event.stats)
        if device_span is not None and self._laid_ps is not None:
            return device_span[0] + self._laid_ps, device_span[1]
        start = self._at(event.start_ps)
        return start, max(0, self._at(event.start_ps + event.duration_ps) - start)

    def _at(self, adjusted_ps: int) -> int:
        """The moment by the device's clock, measured from the nearest beginning or end of an operation.

        If both clocks agree on the time between the two ends around it, the distance from the nearest end is measured
        by the adjusted clock; otherwise it is taken as 0.
        """
        if self.spread_ps <= _AGREE_PS:
            return adjusted_ps
        adjusted, device = self._sort()
        after = min(int(np.searchsorted(adjusted, adjusted_ps)), len(adjusted) - 1)
        ends = [(int(adjusted[place]), int(device[place])) for place in (after, max(after - 1, 0))]
        nearest = min(ends, key=lambda end: abs(end[0] - adjusted_ps))
        (later, device_later), (earlier, device_earlier) = ends
        jump = (later - earlier) - (device_later - device_earlier)
        is_known = earlier < adjusted_ps < later and abs(jump) <= _AGREE_PS
        return nearest[1] + (adjusted_ps - nearest[0] if is_known else 0)

    def _sort(self) -> tuple[Values, Values]:
        if self._order is None:
            adjusted, device = np.frombuffer(self._adjusted, np.int64), np.frombuffer(self._device, np.int64)
            order = np.lexsort((device, adjusted))
            self._order = adjusted[order], device[order]
        return self._order


def device_span_of(stats: Mapping[str, Value]) -> tuple[int, int] | None:
    """Start and length by the device's own clock; None if one of them is missing, as in XProf."""
    start, length = stats.get("device_offset_ps"), stats.get("device_duration_ps")
    return (start, length) if isinstance(start, int) and isinstance(length, int) else None
