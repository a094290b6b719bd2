"""A device's own clock, on which all of a device is placed: the profiler's clock, adjusted to the host's, jumps."""

from array import array
from collections.abc import Mapping

import numpy as np

from harness.dumps.xplane import Event, Value
from harness.workbench.profiles.spans import Values

# Both clocks agree on a stretch that they count alike to this: rounding is 1 ns at most, a jump some ms (v6e).
_AGREE_PS = 1_000_000


class DeviceClock:
    """The times of one device's events by its own clock, laid against the capture's at its first operation.

    A TPU's operations bear that clock's time (`device_offset_ps`, `device_duration_ps`) beside the adjusted one. On the
    one whole capture of TPUs at hand the latter stands still in one operation and leaps in the next, by up to 130 ms.
    """

    def __init__(self) -> None:
        self._laid_ps: int | None = None
        self._least = self._most = 0
        self._adjusted, self._own = array("q"), array("q")
        self._order: tuple[Values, Values] | None = None

    @property
    def spread_ps(self) -> int:
        """By how much the two clocks differ at most, one moment against another."""
        return self._most - self._least

    def learn(self, event: Event) -> tuple[int, int]:
        """Start and length of an operation, from which `span` knows how the clocks lie to each other."""
        own = own_span(event.stats)
        if own is None:
            return event.start_ps, event.duration_ps
        if self._laid_ps is None:
            self._laid_ps = event.start_ps - own[0]
        start, length = own[0] + self._laid_ps, own[1]
        for adjusted, laid in ((event.start_ps, start), (event.start_ps + event.duration_ps, start + length)):
            self._least, self._most = min(self._least, adjusted - laid), max(self._most, adjusted - laid)
            self._adjusted.append(adjusted)
            self._own.append(laid)
        return start, length

    def span(self, event: Event) -> tuple[int, int]:
        """Start and length of anything else of the device, such as the run of a module.

        What bears only the adjusted time is placed by the operations next to it. Raises OverflowError for times that
        64 bits do not hold.
        """
        own = own_span(event.stats)
        if own is not None and self._laid_ps is not None:
            return own[0] + self._laid_ps, own[1]
        start = self._at(event.start_ps)
        return start, max(0, self._at(event.start_ps + event.duration_ps) - start)

    def _at(self, adjusted_ps: int) -> int:
        """When it is by the own clock: with the nearest operation's end.

        As far from it as the adjusted clock says, if both clocks agree on the time between the operations around it.
        """
        if self.spread_ps <= _AGREE_PS:
            return adjusted_ps
        adjusted, own = self._ordered()
        after = min(int(np.searchsorted(adjusted, adjusted_ps)), len(adjusted) - 1)
        ends = [(int(adjusted[place]), int(own[place])) for place in (after, max(after - 1, 0))]
        nearest = min(ends, key=lambda end: abs(end[0] - adjusted_ps))
        (later, own_later), (earlier, own_earlier) = ends
        jump = (later - earlier) - (own_later - own_earlier)
        is_known = earlier < adjusted_ps < later and abs(jump) <= _AGREE_PS
        return nearest[1] + (adjusted_ps - nearest[0] if is_known else 0)

    def _ordered(self) -> tuple[Values, Values]:
        if self._order is None:
            adjusted, own = np.frombuffer(self._adjusted, np.int64), np.frombuffer(self._own, np.int64)
            order = np.lexsort((own, adjusted))
            self._order = adjusted[order], own[order]
        return self._order


def own_span(stats: Mapping[str, Value]) -> tuple[int, int] | None:
    """Start and length by the device's own clock; None where one of them is not said (so does XProf take them)."""
    start, length = stats.get("device_offset_ps"), stats.get("device_duration_ps")
    return (start, length) if isinstance(start, int) and isinstance(length, int) else None
