"""Machines that a chip might be instead of the one that is believed: constants moved, and rules taken the other way.

No published time settles these constants: docs/SIMULATOR.md says where each comes from. FIDELITY.md
shows what moving them does to published kernels. A gain must be there on all of them: see
judge/verdict/compare_resimulated.py.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from harness.dumps.llo import Op, garbage_kept, read_module
from harness.hardware import Chip
from harness.judge.simulate.functional_units import uses_of
from harness.judge.simulate.machine import Machine, machine_of
from harness.judge.simulate.module import mean_seconds, prepare, run_prepared
from harness.records import NOMINAL

Change = Callable[[Machine], Machine]

# Every number of the machine that is neither read off the schedules' text nor a count of something,
# and the fields that are one constant.
CONSTANTS = {
    "clock_hz": ("clock_hz",),
    "hbm_bytes_per_cycle": ("hbm_bytes_per_cycle",),
    "dma_latency_cycles": ("dma_latency_cycles", "dma_write_latency_cycles"),
    "transfer_cycles": ("transfer_cycles",),
    "wait_cycles": ("wait_cycles",),
    "matmul_rows_per_cycle": ("matmul_rows_per_cycle",),
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
FACTORS = (0.8, 1.2)
# Fields that act on nothing but what an operation does to its unit.
_OF_UNITS = (
    "matmul_rows_per_cycle",
    "matmul_slowdown",
    "matmul_queue",
    "narrow_rate",
    "matmul_results",
    "push_cycles",
    "push_transposed_cycles",
    "push_float32_cycles",
    "push_float32_transposed_cycles",
    "prep_early_cycles",
    "matmul_latency_cycles",
    "matmul_narrow_latency_cycles",
    "xlu_cycles",
    "transpose_packed_cycles",
    "reduce_latency_cycles",
    "permute_latency_cycles",
    "transpose_latency_cycles",
    "transpose_packed_latency_cycles",
    "third_xlu_early_cycles",
    "third_xlu_transpose_early_cycles",
    "eup_latency_cycles",
    "eup_packed_cycles",
)


def scaled(names: tuple[str, ...], factor: float) -> Change:
    """Multiplies these fields."""

    def change(machine: Machine) -> Machine:
        values = {name: getattr(machine, name) for name in names}
        # Cycles are whole, and a constant of 4 has to move too.
        moved: dict[str, Any] = {
            name: value + (round(value * factor) - value or (1 if factor > 1 else -1))
            if name.endswith("_cycles")
            else value * factor
            for name, value in values.items()
        }
        return replace(machine, **moved)

    return change


def _setting(name: str, value: float) -> Change:
    changed: dict[str, Any] = {name: value}
    return lambda machine: replace(machine, **changed)


def _other_shares(machine: Machine) -> Machine:
    """HBM at all of its bandwidth where reads and writes are believed to reach less; else as on v6e."""
    if machine.hbm_read_share < 1 or machine.hbm_write_share < 1:
        return replace(machine, hbm_read_share=1.0, hbm_write_share=1.0)
    return replace(machine, hbm_read_share=0.90, hbm_write_share=0.82)


def _other_slowdown(machine: Machine) -> Machine:
    """Matmuls that take as long as their rows where a stream of them is believed to be slower; else as on v5e."""
    return replace(machine, matmul_slowdown=1.0 if machine.matmul_slowdown > 1 else 33 / 32)


# Each constant 20 % both ways, and the rule that is not known to a factor: that the first half of a row pair waits
# until the weight port is free, which the compiler's own spacing does not have it do.
VARIANTS: dict[str, Change] = {
    f"{constant} x{factor}": scaled(names, factor) for constant, names in CONSTANTS.items() for factor in FACTORS
}
VARIANTS["prep_early_cycles 0"] = _setting("prep_early_cycles", 0)

# The clock scales all cycles alike, and the rows per cycle follow from published peaks: neither is in doubt. What is
# calibrated per chip (how much of HBM's bandwidth is reached, how much slower a stream of matmuls is) is doubted as a
# whole. Transfers are fitted to few kernels; other accounts of their cost and latency come to a tenth and to half.
DOUBTS: dict[str, Change] = {
    **{
        name: change
        for name, change in VARIANTS.items()
        if not name.startswith(("clock_hz", "matmul_rows", "hbm_bytes", "dma_latency", "transfer"))
    },
    # A packed exponential keeps its unit for two cycles, by the compiler's spacing alone; four is the other guess.
    "eup_packed_cycles 4": _setting("eup_packed_cycles", 4),
    "hbm_bytes_per_cycle x0.9": scaled(("hbm_bytes_per_cycle",), 0.9),
    "hbm_read_share, hbm_write_share the other way": _other_shares,
    # No cause is known for it, nor why v5p has none: the other of the two, and twice as much.
    "matmul_slowdown the other way": _other_slowdown,
    "matmul_slowdown 17/16": _setting("matmul_slowdown", 17 / 16),
    # What one transfer moves alone is known of v7x only: as fast as the way is wide, and half as fast.
    "transfer_bytes_per_cycle x0.5": scaled(("transfer_bytes_per_cycle",), 0.5),
    "transfer_bytes_per_cycle x4": scaled(("transfer_bytes_per_cycle",), 4),
    "dma_latency_cycles x0.5": scaled(("dma_latency_cycles", "dma_write_latency_cycles"), 0.5),
    "transfer_cycles x0.1": scaled(("transfer_cycles",), 0.1),
    # What was believed before kernels with thousands of transfers were compared.
    "transfer_cycles x10": scaled(("transfer_cycles",), 10),
}


@garbage_kept()
def seconds_on(
    directory: Path, chip: Chip, *, names: Sequence[str] = (NOMINAL, *DOUBTS), deadline_seconds: float = 600.0
) -> tuple[float | None, ...]:
    """The module dumped in `directory` on the chip's machine (`nominal`) or changed as these of DOUBTS say.

    The dump is read once, and compiled once. `deadline_seconds` of this machine's time are for all runs together;
    what is not done by then has no seconds. Raises RatchetError `no-dump` where the folder holds no schedule.
    """
    ends = time.monotonic() + deadline_seconds
    prepared = prepare(read_module(directory), chip)
    machine = machine_of(chip)
    kinds = [op for program in prepared.compiled.programs.values() for op in program.kinds]

    @cache
    def nominal() -> float | None:
        left = ends - time.monotonic()
        if left <= 0:
            return None
        return run_prepared(prepared, deadline_seconds=left, with_lines=False).mean_seconds

    def seconds(name: str) -> float | None:
        changed = machine if name == NOMINAL else DOUBTS[name](machine)
        if _is_same(kinds, changed, machine):
            return nominal()
        left = ends - time.monotonic()
        return mean_seconds(prepared, changed, left) if left > 0 else None

    return tuple(map(seconds, names))


def _is_same(operations: Iterable[Op], changed: Machine, machine: Machine) -> bool:
    """Whether a program of these operations cannot tell the two machines apart: it lacks what has changed."""
    differing = {
        field.name for field in fields(Machine) if getattr(changed, field.name) != getattr(machine, field.name)
    }
    if not differing <= set(_OF_UNITS):
        return False
    return all(uses_of(op, changed) == uses_of(op, machine) for op in operations)
