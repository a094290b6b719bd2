"""Variations of a chip's nominal machine. Each changes an uncertain constant or reverses an uncertain rule.

docs/SIMULATOR.md states the origin of each constant. A gain must exist on all of these machines
(judge/verdict/compare_resimulated.py).
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from harness import chips
from harness.chips.row import Calibrated, Intervals
from harness.dumps.llo import Op, garbage_kept, read_module
from harness.dumps.timing_tables import Assumption
from harness.hardware import Chip
from harness.judge.simulate.functional_units import uses_of
from harness.judge.simulate.machine import Machine, machine_of
from harness.judge.simulate.module import mean_seconds, prepare, run_prepared
from harness.judge.simulate.uncertainty import LINK_WAITS
from harness.records import NOMINAL, OTHER_WAY

# Constants from the spacing of operations in the compiler's schedule, each with its fields of Machine. No published
# time confirms these constants, so the true values may differ by the factors in `_FACTORS`.
_READ_OFF = {
    "matmul_latency_cycles": ("matmul_latency_cycles",),
    "push_cycles, push_transposed_cycles": ("push_cycles", "push_transposed_cycles", "push_float32_transposed_cycles"),
    "xlu_cycles": ("xlu_cycles", "transpose_packed_cycles"),
    "xlu_latency_cycles": (
        "reduce_latency_cycles",
        "permute_latency_cycles",
        "transpose_latency_cycles",
        "transpose_packed_latency_cycles",
    ),
    "eup_latency_cycles": ("eup_latency_cycles",),
}
_FACTORS = (0.8, 1.2)
# Values that reverse two rules, which were also read off the compiler's spacing: the first half of a row pair goes to
# the weight port before the port is free, and a packed exponential occupies its unit for two cycles.
_RULES: Mapping[str, Any] = {"prep_early_cycles": 0, "eup_packed_cycles": 4}
# Published times show 86 to 95 % of a link's bandwidth (`Links` in harness/chips/row.py), and 0.75 or 1 us for a hop.
# These are times of permutations on two kinds of chip, and of an all-gather on a third kind.
_OF_LINKS = {"reached_share": (1 - LINK_WAITS, 1 + LINK_WAITS), "hop_seconds": (0.5, 2.0)}
# Fields that affect only how operations use their units.
_OF_UNITS = """
    matmul_rows_per_cycle matmul_slowdown matmul_queue narrow_rate matmul_results push_cycles push_transposed_cycles
    push_float32_cycles push_float32_transposed_cycles prep_early_cycles matmul_latency_cycles
    matmul_narrow_latency_cycles xlu_cycles transpose_packed_cycles reduce_latency_cycles permute_latency_cycles
    transpose_latency_cycles transpose_packed_latency_cycles third_xlu_early_cycles third_xlu_transpose_early_cycles
    eup_latency_cycles eup_packed_cycles
"""


@cache
def doubts(chip: Chip) -> Mapping[str, Machine]:
    """The variations of the chip's machine, each under a name that states the changed constant and the change.

    - Fitted constants are moved to the ends of their intervals (`Intervals` of the chip's row).
    - Constants from the compiler's schedules are moved by 20 % up and down.
    - The rules in `_RULES` are reversed.
    - For several chips, the constants of the links are moved too.
    - The clock is not moved, because it scales all cycles in the same way. Published constants are not moved either:
      the bandwidth, and the rows that a matrix unit takes in.
    """
    row, machine = chips.row(chip.name), machine_of(chip)
    calibrated = row.calibrated or Calibrated()
    machines = {}
    for field in fields(Intervals):
        for value in getattr(row.intervals, field.name):
            moved = replace(calibrated, **{field.name: value})
            shown = f"{1e9 * value:.4g} ns" if field.name.endswith("_seconds") else f"{value:.4g}"
            machines[f"{field.name} {shown}"] = machine_of(chip, moved)
    for constant, names in _READ_OFF.items():
        for factor in _FACTORS:
            machines[f"{constant} x{factor}"] = _scaled(machine, names, factor)
    for rule, cycles in _RULES.items():
        machines[f"{rule} {cycles}"] = replace(machine, **{rule: cycles})
    if chip.mesh and machine.links is not None:
        for field_name, factors in _OF_LINKS.items():
            for factor in factors:
                links = replace(machine.links, **{field_name: getattr(machine.links, field_name) * factor})
                machines[f"links: {field_name} x{factor}"] = replace(machine, links=links)
    # If an end of an interval is the nominal value, this end gives no variation.
    return {name: variant for name, variant in machines.items() if variant != machine}


def _scaled(machine: Machine, names: Iterable[str], factor: float) -> Machine:
    """The machine with these fields (cycles) multiplied by `factor` and rounded; each changes by at least one cycle."""
    moved: dict[str, Any] = {}
    for name in names:
        value = getattr(machine, name)
        rounded = round(value * factor)
        moved[name] = rounded if rounded != value else value + (1 if factor > 1 else -1)
    return replace(machine, **moved)


@garbage_kept()
def seconds_on(
    directory: Path, chip: Chip, *, names: Sequence[str], deadline_seconds: float = 600.0
) -> tuple[float | None, ...]:
    """The mean seconds of the module dumped in `directory`, on each of the named machines; None if unknown.

    A name is NOMINAL (the chip's machine), a name from `doubts`, or OTHER_WAY (the chip's machine with the opposite
    assumption about branches). The dump is read once and compiled once. `deadline_seconds` limits the time of all runs
    together on this computer. A run that does not end in this time gives None. Raises RatchetError `no-dump` if the
    folder has no schedule.
    """
    ends = time.monotonic() + deadline_seconds
    prepared = prepare(read_module(directory), chip)
    machine = machine_of(chip)
    kinds = [op for program in prepared.compiled.programs.values() for op in program.kinds]

    @cache
    def nominal() -> float | None:
        left = ends - time.monotonic()
        return run_prepared(prepared, deadline_seconds=left, with_lines=False).mean_seconds if left > 0 else None

    def seconds(name: str) -> float | None:
        changed = machine if name in (NOMINAL, OTHER_WAY) else doubts(chip)[name]
        left, assumed, module = ends - time.monotonic(), prepared.dump.assumption, prepared
        if name == OTHER_WAY and assumed is not None:
            turned: Assumption = "never" if assumed == "always" else "always"
            module = replace(prepared, dump=replace(prepared.dump, assumption=turned))
        elif _is_same(kinds, changed, machine):
            return nominal()
        return mean_seconds(module, changed, left) if left > 0 else None

    return tuple(map(seconds, names))


def _is_same(operations: Iterable[Op], changed: Machine, machine: Machine) -> bool:
    """True if the machines differ only in constants of units that do not affect a program of these operations."""
    differing = {
        field.name for field in fields(Machine) if getattr(changed, field.name) != getattr(machine, field.name)
    }
    if not differing <= set(_OF_UNITS.split()):
        return False
    return all(uses_of(op, changed) == uses_of(op, machine) for op in operations)
