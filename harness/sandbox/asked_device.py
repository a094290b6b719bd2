"""The device that JAX reports to a traced function: the chip that the function is traced for, not the tracing CPU.

Packages choose blocks by `jax.devices()[0].device_kind`, and `interpret=` by `jax.default_backend()`. With the values
of the tracing CPU, these packages would produce a different program from the one on the chip.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import backend as backends
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from harness.hardware import Chip


@dataclass(frozen=True, slots=True)
class DescribedDevice:
    """A stand-in for a device of `chip`: it describes itself, but no array can be placed on it."""

    chip: Chip

    id = 0
    process_index = 0
    host_id = 0
    local_hardware_id = 0
    slice_index = 0
    coords = (0, 0, 0)
    core_on_chip = 0

    @property
    def platform(self) -> str:
        """The backend's name, as JAX gives it."""
        return backend_of(self.chip)

    @property
    def device_kind(self) -> str:
        """The chip's name, as the runtime reports it."""
        return self.chip.device_kinds[0]

    @property
    def num_cores(self) -> int:
        """TensorCores of one device."""
        return self.chip.cores

    @property
    def core_count(self) -> int:
        """TensorCores of one device, or the streaming multiprocessors of a GPU."""
        return self.chip.cores

    def memory_stats(self) -> dict[str, int]:
        """The size of the chip's memory in bytes, all of it reported as unused."""
        return {"bytes_limit": int(self.chip.hbm_bytes), "bytes_in_use": 0, "peak_bytes_in_use": 0}

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError with the name of the unknown attribute."""
        raise AttributeError(
            "expected kernel.py to ask a device for platform, device_kind, num_cores or memory_stats(), got "
            f"{name!r}, which is unknown because no {self.chip.name} is attached"
        )

    def __repr__(self) -> str:
        return f"DescribedDevice({self.device_kind!r})"


@dataclass(frozen=True, slots=True)
class DescribedBackend:
    """A stand-in for a backend: it reports one device, and cannot compile or run anything."""

    device: DescribedDevice

    @property
    def platform(self) -> str:
        """The backend's name, as JAX gives it."""
        return self.device.platform

    def devices(self) -> list[DescribedDevice]:
        """The only device."""
        return [self.device]

    local_devices = devices

    def device_count(self) -> int:
        """The number of devices: 1."""
        return len(self.devices())

    local_device_count = device_count


def backend_of(chip: Chip) -> str:
    """JAX's name for the backend of `chip`."""
    return "tpu" if chip.platform == "tpu" else "gpu"


def abstract_mesh(chip: Chip) -> AbstractMesh:
    """The mesh of a program for `chip`; it has no axes if the program runs on one chip."""
    cores, platform = (chip.cores, "tpu") if chip.platform == "tpu" else (None, "gpu")
    device = AbstractDevice(device_kind=chip.device_kinds[0], num_cores=cores, platform=platform)
    return AbstractMesh(*axes(chip), axis_types=(AxisType.Auto,) * len(chip.mesh), abstract_device=device)


def axes(chip: Chip) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The sizes and the names of the axes of a chip's mesh."""
    return tuple(size for _, size in chip.mesh), tuple(name for name, _ in chip.mesh)


def aiming_at(chip: Chip) -> contextlib.AbstractContextManager[Any]:
    """Within this context JAX traces and lowers for `chip` and its mesh: some operations depend on both."""
    return jax.sharding.use_abstract_mesh(abstract_mesh(chip))  # type: ignore[no-any-return]


@contextlib.contextmanager
def asked_for(chip: Chip) -> Iterator[None]:
    """Within this context JAX reports a device of `chip`."""
    device, name = DescribedDevice(chip), backend_of(chip)
    real = [
        (module, function, getattr(module, function))
        for module, function in (
            (jax, "devices"),
            (jax, "local_devices"),
            (jax, "default_backend"),
            (backends, "get_backend"),
        )
    ]
    devices_of, backend_named = jax.devices, backends.get_backend

    def devices(backend: str | None = None) -> list[Any]:
        return [device] if backend in (None, name) else devices_of(backend)

    def local_devices(
        process_index: int | None = None, backend: str | None = None, host_id: int | None = None
    ) -> list[Any]:
        return devices(backend)

    def get_backend(platform: Any = None) -> Any:
        return DescribedBackend(device) if platform in (None, name) else backend_named(platform)

    described = (devices, local_devices, lambda: name, get_backend)
    for (module, function, _), answer in zip(real, described, strict=True):
        setattr(module, function, answer)
    try:
        yield
    finally:
        for module, function, answer in real:
            setattr(module, function, answer)
