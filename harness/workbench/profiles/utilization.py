"""How much of a device's compute and memory bandwidth each module uses, with the four-way reading."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from harness.records import Capture, Column, Device, Execution, Period, Table
from harness.records.table import Cell
from harness.units import percent
from harness.workbench.profiles.classes import is_custom_call
from harness.workbench.profiles.op_times import begun_in, device_label, devices, origin, why_nothing_ran
from harness.workbench.tables import table

# Protocol, section 1: below 30 % is low (its latency-bound regime). Section 8: the targets, which count as high.
LOW = 0.30
HIGH_TC, HIGH_HBM = 0.80, 0.70

_COLUMNS = (
    Column(name="device", title="device"),
    Column(name="module", title="module"),
    Column(name="count", title="runs", unit="count"),
    Column(name="seconds", title="time", unit="s"),
    Column(name="tc_fraction", title="TC", unit="fraction"),
    Column(name="hbm_fraction", title="HBM", unit="fraction"),
    Column(name="uncounted_fraction", title="uncounted", unit="fraction"),
    Column(name="reading", title="reading", is_whole=True),
)
EVERYTHING = "(no module in the capture)"


def utilization(capture: Capture) -> tuple[Table, ...]:
    """TC % and HBM % over the runs of each module on each device, idle time inside the runs included."""
    found = devices(capture)
    why = "" if found else why_nothing_ran(capture)
    if found and all(device.peak_flops_per_second is None and device.hbm_bytes_per_second is None for device in found):
        where = "a CPU" if all(device.platform == "cpu" for device in found) else found[0].name
        why = f"peak FLOP/s and bandwidth of {where} are unknown: the capture does not say them"
    rows = () if why else tuple(row for device in found for row in _rows(device, device_label(device, found)))
    if rows and all(row[4] is None and row[5] is None for row in rows):
        why, rows = "no operation of the capture says its FLOPs or its bytes", ()
    title = "Utilisation by module"
    return (table("utilization", title, origin(capture), _COLUMNS, rows, _notes(any(row[6] for row in rows)), why),)


def _notes(has_uncounted: bool) -> Iterator[str]:
    yield (
        "TC = FLOPs of the operations / (peak x time of the runs), HBM likewise with their bytes in HBM (all of "
        "them where the capture does not part them by memory): from XLA's counts, not from hardware counters."
    )
    yield (
        f"Low is under {percent(LOW, 0)} (protocol, section 1), high from {percent(HIGH_TC, 0)} TC and "
        f"{percent(HIGH_HBM, 0)} HBM (section 8); the readings are those of section 3, item 6."
    )
    if has_uncounted:
        yield "Uncounted is time in custom calls without FLOPs: there TC is a lower bound."


def reading(tc: float | None, hbm: float | None, uncounted: float = 0.0) -> str:
    """The four-way reading; open where it would change if the time without a FLOP count were all at the peak."""
    if tc is None or hbm is None:
        return "unknown"
    most = min(1.0, tc + uncounted)
    if uncounted and reading(tc, hbm) != reading(most, hbm):
        return f"open: TC up to {percent(most, 0)}"
    if tc < LOW and hbm < LOW:
        return "both low: bubbles or overhead"
    if tc >= HIGH_TC and hbm >= HIGH_HBM:
        return "both high: near the ceiling"
    if tc / HIGH_TC >= hbm / HIGH_HBM:
        return "compute-bound, efficient" if tc >= HIGH_TC else "compute leads, under target"
    return "memory-bound: raise intensity" if hbm >= HIGH_HBM else "memory leads: raise intensity"


def _rows(device: Device, device_name: str) -> list[tuple[Cell, ...]]:
    runs: dict[str, list[Period]] = defaultdict(list)
    for module in device.modules:
        runs[module.name].append(module)
    if not runs:
        first, last = device.executions[0].start, max(run.end for run in device.executions)
        runs[EVERYTHING].append(Period(name=EVERYTHING, start=first, seconds=last - first))
    rows: list[tuple[Cell, ...]] = []
    for name, periods in sorted(runs.items(), key=lambda item: -sum(period.seconds for period in item[1])):
        inside = begun_in(device, periods)
        took = sum(period.seconds for period in periods)
        silent = sum(run.self_seconds for run in inside if _is_silent(device, run))
        tc = _fraction([device.operations[run.operation].flops for run in inside], device.peak_flops_per_second, took)
        moved = [device.operations[run.operation].hbm_bytes_at_most for run in inside]
        hbm = _fraction(moved, device.hbm_bytes_per_second, took)
        share = silent / took if took > 0 else 0.0
        rows.append((device_name, name, len(periods), took, tc, hbm, share, reading(tc, hbm, share)))
    return rows


def _is_silent(device: Device, run: Execution) -> bool:
    operation = device.operations[run.operation]
    return operation.flops is None and is_custom_call(operation)


def _fraction(amounts: Sequence[float | None], peak: float | None, seconds: float) -> float | None:
    """The known amounts over what the peak allows; None where none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) / (peak * seconds) if known and peak and seconds > 0 else None
