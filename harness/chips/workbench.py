"""The facts of a chip that only the workbench asks for: no verdict, time or key follows from them."""

from dataclasses import dataclass

BOOK = "How to Scale Your Model, part 2 (jax-ml.github.io/scaling-book/tpus), table of interconnect figures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The inter-chip links of one kind of TPU.

    `one_way_bytes_per_second` is that of one link in one direction. Along each of the torus's `axes` a chip has two
    neighbours. `ring_size` is the length from which an axis closes to a ring: a multiple of it on chips whose cubes
    are joined by optical switches (`rings_are_multiples`), exactly it on the others. `source` is where it is published.
    """

    one_way_bytes_per_second: float
    axes: int
    ring_size: int
    rings_are_multiples: bool
    source: str

    @property
    def both_ways_bytes_per_second(self) -> float:
        """The bandwidth of one axis if a chip uses both directions."""
        return 2 * self.one_way_bytes_per_second

    def closes(self, size: int) -> bool:
        """Whether an axis of `size` chips is a ring."""
        return size % self.ring_size == 0 if self.rings_are_multiples else size == self.ring_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """The section of a row that tools ask which need no verdict: `links` is None where nothing is published.

    `offloads_collectives`: its SparseCores take collectives over (protocol, section 7). `has_counters`: the profiler
    writes the hardware's own counters, also while a program runs if it `has_periodic_counters`. `has_unit_counters`:
    XProf works out from them how busy each unit was (xprof 2.24). `host_bytes_per_second` is what one chip's link to
    its host carries one way.
    """

    links: Links | None = None
    offloads_collectives: bool = False
    has_counters: bool = False
    has_periodic_counters: bool = False
    has_unit_counters: bool = False
    # How to Scale Your Model, part 2, questions 3 and 6: 1.5e10 B/s of PCIe for a chip of v5e or v6e.
    host_bytes_per_second: float = 1.5e10
