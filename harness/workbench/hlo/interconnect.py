"""The time of a collective over the links between TPUs, and the rate of the link to the host."""

from dataclasses import dataclass
from typing import Literal, get_args

from harness import chips
from harness.chips.row import Figures, Links
from harness.errors import UsageError
from harness.units import decimal

Collective = Literal["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)

# "About 1 us" for one hop of a TPU's link (How to Scale Your Model, part 3).
HOP_SECONDS = 1e-6


def links(chip: Figures) -> Links | None:
    """The links of a chip; None if nothing about them is published."""
    return chips.row(chip.name).links


def host_bytes_per_second(chip: Figures, *, to_host: bool) -> float:
    """Bytes per second from the chip to its host if `to_host` is True, otherwise from the host to the chip."""
    facts = chips.row(chip.name).workbench
    return facts.to_host_bytes_per_second if to_host else facts.from_host_bytes_per_second


def host_rates(chip: Figures) -> str:
    """The rates of the link to the host in words; a single rate if both directions are equal."""
    there, back = (decimal(host_bytes_per_second(chip, to_host=to_host), "B/s") for to_host in (False, True))
    return f"{there} each way" if there == back else f"{there} from the host, {back} to the host"


def link_bytes_per_second(chip: Figures) -> float | None:
    """Bytes per second that a chip sends along one axis, both directions together; None if not published."""
    chip_links = links(chip)
    return chip_links.both_ways_bytes_per_second if chip_links else None


def collective(name: str) -> Collective:
    """The collective called `name`. Raises UsageError `unknown-collective`."""
    for kind in COLLECTIVES:
        if kind == name.strip().lower().replace("_", "-"):
            return kind
    raise UsageError("unknown-collective", f"expected one of {', '.join(COLLECTIVES)}, got {name!r}")


def published_seconds(kind: Collective, array_bytes: float, ring_bytes_per_second: float) -> float:
    """The time of a collective by the published rule of thumb, bound by bandwidth on a ring.

    Source: How to Scale Your Model, part 3. V is the bytes of the whole array (after a gather, or before a scatter); W
    is the bandwidth of a ring, both directions together. All-gather and reduce-scatter take V/W, all-reduce 2 V/W (both
    in turn), all-to-all V/(4 W). A permutation sends V one way to the neighbour: 2 V/W.
    """
    factor = {"all-gather": 1.0, "reduce-scatter": 1.0, "all-reduce": 2.0, "all-to-all": 0.25, "collective-permute": 2}
    return factor[kind] * array_bytes / ring_bytes_per_second


def exact_seconds(kind: Collective, array_bytes: float, size: int, one_way: float, *, is_ring: bool) -> float:
    """The least time over one axis of `size` devices, from the load of the busiest direction of a link.

    1/size of the array stays on its device and is not sent. On a ring both directions share the work. On a line the
    device at the end receives everything over a single link. With n = size:

    - all-gather, reduce-scatter: V (n-1)/n, over two directions of a ring or one direction of a line.
    - all-reduce: twice that time, because XLA first scatters the sums and then gathers them. On a line, a pipeline of
      sums to one end and of results back would take V instead of 2 V (n-1)/n.
    - all-to-all: each device sends V/n^2 to every other device. On a line of n devices, floor(n/2) ceil(n/2) of these
      parts cross the middle one way. On a ring each part takes the shorter of two ways: n^2/8 parts per direction.
    - permutation: V over one direction of one link.
    """
    if size < 2:
        return 0.0
    share = array_bytes * (size - 1) / size
    if kind in ("all-gather", "reduce-scatter"):
        return share / (2 * one_way if is_ring else one_way)
    if kind == "all-reduce":
        return 2 * share / (2 * one_way if is_ring else one_way)
    if kind == "all-to-all":
        crossing = size * size / 8 if is_ring else (size // 2) * ((size + 1) // 2)
        return array_bytes / size**2 * crossing / one_way
    return array_bytes / one_way


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTimes:
    """The least times of a collective over one axis: on a ring, and on a line (the ends are not joined).

    `closes` is True for a ring, False for a line, and None if it is unknown which of them the axis is.
    """

    ring_seconds: float
    line_seconds: float
    closes: bool | None

    @property
    def least_seconds(self) -> float:
        """The least time: that of the ring, unless the axis is known to be a line."""
        return self.line_seconds if self.closes is False else self.ring_seconds


def axis_times(kind: Collective, array_bytes: float, size: int, one_way: float, *, closes: bool | None) -> AxisTimes:
    """The least times over one axis of `size` devices; a link carries `one_way` bytes per second in each direction."""
    ring, line = (exact_seconds(kind, array_bytes, size, one_way, is_ring=is_ring) for is_ring in (True, False))
    return AxisTimes(ring_seconds=ring, line_seconds=line, closes=closes)


def hops(size: int, *, is_ring: bool) -> int:
    """The number of links between the two farthest devices of an axis."""
    return size // 2 if is_ring else max(0, size - 1)
