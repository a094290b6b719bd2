"""Two captures side by side as a report wants them: step time, matrix units, the hottest operation, peak memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

from harness.records import Capture, Device, Table
from harness.units import change
from harness.workbench.profiles import allocator
from harness.workbench.profiles.buffers import HBM
from harness.workbench.profiles.classes import CUSTOM_KERNEL, MATMUL, op_class
from harness.workbench.profiles.memory import actual_bytes, planned
from harness.workbench.profiles.op_times import (
    begun_in,
    comparable,
    devices,
    op_times,
    origin,
    share,
    step_count,
    steps,
    total_seconds,
)
from harness.workbench.profiles.reading import sources
from harness.workbench.tables import Field, Fields, table_of

# What runs on the matrix units, as far as XLA counts it.
_ON_MXU = (MATMUL, "attention", CUSTOM_KERNEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One capture's figures, None where it does not say one. Times are of one step of one device.

    `step_seconds` is that of the slowest device: the others wait for it. `peak_from` says what the peak is.
    """

    name: str | None
    step_seconds: float | None
    mxu_fraction: float | None
    hottest: str | None
    hottest_seconds: float | None
    hottest_share: float | None
    peak_bytes: float | None
    peak_from: str | None


# The name of a row, a capture's figures or what differs between two, and the ratio of their times.
_Row: TypeAlias = tuple[str, Side, float | None]
_ROWS: Fields[_Row] = (
    Field("side", "", lambda row: row[0]),
    Field("run", "run", lambda row: row[1].name, is_whole=True),
    Field("step_seconds", "step", lambda row: row[1].step_seconds, "s"),
    Field("time_ratio", "of baseline", lambda row: row[2], "ratio"),
    Field("mxu_fraction", "MXU", lambda row: row[1].mxu_fraction, "fraction"),
    Field("hottest_operation", "hottest op", lambda row: row[1].hottest),
    Field("hottest_seconds", "its time", lambda row: row[1].hottest_seconds, "s"),
    Field("hottest_share", "its share", lambda row: row[1].hottest_share, "fraction"),
    Field("peak_hbm_bytes", "peak HBM", lambda row: row[1].peak_bytes, "B"),
    Field("peak_from", "peak is", lambda row: row[1].peak_from),
)


def report(baseline: Capture, experiment: Capture) -> tuple[Table, ...]:
    """The table of baseline, experiment and delta.

    Raises RatchetError `not-comparable` like `comparable`.
    """
    why = comparable(baseline, experiment)
    sides = () if why else (side(baseline), side(experiment))
    rows, notes = (_rows(*sides), _notes(*sides)) if sides else ((), [])
    title = f"{baseline.name} -> {experiment.name}"
    return (table_of("report", title, origin(baseline), _ROWS, rows, notes, why),)


def side(capture: Capture) -> Side:
    """The figures of one capture, which has devices."""
    found = devices(capture)
    times = [median([step.seconds for step in steps(device)[0]]) for device in found if steps(device)[0]]
    step = max(times, default=None)
    every = op_times(found)
    runs = step_count(found) or len(found)
    whole = total_seconds(every)
    hottest = every[0]
    peak, peak_from = _peak(capture)
    return Side(
        name=capture.name,
        step_seconds=step,
        mxu_fraction=_mxu(found),
        hottest=hottest.operation.name,
        hottest_seconds=hottest.self_seconds / runs,
        hottest_share=share(hottest.self_seconds, whole),
        peak_bytes=peak,
        peak_from=peak_from,
    )


def _mxu(found: Sequence[Device]) -> float | None:
    """FLOPs of matmuls and kernels over what the peak allows in the time of all steps; None where either is unknown."""
    possible = 0.0
    done: list[float] = []
    for device in found:
        periods = steps(device)[0]
        if device.peak_flops_per_second is None or not periods:
            return None
        possible += device.peak_flops_per_second * sum(step.seconds for step in periods)
        on_mxu = [op_class(operation) in _ON_MXU for operation in device.operations]
        flops = (device.operations[run.operation].flops for run in begun_in(device, periods) if on_mxu[run.operation])
        done += [count for count in flops if count is not None]
    return sum(done) / possible if done and possible else None


def _peak(capture: Capture) -> tuple[float | None, str]:
    """Peak HBM of the fullest memory, and which figure it is: the allocator's before the compiler's."""
    paths = sources(capture)
    seen = allocator.memories(paths)
    if seen:
        fullest = max(seen, key=lambda memory: memory.peak.used_bytes)
        actual = actual_bytes(fullest.peak)
        if actual is not None:
            return float(actual), "reserved - available"
        return float(fullest.peak.used_bytes), "reserved + allocated"
    heaps = [heap.peak_bytes for heap in planned(paths) if heap.space == HBM]
    return (max(heaps), "planned, an upper bound") if heaps else (None, "unknown")


def _rows(a: Side, b: Side) -> tuple[_Row, ...]:
    ratio = b.step_seconds / a.step_seconds if a.step_seconds and b.step_seconds is not None else None
    delta = Side(
        name=None,
        step_seconds=_minus(b.step_seconds, a.step_seconds),
        mxu_fraction=_minus(b.mxu_fraction, a.mxu_fraction),
        hottest="the same" if a.hottest == b.hottest else "another",
        hottest_seconds=_minus(b.hottest_seconds, a.hottest_seconds),
        hottest_share=_minus(b.hottest_share, a.hottest_share),
        peak_bytes=_minus(b.peak_bytes, a.peak_bytes) if a.peak_from == b.peak_from else None,
        peak_from=None,
    )
    return ("baseline", a, None), ("experiment", b, ratio), ("delta", delta, None)


def _minus(new: float | None, old: float | None) -> float | None:
    return new - old if new is not None and old is not None else None


def _notes(a: Side, b: Side) -> list[str]:
    notes = []
    if a.step_seconds and b.step_seconds is not None:
        notes.append(
            f"Step time {change(b.step_seconds / a.step_seconds)}: the median step of the slowest device. Whether that "
            "is more than chance says the ratchet's own verdict, not this table."
        )
    else:
        notes.append("A capture without steps and module runs has no step time.")
    notes.append("MXU: FLOPs of matmuls and kernels as XLA counts them over peak x time of the steps; a lower bound.")
    if a.peak_from != b.peak_from:
        notes.append(f"The peaks are not the same figure ({a.peak_from}; {b.peak_from}), so there is no difference.")
    return notes
