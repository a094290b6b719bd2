"""Each operation against the roofline: predicted and measured time, their ratio, and a verdict."""

from collections.abc import Sequence

from harness.records import Capture, Column, Device, Table
from harness.units import decimal, percent
from harness.workbench.profiles.classes import COMMUNICATION, CONTROL_FLOW, TRANSFER, is_custom_call, op_class
from harness.workbench.profiles.op_times import (
    OperationTime,
    devices,
    op_times,
    origin,
    total_seconds,
    why_nothing_ran,
)
from harness.workbench.profiles.operations import uncounted
from harness.workbench.tables import table

# Protocol, section 5: within 5 to 10 % fine, within 2x look, beyond 2x wrong sharding or layout.
FINE, LOOK = 1.10, 2.0
# The other way round the same 10 %: nothing can be faster than its roofline.
_IMPOSSIBLE = 0.9

_COLUMNS = (
    Column(name="operation", title="operation"),
    Column(name="bound", title="bound by"),
    Column(name="predicted_seconds", title="predicted", unit="s"),
    Column(name="measured_seconds", title="measured", unit="s"),
    Column(name="ratio", title="ratio", unit="ratio"),
    Column(name="share", title="share", unit="fraction"),
    Column(name="verdict", title="verdict"),
)
_TOTAL = "all with a prediction"


def roofline(capture: Capture, top: int | None = None) -> tuple[Table, ...]:
    """Predicted max(FLOPs/peak, bytes/bandwidth) and measured time of one run of each operation, longest first."""
    found = devices(capture)
    why = why_nothing_ran(capture) if not found else _why_no_roof(found)
    peak, bandwidth = roof(found) if found else (None, None)
    every = op_times(found)
    whole = total_seconds(every)
    # What took no time that the profiler could tell has no ratio.
    judged = [
        one
        for one in every
        if one.self_seconds > 0 and op_class(one.operation) not in (COMMUNICATION, TRANSFER, CONTROL_FLOW)
    ]
    known = [(one, *predicted) for one in judged if (predicted := predict(one, peak, bandwidth))]
    if not why and not known:
        why = "no operation of the capture that took time says its FLOPs or its bytes"
    rows = [
        (
            one.operation.name,
            bound,
            least,
            one.mean_seconds,
            one.mean_seconds / least,
            one.self_seconds / whole,
            verdict(one.mean_seconds / least, is_kernel=is_custom_call(one.operation)),
        )
        for one, least, bound in known
    ]
    if rows:
        least = sum(least * one.count for one, least, _ in known)
        took = total_seconds(one for one, _, _ in known)
        rows.insert(0, (_TOTAL, "", least, took, took / least, took / whole, verdict(took / least)))
    shown = () if why else rows[: None if top is None else top + 1]
    notes = _notes(peak, bandwidth, every, known, whole)
    return (table("roofline", "Roofline by operation", origin(capture), _COLUMNS, shown, notes, why),)


def roof(found: Sequence[Device]) -> tuple[float | None, float | None]:
    """FLOP/s and bytes/s of one device; None where the devices differ or do not say."""
    peaks = {device.peak_flops_per_second for device in found}
    bandwidths = {device.hbm_bytes_per_second for device in found}
    return (peaks.pop() if len(peaks) == 1 else None), (bandwidths.pop() if len(bandwidths) == 1 else None)


def predict(one: OperationTime, peak: float | None, bandwidth: float | None) -> tuple[float, str] | None:
    """The least time of one run, and what sets it. None where neither its FLOPs nor its bytes are known, or both 0."""
    flops, moved = one.flops, one.hbm_bytes
    times = []
    if flops is not None and peak:
        times.append((flops / peak, "compute"))
    if moved is not None and bandwidth:
        times.append((moved / bandwidth, "memory"))
    # Of a kernel whose FLOPs nobody counted, the bytes alone are no roofline.
    if flops is None and moved is not None and op_class(one.operation) in ("custom kernel", "attention"):
        return None
    longest = max(times, default=(0.0, ""))
    return longest if longest[0] > 0 else None


def verdict(ratio: float, *, is_kernel: bool = False) -> str:
    """What the protocol says to measured over predicted; neither sharding nor layout slow a kernel down."""
    if ratio < _IMPOSSIBLE:
        return "too fast: counts too high"
    if ratio <= FINE:
        return "fine"
    if ratio <= LOOK:
        return "look"
    return "far off: look inside" if is_kernel else "wrong sharding or layout?"


def _why_no_roof(found: Sequence[Device]) -> str:
    peak, bandwidth = roof(found)
    if peak is None and bandwidth is None:
        where = "a CPU" if all(device.platform == "cpu" for device in found) else found[0].name
        return f"peak FLOP/s and bandwidth of {where} are unknown: the capture does not say them"
    return ""


def _notes(
    peak: float | None,
    bandwidth: float | None,
    every: Sequence[OperationTime],
    known: Sequence[tuple[OperationTime, float, str]],
    whole: float,
) -> tuple[str, ...]:
    said = (
        f"{decimal(peak, 'FLOP/s') if peak else 'unknown'} and {decimal(bandwidth, 'B/s') if bandwidth else 'unknown'}"
    )
    without = whole - total_seconds(one for one, _, _ in known)
    notes = [
        f"Predicted = max(FLOPs/peak, bytes/bandwidth) with {said}, as the capture says for one device.",
        "Within 10 % fine, within 2x look, beyond 2x wrong sharding or layout (protocol, section 5).",
    ]
    if any(least > one.mean_seconds / _IMPOSSIBLE for one, least, _ in known):
        notes.append(
            "Too fast: XLA counts bytes that stay in VMEM as well, and FLOPs before simplification; the roofline of "
            "such an operation is too high."
        )
    if whole > 0 and without > 0:
        notes.append(
            f"{percent(without / whole)} of the time has no prediction (collectives, transfers, loops, no counts)."
        )
    return (*notes, *uncounted(every))
