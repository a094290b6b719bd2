"""What a capture's operations took, summed over executions and devices; devices, steps and origin of its numbers."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.errors import RatchetError
from harness.records import Capture, Device, Execution, Operation, Period
from harness.records.table import Origin
from harness.workbench.profiles.classes import CONTROL_FLOW, op_class


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTime:
    """One operation: how often it ran and for how long, over all devices. Self time is without what is nested in it."""

    operation: Operation
    count: int
    seconds: float
    self_seconds: float

    @property
    def mean_seconds(self) -> float:
        """Self time of one execution."""
        return self.self_seconds / self.count

    @property
    def flops(self) -> float | None:
        """Floating-point operations of one execution; none of a loop's own, whose body counts by itself."""
        return None if is_container(self.operation) else self.operation.flops

    @property
    def bytes_accessed(self) -> float | None:
        """Bytes of one execution, likewise."""
        return None if is_container(self.operation) else self.operation.bytes_accessed

    @property
    def hbm_bytes(self) -> float | None:
        """Those of them in HBM, as far as the capture parts them."""
        return None if is_container(self.operation) else self.operation.hbm_bytes_at_most

    @property
    def flops_per_second(self) -> float | None:
        """How many floating-point operations a second while it ran."""
        return _rate(self.flops, self.mean_seconds)

    @property
    def bytes_per_second(self) -> float | None:
        """How many bytes a second it accessed while it ran."""
        return _rate(self.bytes_accessed, self.mean_seconds)


def op_times(devices: Iterable[Device]) -> tuple[OperationTime, ...]:
    """Every operation that ran, longest self time first. One is known by its module and name, on whatever device."""
    groups: dict[tuple[str, str], list[tuple[Operation, Execution]]] = defaultdict(list)
    for device in devices:
        for run in device.executions:
            operation = device.operations[run.operation]
            groups[operation.module, operation.name].append((operation, run))
    found = [
        OperationTime(
            operation=runs[0][0],
            count=len(runs),
            seconds=sum(run.seconds for _, run in runs),
            self_seconds=sum(run.self_seconds for _, run in runs),
        )
        for runs in groups.values()
    ]
    return tuple(sorted(found, key=lambda one: (-one.self_seconds, one.operation.name)))


def devices(capture: Capture) -> tuple[Device, ...]:
    """The devices that the analyses are about: those with operations, and of them the accelerators if there are any."""
    busy = tuple(device for device in capture.devices if device.executions and not is_sparse_core(device))
    return tuple(device for device in busy if device.platform != "cpu") or busy


def is_sparse_core(device: Device) -> bool:
    """Whether it is a SparseCore, which works beside its chip's TensorCore, whose times stand for the program."""
    return "SparseCore" in device.name


def device_label(device: Device, found: Sequence[Device]) -> str:
    """The device's name, with its host's in front where `found` are of several hosts: each has a `TPU:0`."""
    return f"{device.host}/{device.name}" if len({one.host for one in found}) > 1 else device.name


def origin(capture: Capture) -> Origin:
    """Where the capture's numbers come from."""
    if capture.is_simulated:
        return "simulated"
    found = devices(capture) or capture.devices
    return "measured cpu" if found and all(device.platform == "cpu" for device in found) else "measured"


def why_nothing_ran(capture: Capture) -> str:
    """Why there is no operation in it."""
    if not capture.devices:
        return "the capture holds no device and no XLA operation: nothing ran on a device while it was taken"
    names = ", ".join(device.name for device in capture.devices)
    return (
        f"the capture shows {names} but no operation on it: nothing ran while it was taken, or only the host was traced"
    )


def comparable(a: Capture, b: Capture) -> str:
    """Why there is nothing to compare: in which of the two nothing ran; empty where there is.

    Raises RatchetError `not-comparable` where one is measured and the other simulated, or measured on a CPU.
    """
    empty = next((one for one in (a, b) if not devices(one)), None)
    if empty is not None:
        return f"in {empty.name}, {why_nothing_ran(empty)}"
    if origin(a) != origin(b):
        raise RatchetError(
            "not-comparable",
            f"expected two captures from one source, got {a.name} ({origin(a)}) and {b.name} ({origin(b)}): such times "
            "are never compared; capture both in the same way",
        )
    return ""


def is_container(operation: Operation) -> bool:
    """Whether other operations run inside it and it does nothing itself: a loop, a condition, a call."""
    return op_class(operation) == CONTROL_FLOW


def running(device: Device) -> tuple[Execution, ...]:
    """The executions that are work: a loop, condition or call counts only through the operations nested in it."""
    holds = [is_container(operation) for operation in device.operations]
    return tuple(run for run in device.executions if not holds[run.operation] or run.self_seconds == run.seconds)


def begun_in(device: Device, periods: Sequence[Period]) -> tuple[Execution, ...]:
    """The executions of `running` that begin in one of `periods`, which do not overlap."""
    found, at = [], 0
    ordered = sorted(periods, key=lambda period: period.start)
    for run in running(device):
        while at < len(ordered) and run.start >= ordered[at].end:
            at += 1
        if at < len(ordered) and run.start >= ordered[at].start:
            found.append(run)
    return tuple(found)


def steps(device: Device) -> tuple[tuple[Period, ...], str]:
    """The device's steps in order, and what they are; where it shows none, the runs of its longest module."""
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


def step_count(found: Sequence[Device]) -> int | None:
    """Steps of all `found` devices together; None where one of them shows none."""
    counts = [len(steps(device)[0]) for device in found]
    return sum(counts) if counts and all(counts) else None


def total_seconds(group: Iterable[OperationTime]) -> float:
    """Self time of these operations together."""
    return sum(one.self_seconds for one in group)


def total_runs(group: Iterable[OperationTime]) -> int:
    """How often they ran, together."""
    return sum(one.count for one in group)


def share(part: float, whole: float) -> float | None:
    """`part` of `whole`; None where the whole is nothing."""
    return part / whole if whole > 0 else None


def _rate(amount: float | None, seconds: float) -> float | None:
    return amount / seconds if amount is not None and seconds > 0 else None
