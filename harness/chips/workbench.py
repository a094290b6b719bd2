"""The facts of a chip that only the workbench reads: no verdict, time or key depends on them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """The section of a row for tools that decide no verdict.

    `offloads_collectives`: the chip's SparseCores can run collectives (docs/PROTOCOL.md, section 7). `has_counters`:
    the profiler writes the hardware's own counters. `has_periodic_counters`: the profiler also writes them while a
    program runs. `has_unit_counters`: XProf computes the utilisation of each unit from the counters (xprof 2.24).
    `from_host_bytes_per_second` and `to_host_bytes_per_second` are the bandwidths of one chip's link to its host. Both
    directions can be used at the same time.
    """

    offloads_collectives: bool = False
    has_counters: bool = False
    has_periodic_counters: bool = False
    has_unit_counters: bool = False
    # How to Scale Your Model, part 2, questions 3 and 6: 1.5e10 B/s of PCIe for a chip of v5e or v6e.
    from_host_bytes_per_second: float = 1.5e10
    to_host_bytes_per_second: float = 1.5e10
