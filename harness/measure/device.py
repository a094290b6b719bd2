"""Which device evidence is taken on: a TPU that JAX sees, the CPU for development, or none and the simulator."""

import functools
from pathlib import Path

from harness.errors import RatchetError, UsageError
from harness.hardware import Chip, chip_of_device
from harness.measure import environment
from harness.measure.child import Children
from harness.measure.messages import DeviceReply, DeviceRequest
from harness.records import Failure, Source

# Device files of a TPU VM: PCI accelerators under the older driver, VFIO groups under the newer.
_DEVICE_FILES = ("accel*", "vfio/[0-9]*")
_PROBE_SECONDS = 120.0
_PROBE_BYTES = 32 << 30
_SOURCES: dict[str, Source] = {"cpu": "measured cpu", "tpu": "measured", "simulated": "simulated"}


def source(chip: Chip, on: str | None) -> Source:
    """Where latencies for `chip` come from. `on`: `cpu`, `tpu`, `simulated`; None: a fitting TPU, or the simulator.

    Raises UsageError `unknown-device`, RatchetError `no-device` when a TPU is asked for and
    JAX sees none of this chip.
    """
    if on is not None and on not in _SOURCES:
        raise UsageError("unknown-device", f"expected --on {', '.join(_SOURCES)}, got {on!r}")
    if on in ("cpu", "simulated"):
        return _SOURCES[on]
    found = tpu() if on == "tpu" or _has_device_file() else None
    fits = found is not None and chip_of_device(found.kind) == chip
    if on == "tpu" and not fits:
        seen = f"a {found.kind}" if found else "no TPU"
        said = f"expected a {chip.name}, JAX sees {seen}; without --on tpu the latency is simulated"
        raise RatchetError("no-device", said)
    return "measured" if fits else "simulated"


def _has_device_file(root: Path = Path("/dev")) -> bool:
    return any(True for pattern in _DEVICE_FILES for _ in root.glob(pattern))


@functools.cache
def tpu() -> DeviceReply | None:
    """The TPU that JAX sees, asked for in a child, or None."""
    with Children(_PROBE_BYTES) as children:
        measuring = environment.measuring("tpu")
        child = children.start("probe", "harness.measure.timing", Path("/"), measuring, confinement=None)
        children.ask(child, "probe", "latency", "device", DeviceRequest(), DeviceReply, _PROBE_SECONDS)
        _, reply = children.wait()
    if isinstance(reply, Failure) or reply.platform != "tpu":
        return None
    assert isinstance(reply, DeviceReply)
    return reply
