"""Bounds on simulated times at the rates that the simulator lets pass, which are below the published peaks.

The simulator's HBM moves a calibrated share of the published bandwidth, and its matrix units multiply at the rate of
the compiler's schedule, slowed by a calibrated factor (judge/simulate/machine.py). No simulated kernel is faster, so
a gain up to the published peaks would be a promise that no attempt can keep.
"""

import math
import re
from typing import TYPE_CHECKING

from harness.hardware import Chip, with_mesh
from harness.judge.verdict import roofline
from harness.judge.verdict.roofline import finished_run
from harness.records import Array, Evidence, Report, Statement, Work
from harness.units import percent

if TYPE_CHECKING:
    from harness.judge.simulate.machine import Machine

LIMIT = "what the simulator lets pass"
# A sentence gives both shares of the time if they differ by at least this much.
_NOTABLE = 0.01


def hbm_share(read: float, written: float, chip: Chip) -> float:
    """The share of the published bandwidth that the simulator lets pass, for these bytes."""
    if chip.platform != "tpu" or not read + written:
        return 1.0
    machine = _machine(chip)
    return (read + written) / (read / machine.hbm_read_share + written / machine.hbm_write_share)


def matmul_share(chip: Chip) -> float:
    """The share of the published peak of matmuls that the simulator's matrix units reach; never above 1."""
    if chip.platform != "tpu":
        return 1.0
    machine = _machine(chip)
    flops_per_cycle = 2 * machine.mxu_size**2 * machine.matmul_rows_per_cycle * machine.mxus * machine.cores
    most = flops_per_cycle * machine.clock_hz / machine.matmul_slowdown
    return min(1.0, most / chip.peak_bf16_flops_per_second)


def least_seconds(problem: Statement, chip: Chip, report: Report | None = None) -> float:
    """The least simulated time of the useful work and the least traffic of `problem`; never below the published floor.

    For a suite, the weighted geometric mean of its members' least times. `report` is about a kernel for `problem`.
    """
    floor = roofline.floor_of(problem.work, with_mesh(chip, problem.mesh), None)
    if problem.members:
        return max(floor.seconds, problem.mean(least_seconds(member.statement, chip) for member in problem.members))
    memory_seconds = floor.memory_seconds / _share_of_least_traffic(problem, chip)
    return max(floor.seconds, memory_seconds, matmul_seconds(problem.work, chip, report))


def matmul_seconds(work: Work, chip: Chip, report: Report | None) -> float:
    """The time of the useful matmuls at the rate of the simulator's units.

    A record of an older simulator, whose units were faster, shows it: they did this work in less time.
    """
    least = work.matmul_flops / roofline.peak(work, chip) / matmul_share(chip)
    units = {unit.name: unit.used_fraction for unit in report.units} if report else {}
    busy = units.get("MXU", 0.0) * ((report.seconds if report else None) or 0.0)
    return min(least, busy) if busy else least


def compute_seconds(evidence: Evidence, report: Report, chip: Chip) -> float:
    """The compute-only time; for a simulated latency, no less than the useful matmuls take in the simulator."""
    if report.source != "simulated":
        return report.compute_only_seconds
    return max(report.compute_only_seconds, matmul_seconds(evidence.problem.work, chip, report))


def memory_seconds(evidence: Evidence, report: Report, chip: Chip) -> float:
    """The time of the kernel's own traffic: at full bandwidth, or at what the simulator lets pass; 0 if unknown."""
    run = finished_run(evidence) if report.source == "simulated" else None
    share = hbm_share(run.hbm_read_bytes, run.hbm_written_bytes, chip) if run else 1.0
    return (report.memory_only_seconds or 0.0) / share


def passing_gap(evidence: Evidence, report: Report, chip: Chip) -> float | None:
    """The gap as a share of the time, at the rates that the simulator lets pass.

    None if the latency is not simulated, or if the published gap is not known. A suite has no gap.
    """
    if report.source != "simulated" or report.gap_fraction is None or not report.seconds:
        return None
    links = report.communication.floor_seconds if report.communication else 0.0
    least = max(compute_seconds(evidence, report, chip), memory_seconds(evidence, report, chip), links)
    return max(0.0, 1 - least / report.seconds)


def room_words(published: float, passing: float, floor: str = "roofline") -> str:
    """`15.4% of the time is left above the roofline`, and how much of it the simulator lets a kernel gain, if less."""
    words = f"{percent(published)} of the time is left above the {floor}"
    return f"{words}, {percent(passing)} above {LIMIT}" if differ(published, passing) else words


def above_limit(published: float | None, passing: float | None, words: str = f"above {LIMIT}") -> str:
    """`4.1% above what the simulator lets pass`, or the share with other `words`.

    "" if this share is unknown or not notably below the published.
    """
    if published is None or passing is None or passing > published or not differ(published, passing):
        return ""
    return f"{percent(passing)} {words}"


def differ(published: float, passing: float) -> bool:
    """True if a share of the time by published peaks and the share by the simulator's rates are notably different."""
    return abs(published - passing) >= _NOTABLE


def _share_of_least_traffic(problem: Statement, chip: Chip) -> float:
    """`hbm_share` of the least traffic; if reads and writes are not known apart, the share of the faster of the two."""
    read, written = (sum(_bytes(problem, array) for array in each) for each in (problem.inputs, problem.outputs))
    if round(read + written) == problem.work.minimum_hbm_bytes:
        return hbm_share(read, written, chip)
    return max(hbm_share(1, 0, chip), hbm_share(0, 1, chip))


def _bytes(problem: Statement, array: Array) -> float:
    bits = re.search(r"\d+", array.dtype)
    return math.prod(problem.shard(array)) * (int(bits[0]) if bits else 8) / 8


def _machine(chip: Chip) -> "Machine":
    # The simulator loads NumPy, which `next --help` does not need.
    from harness.judge.simulate.machine import machine_of

    return machine_of(chip)
