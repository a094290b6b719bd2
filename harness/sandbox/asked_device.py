"""The device that JAX shows to a traced function: the chip it is traced for, although a CPU traces it.

Packages choose blocks by `jax.devices()[0].device_kind`, and `interpret=` by `jax.default_backend()`. On the chip they
would get other answers than on the machine that traces, so the wrong program would be looked at.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import AbstractDevice, AbstractMesh, AxisType

from harness.hardware import Chip


@dataclass(frozen=True, slots=True)
class DescribedDevice:
    """A pretended device of `chip`: it answers what it is, but nothing can be put on it."""

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
        """The chip's name, as its runtime gives it."""
        return self.chip.device_kinds[0]

    @property
    def num_cores(self) -> int:
        """TensorCores of one device."""
        return self.chip.cores

    @property
    def core_count(self) -> int:
        """The same, or the streaming multiprocessors of a GPU."""
        return self.chip.cores

    def memory_stats(self) -> dict[str, int]:
        """The bytes of the chip's memory, none of them in use."""
        return {"bytes_limit": int(self.chip.hbm_bytes), "bytes_in_use": 0, "peak_bytes_in_use": 0}

    def __getattr__(self, name: str) -> Any:
        """Names the attribute that was asked for and is not known."""
        raise AttributeError(
            f"a device is asked for {name!r}, which is not known of a {self.chip.name} that is not there: known are "
            "platform, device_kind, num_cores and memory_stats()"
        )

    def __repr__(self) -> str:
        return f"DescribedDevice({self.device_kind!r})"


def backend_of(chip: Chip) -> str:
    """JAX's name for the backend of such a chip."""
    return "tpu" if chip.platform == "tpu" else "gpu"


def abstract_mesh(chip: Chip) -> AbstractMesh:
    """The mesh of a chip's program, without axes for a single chip."""
    cores, platform = (chip.cores, "tpu") if chip.platform == "tpu" else (None, "gpu")
    device = AbstractDevice(device_kind=chip.device_kinds[0], num_cores=cores, platform=platform)
    return AbstractMesh(*axes(chip), axis_types=(AxisType.Auto,) * len(chip.mesh), abstract_device=device)


def axes(chip: Chip) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The sizes and the names of the axes of a chip's mesh."""
    return tuple(size for _, size in chip.mesh), tuple(name for name, _ in chip.mesh)


def aiming_at(chip: Chip) -> contextlib.AbstractContextManager[Any]:
    """Within this context JAX traces and lowers for that chip and its mesh: some operations depend on both."""
    return jax.sharding.use_abstract_mesh(abstract_mesh(chip))  # type: ignore[no-any-return]


@contextlib.contextmanager
def asked_for(chip: Chip) -> Iterator[None]:
    """Within this context JAX reports a device of `chip`."""
    device = DescribedDevice(chip)
    real = {name: getattr(jax, name) for name in ("devices", "local_devices", "default_backend")}

    def devices(backend: str | None = None) -> list[Any]:
        return [device] if backend in (None, backend_of(chip)) else real["devices"](backend)

    def local_devices(
        process_index: int | None = None, backend: str | None = None, host_id: int | None = None
    ) -> list[Any]:
        return devices(backend)

    described = {"devices": devices, "local_devices": local_devices, "default_backend": lambda: backend_of(chip)}
    for name, answer in described.items():
        setattr(jax, name, answer)
    try:
        yield
    finally:
        for name, answer in real.items():
            setattr(jax, name, answer)
