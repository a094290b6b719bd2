"""Model FLOPs utilisation: what the model needs over what the devices could do in a step."""

from collections.abc import Iterator, Sequence
from math import prod
from statistics import median

from harness.errors import UsageError
from harness.records import Capture, Column, Device, Table
from harness.records.table import Cell
from harness.units import decimal, seconds
from harness.workbench.profiles.classes import framework_category
from harness.workbench.profiles.op_times import (
    begun_in,
    devices,
    is_container,
    op_times,
    origin,
    steps,
    why_nothing_ran,
)
from harness.workbench.profiles.operations import uncounted
from harness.workbench.profiles.roofline import roof
from harness.workbench.tables import table

_COLUMNS = (
    Column(name="from", title="FLOPs from"),
    Column(name="step_flops", title="FLOPs per step", unit="FLOP"),
    Column(name="step_seconds", title="step", unit="s"),
    Column(name="devices", title="devices", unit="count"),
    Column(name="peak_flops_per_second", title="peak of one", unit="FLOP/s"),
    Column(name="mfu", title="MFU", unit="fraction"),
)


def mfu(
    capture: Capture,
    gbs: float | None = None,
    sequence: float | None = None,
    flops_per_token: float | None = None,
    device_count: int | None = None,
) -> tuple[Table, ...]:
    """MFU from the model's FLOPs, and beside it what the sum of the trace's FLOPs gives.

    GBS x sequence x FLOPs per token (forward and backward) / (devices x peak x step): protocol, section 6. A step is
    the median over steps and devices. Without `device_count` the devices of the capture, without one of the others
    only the trace's sum. Raises UsageError `usage` where a number is not positive.
    """
    model = {"--gbs": gbs, "--seq": sequence, "--flops-per-token": flops_per_token}
    for name, value in model.items():
        if value is not None and not value > 0:
            raise UsageError("usage", f"expected {name} above 0, got {value:g}")
    missing = [name for name, value in model.items() if value is None]
    step_flops = None if missing else prod(value for value in model.values() if value is not None)
    found = devices(capture)
    count = device_count or len(found)
    peak = roof(found)[0] if found else None
    periods = [step for device in found for step in steps(device)[0]]
    step = median([period.seconds for period in periods]) if periods else None
    why = _why(capture, found, peak, step)
    rows: list[tuple[Cell, ...]] = []
    if not why and peak is not None and step:
        if step_flops is not None:
            rows.append(("the model", step_flops, step, count, peak, step_flops / (count * peak * step)))
        traced = traced_step_flops(found)
        each = None if traced is None else traced * count
        rows.append(("the trace", each, step, count, peak, None if traced is None else traced / (peak * step)))
    notes: tuple[str, ...] = ()
    if rows and step_flops is not None:
        words = f"{gbs:g} x {sequence:g} x {decimal(flops_per_token or 0.0, 'FLOP')}"
        notes = (
            *_impossible(rows),
            f"MFU = GBS x sequence x FLOPs per token / (devices x peak x step) = {words} / (...) (protocol, section "
            "6); FLOPs of forward and backward pass.",
        )
    elif rows:
        notes = (f"The model's own MFU takes {' and '.join(missing)} too: what the trace counts is mostly less.",)
    return (
        table("mfu", "Model FLOPs utilisation", origin(capture), _COLUMNS, rows,
              (*notes, *(_notes(found, device_count) if rows else ())), why),
    )  # fmt: skip


def traced_step_flops(found: Sequence[Device]) -> float | None:
    """FLOPs of one device in one step, as the trace counts them; None where it counts none.

    What runs outside the steps (other modules, where a step is a run of the longest) takes none of their time.
    """
    ran = [device.operations[run.operation] for device in found for run in begun_in(device, steps(device)[0])]
    flops = [one.flops for one in ran if one.flops is not None and not is_container(one)]
    count = sum(len(steps(device)[0]) for device in found)
    return sum(flops) / count if flops and count else None


def _why(capture: Capture, found: Sequence[Device], peak: float | None, step: float | None) -> str:
    if not found:
        return why_nothing_ran(capture)
    if step is None:
        return "the capture shows neither steps nor runs of modules, so the time of a step is unknown"
    if step == 0:
        return "the steps of the capture take no time"
    if peak is None:
        if all(device.platform == "cpu" for device in found):
            return f"the peak of a CPU is unknown, so there is no MFU; a step takes {seconds(step)}"
        return f"the capture does not say one peak for its devices; a step takes {seconds(step)}"
    return ""


def _impossible(rows: Sequence[Sequence[Cell]]) -> tuple[str, ...]:
    mine = rows[0][-1]
    if isinstance(mine, float) and mine > 1:
        return ("More than the devices can do: check --gbs, --seq, --flops-per-token and --num-chips.",)
    return ()


def _notes(found: Sequence[Device], device_count: int | None) -> Iterator[str]:
    yield f"A step is the median of all {steps(found[0])[1]}; the peak is the one the capture says for a device."
    if device_count is None:
        yield f"Devices: those in the capture, {len(found)}; where others shared the batch give --num-chips."
    elif device_count < len(found):
        yield f"--num-chips {device_count} is less than the {len(found)} devices that the capture shows: check it."
    every = op_times(found)
    yield "The trace's sum is XLA's count: recomputation twice, Pallas kernels without an estimate not at all."
    yield from uncounted(every)
    if any(framework_category(one.operation) == "moe" for one in every):
        yield (
            "There are mixture-of-experts operations: FLOPs per token count active experts only, and about 10 % is "
            "normal (protocol, section 6)."
        )
