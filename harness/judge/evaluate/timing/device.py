"""The device that gives latencies: the chip that JAX sees, the CPU (for development), or none (the simulator)."""

import functools
from pathlib import Path

from harness.errors import RatchetError, UsageError
from harness.hardware import Chip, chip_of_device
from harness.judge.evaluate.messages import DeviceReply, DeviceRequest
from harness.records import Failure, Source
from harness.sandbox import environment
from harness.sandbox.child import Children

# Device files of a TPU VM: PCI accelerators with the older driver, VFIO groups with the newer driver. NVIDIA's driver
# makes one numbered file for each GPU.
_DEVICE_FILES = {"tpu": ("accel*", "vfio/[0-9]*"), "cuda": ("nvidia[0-9]*",)}
# The name of a device of each platform in JAX, and therefore in --on.
_CALLED = {"tpu": "tpu", "cuda": "gpu"}
_PROBE_SECONDS = 120.0
_PROBE_BYTES = 32 << 30


def source(chip: Chip, on: str | None) -> Source:
    """The source of latencies for `chip`: measured on the chip, measured on the CPU, or simulated.

    `on` is `cpu`, `tpu` or `gpu`, or `simulated`. If `on` is None, the latency is measured if this machine has the
    chip; otherwise a TPU is simulated. Several chips are always simulated. Raises UsageError `unknown-device`. Raises
    RatchetError `no-device` if JAX does not see a requested chip, or if a missing chip cannot be simulated.
    """
    called = _CALLED[chip.platform]
    choices = ("cpu", called, "simulated")
    if on is not None and on not in choices:
        raise UsageError("unknown-device", f"expected --on {', '.join(choices)} for a {chip.name}, got {on!r}")
    if chip.mesh:
        if on not in (None, "simulated"):
            message = f"expected --on simulated for a problem on {chip.devices} chips, got {on!r}"
            raise UsageError("unknown-device", f"{message}: times of several chips can only be simulated")
        return "simulated"
    if on == "cpu":
        return "measured cpu"
    if on == "simulated" and chip.platform == "tpu":
        return "simulated"
    is_asked = on == called or (on is None and _has_device_file(chip.platform))
    device = attached(chip.platform) if is_asked else None
    if device is not None and chip_of_device(device.kind) == chip:
        return "measured"
    seen = f"a {device.kind}" if device else f"no {called.upper()}"
    if chip.platform == "cuda":
        version = environment.environment().jax
        message = (
            f"expected an {chip.name}, {f'JAX sees {seen}' if is_asked else 'found none'}. There is no simulator for "
            "GPUs; --on cpu runs everything except the timing on a device. A machine with a GPU also needs JAX's CUDA "
            f"packages, which are not in requirements.lock: .venv/bin/python -m pip install 'jax[cuda12]=={version}'"
        )
        raise RatchetError("no-device", message)
    if on == called:
        message = f"expected a {chip.name}, JAX sees {seen}; without --on tpu the latency is simulated"
        raise RatchetError("no-device", message)
    return "simulated"


def _has_device_file(platform: str, root: Path = Path("/dev")) -> bool:
    return any(any(root.glob(pattern)) for pattern in _DEVICE_FILES[platform])


@functools.cache
def attached(platform: str) -> DeviceReply | None:
    """The device of that platform (`tpu`, `cuda`) that JAX sees in a child process, or None."""
    with Children(_PROBE_BYTES) as children:
        module, measuring = "harness.judge.evaluate.timing.device_timing", environment.measuring(platform)
        child = children.start("probe", module, Path("/"), measuring, confinement=None)
        children.ask(child, "probe", "latency", "device", DeviceRequest(), DeviceReply, _PROBE_SECONDS)
        _, reply = children.wait()
    if isinstance(reply, Failure) or reply.platform != _CALLED[platform]:
        return None
    assert isinstance(reply, DeviceReply)
    return reply
