"""The device that programs are compiled for, as libtpu describes it where there is none."""

import jax
from jax.experimental import topologies

from harness.errors import RatchetError
from harness.hardware import Chip
from harness.units import quantity

# On chips of two cores a device is one core unless both are asked for as one.
_BOTH_CORES = {"chip_config_name": "megacore"}


def described_device(chip: Chip) -> jax.Device:
    """A device of `chip` with all its cores; raises RatchetError `wrong-topology` if libtpu gives it other ones."""
    assert chip.topology is not None
    options = _BOTH_CORES if chip.cores > 1 else {}
    device = topologies.get_topology_desc(topology_name=chip.topology, platform="tpu", **options).devices[0]
    if device.num_cores != chip.cores:
        raise RatchetError(
            "wrong-topology",
            f"expected a device of {quantity(chip.cores, 'core')} from the topology {chip.topology} of {chip.name}, "
            f"got {device.num_cores}: what is compiled for it would not be what {chip.name} runs",
        )
    return device
