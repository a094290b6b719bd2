"""The device that programs are compiled for, as libtpu describes it on a machine without a TPU."""

from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, SingleDeviceSharding

from harness.errors import RatchetError
from harness.hardware import Chip
from harness.judge.evaluate.trace import meshes
from harness.records import Array
from harness.sandbox import arrays, asked_device
from harness.units import quantity

# On a chip with two cores, libtpu's default device is one core. With this setting, a device is the whole chip.
_BOTH_CORES = {"chip_config_name": "megacore"}


def described_device(chip: Chip) -> jax.Device:
    """A device with all cores of `chip`. Raises RatchetError `wrong-topology` if libtpu reports another core count."""
    return _described_devices(chip)[0]


def described_shapes(inputs: Sequence[Array], chip: Chip) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The shapes of these inputs on the device of `chip`. Over a mesh, they are split over the chips in device order.

    Raises RatchetError `wrong-topology`.
    """
    devices = _described_devices(chip)
    sizes, names = asked_device.axes(chip)
    if names:
        return meshes.shapes(inputs, Mesh(np.array(devices).reshape(sizes), names))
    sharding = SingleDeviceSharding(devices[0])
    return tuple(jax.ShapeDtypeStruct(a.shape, arrays.dtype(a.dtype), sharding=sharding) for a in inputs)


def _described_devices(chip: Chip) -> list[jax.Device]:
    """All devices of the chip's topology, in the order of their numbers."""
    assert chip.topology is not None
    options = _BOTH_CORES if chip.cores > 1 else {}
    devices = topologies.get_topology_desc(topology_name=chip.topology, platform="tpu", **options).devices
    device = devices[0]
    if device.num_cores != chip.cores:
        message = (
            f"expected a device of {quantity(chip.cores, 'core')} from the topology {chip.topology} of {chip.name}, "
            f"got {device.num_cores}: code compiled for it is not the code that a {chip.name} runs; install the libtpu "
            "of requirements.lock"
        )
        raise RatchetError("wrong-topology", message)
    return sorted(devices, key=lambda tpu: tpu.id) if chip.mesh else devices
