"""The parts of a simulated run with their times: the problem's timing inputs, and the operations of its program."""

from collections.abc import Iterator
from dataclasses import dataclass

from harness.records import Simulation
from harness.units import percent, seconds

# An operation with a smaller share of the time is not listed.
NOTABLE_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """The time of the program with one timing input, or of one operation (a Pallas call, say) with the first input."""

    name: str
    seconds: float


def timing_inputs(run: Simulation) -> tuple[RunPart, ...]:
    """The timing inputs that have a latency, if there are several: the latency of the contest is their mean."""
    timed = [RunPart(name=each.name, seconds=each.seconds) for each in run.runs if each.seconds is not None]
    return tuple(timed) if len(timed) > 1 else ()


def operations(run: Simulation) -> tuple[RunPart, ...]:
    """The operations with a notable share of the time, the longest first, if there are several."""
    parts = [RunPart(name=op.name, seconds=op.seconds) for op in run.ops if op.seconds >= NOTABLE_SHARE * _whole(run)]
    return tuple(sorted(parts, key=lambda part: -part.seconds)) if len(parts) > 1 else ()


def sentences(run: Simulation) -> Iterator[str]:
    """A sentence on the timing inputs with their times, and a sentence on the operations with times and shares."""
    inputs, mean = timing_inputs(run), run.mean_seconds
    if inputs:
        times = " · ".join(f"{part.name} {seconds(part.seconds)}" for part in inputs)
        whole = "" if mean is None else f"; their mean, {seconds(mean)}, is the latency"
        yield f"timing inputs: {times}{whole}"
    if parts := operations(run):
        of_input = f" with {run.runs[0].name}" if inputs else ""
        shares = (f"{part.name} {seconds(part.seconds)} ({percent(part.seconds / _whole(run))})" for part in parts)
        yield f"operations{of_input}: {' · '.join(shares)}"


def _whole(run: Simulation) -> float:
    """The time of the run with the first timing input; if that is unknown, the sum over its operations."""
    return run.seconds or sum(op.seconds for op in run.ops)
