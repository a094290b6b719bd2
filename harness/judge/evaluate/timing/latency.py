"""The judged latency: the simulator's latency, or the median of a device's times."""

import statistics
from typing import Literal

from harness.records import Latency, Samples, Simulation


def simulated(simulation: Simulation) -> Latency:
    """The simulator's latency (the mean over the timing inputs, if any), or the reasons why it is unknown."""
    seconds, runs = simulation.mean_seconds, simulation.runs
    plus_minus: float | None = None
    if not runs:
        reasons = simulation.unknown if seconds is None else ()
        plus_minus = simulation.plus_minus_seconds
    elif seconds is None:
        reasons = tuple(f"{run.name}: {why}" for run in runs if run.seconds is None for why in run.unknown)
    else:
        reasons = (f"mean over timing inputs {', '.join(run.name for run in runs)}",)
        # The errors of all runs have the same causes, so they do not average out.
        off = [run.plus_minus_seconds for run in runs if run.plus_minus_seconds is not None]
        plus_minus = statistics.fmean(off) if off else None
    return Latency(source="simulated", seconds=seconds, plus_minus_seconds=plus_minus, reasons=reasons)


def measured(samples: Samples, source: Literal["measured", "measured cpu"]) -> Latency:
    """The median of the device times, or of the host times if there are no device times; unknown without samples."""
    seconds = samples.device_seconds or samples.host_seconds
    clock = "device time from the profile" if samples.device_seconds else "host time around blocked calls"
    if not seconds:
        return Latency(source=source, seconds=None, plus_minus_seconds=None, reasons=("no samples",))
    return Latency(
        source=source,
        seconds=statistics.median(seconds),
        plus_minus_seconds=half_width_seconds(seconds),
        reasons=(f"median of {len(seconds)} samples of {clock} on {samples.device_kind}",),
    )


def half_width_seconds(seconds: tuple[float, ...]) -> float | None:
    """The larger distance from the median to an end of its 95 % interval, or None for fewer than six samples.

    The ends of the interval are the samples of ranks n/2 -+ 0.98 sqrt(n) (normal approximation of the binomial). This
    interval assumes nothing about the distribution of the samples.
    """
    count = len(seconds)
    if count < 6:
        return None
    ordered = sorted(seconds)
    reach = 0.98 * count**0.5
    low = ordered[max(0, int(count / 2 - reach))]
    high = ordered[min(count - 1, int(count / 2 + reach))]
    middle = statistics.median(ordered)
    return max(high - middle, middle - low)
