"""What a device profile shows, taken as the published device times were: a model of the measurement, not of the chip.

The published times of 66 attention kernels (benchmarks/data) exceed what their schedules take by
an amount that does not depend on the kernel, its blocks or its grid, but on the arguments and
results of the module and on the bandwidth of the chip, in the same proportion on three chips.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.dumps.boundary import Boundary
from harness.hardware import Chip


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """How the published times were taken, as far as they show it. CALIBRATED on all 66, one value for all chips.

    boundary_passes: how often every argument and result crosses HBM (2 would be a copy of each).
    fixed_seconds: per module.
    argument_copy_share: how much of the copies counts that only change the layout of an argument.
        Those of results do not count at all: there the result stayed as the kernel wrote it.
    """

    boundary_passes: float = 1.6
    fixed_seconds: float = 50e-6
    argument_copy_share: float = 0.5


PUBLISHED = Measurement()


def boundary_seconds(boundary: Boundary | None, chip: Chip) -> float:
    """What the published way to measure adds for arguments and results of a module; 0 where they are unknown."""
    if boundary is None:
        return 0.0
    return PUBLISHED.boundary_passes * boundary.total_bytes / chip.hbm_bytes_per_second


def as_profiled_seconds(
    total_seconds: float,
    op_seconds: Mapping[str, float],
    boundary: Boundary | None,
    chip: Chip,
    measurement: Measurement = PUBLISHED,
) -> float:
    """What a profile taken as the published ones would show for a module that takes `total_seconds`."""
    if boundary is None:
        return total_seconds + measurement.fixed_seconds
    results = sum(op_seconds.get(name, 0.0) for name in boundary.result_copies)
    arguments = sum(op_seconds.get(name, 0.0) for name in boundary.argument_copies)
    return (
        total_seconds
        - results
        - (1 - measurement.argument_copy_share) * arguments
        + measurement.boundary_passes * boundary.total_bytes / chip.hbm_bytes_per_second
        + measurement.fixed_seconds
    )
