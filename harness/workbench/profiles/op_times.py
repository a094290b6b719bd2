"""The devices of a capture that the analyses cover, their steps, and the origin of the capture's numbers."""

from collections import defaultdict
from collections.abc import Sequence

from harness.errors import RatchetError
from harness.hardware import Chip, chip_of_device
from harness.records import Capture, Device, Operation, Period
from harness.records.table import Origin
from harness.workbench.profiles.classes import CONTROL_FLOW, op_class
from harness.workbench.traces.xspace import DRAWN


def devices(capture: Capture) -> tuple[Device, ...]:
    """The devices that the analyses cover: all devices with operations, but no CPU if an accelerator is among them."""
    busy = tuple(device for device in capture.devices if device.executions and not is_sparse_core(device))
    return tuple(device for device in busy if device.platform != "cpu") or busy


def is_sparse_core(device: Device) -> bool:
    """True for a SparseCore.

    It works in parallel with its chip's TensorCore, so only the TensorCore's times are counted.
    """
    return "SparseCore" in device.name


def device_label(device: Device, devices: Sequence[Device]) -> str:
    """The device's name, after its host's name if `devices` are on several hosts, because each host has a `TPU:0`."""
    return f"{device.host}/{device.name}" if len({other.host for other in devices}) > 1 else device.name


def origin(capture: Capture) -> Origin:
    """The origin of the capture's numbers."""
    if capture.is_simulated:
        return "simulated"
    shown = devices(capture) or capture.devices
    return "measured cpu" if shown and all(device.platform == "cpu" for device in shown) else "measured"


def chip_of(capture: Capture) -> Chip | None:
    """The chip on which the capture was taken; None if the capture names no known chip."""
    main = devices(capture)
    return chip_of_device(main[0].kind.removesuffix(DRAWN)) if main else None


def why_nothing_ran(capture: Capture) -> str:
    """A sentence that explains why the capture has no operation."""
    if not capture.devices:
        return "the capture has no device and no XLA operation: nothing ran on a device while it was taken"
    names = ", ".join(device.name for device in capture.devices)
    return f"the capture has no operation on {names}: nothing ran while it was taken, or only the host was traced"


def comparable(a: Capture, b: Capture) -> str:
    """The reason why two captures cannot be compared, because nothing ran in at least one of them; else "".

    Raises RatchetError `not-comparable` if their origins differ: measured, measured on a CPU, or simulated.
    """
    empty = next((capture for capture in (a, b) if not devices(capture)), None)
    if empty is not None:
        return f"in {empty.name}, {why_nothing_ran(empty)}"
    if origin(a) != origin(b):
        raise RatchetError(
            "not-comparable",
            f"expected two captures of one origin, got {a.name} ({origin(a)}) and {b.name} ({origin(b)}), whose times "
            "are not comparable; capture both in the same way",
        )
    return ""


def is_container(operation: Operation) -> bool:
    """True for a loop, condition or call, which only runs the operations inside it."""
    return op_class(operation) == CONTROL_FLOW


def steps(device: Device) -> tuple[tuple[Period, ...], str]:
    """The device's steps in order, and a name for them. If no step is marked, the runs of the longest module count."""
    if device.steps:
        return tuple(sorted(device.steps, key=lambda step: step.start)), "steps marked in the capture"
    totals: dict[str, float] = defaultdict(float)
    for run in device.modules:
        totals[run.name] += run.seconds
    if not totals:
        return (), "neither steps nor module runs"
    longest = max(totals, key=lambda name: totals[name])
    runs = sorted((run for run in device.modules if run.name == longest), key=lambda run: run.start)
    return tuple(runs), f"runs of {longest}"
