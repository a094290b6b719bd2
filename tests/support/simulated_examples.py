"""Saved schedules, simulated, and the conditions that every result must satisfy."""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from narrowing import present
from schedule_examples import NEWEST, unpack

from harness.dumps.llo import Bundle, ModuleDump, Op, Schedule
from harness.hardware import chip
from harness.hlo.evaluation import Values
from harness.hlo.tables import Tables
from harness.judge import simulate
from harness.judge.simulate.core import run_cores
from harness.judge.simulate.machine import Machine
from harness.judge.simulate.runs import OpRun
from harness.records import Simulation
from harness.sandbox import environment

SMALL = "v5e-128x256-2048"
SMALL_STEPS = 16 * 8


def compiled(script: Path, *arguments: str, name: str, folder: Path, with_lines: bool = True) -> str:
    """The output of a script that compiles for the chip of that name; the compiler's dumps lie in `folder`/dumps."""
    work = folder / "work" / "compiler"
    work.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=work,
        env=environment.compiling(chip(name), with_lines=with_lines),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def run(
    case: str,
    tmp_path: Path,
    change: Callable[[str], str] | None = None,
    compiler: str = NEWEST,
    operands: Mapping[str, Values] | None = None,
) -> Simulation:
    """The saved case, simulated on its chip after `change`, with these contents of its operands."""
    return simulate.run(unpack(compiler, case, tmp_path, change), chip(case.split("-")[0]), operands=operands)


def run_op(schedule: Schedule, machine: Machine, deadline: float = float("inf")) -> OpRun:
    """The run of one HLO op's schedule, called once; `deadline` is a time.monotonic() value."""
    call = Op("", "inlined_call", note=f"%{schedule.name} = unknown()")
    top = Schedule(name="TLP", bundles=(Bundle(0, (call,), ()),))
    dump = ModuleDump(schedules=(schedule,), utilisations=(None,), top=top, hlo="", remarks=())
    (core,) = run_cores(dump, machine, Tables(dump.module), deadline)
    return core.ops[0]


def assert_possible(result: Simulation) -> None:
    """No unit beyond its slots or its time, no bytes above the bandwidth, and parts that sum to the total."""
    seconds, breakdown = present(result.seconds), present(result.breakdown)
    parts = result.bundle_cycles + result.dma_wait_cycles + result.unit_stall_cycles + result.launch_cycles
    assert parts == result.cycles
    assert min(result.dma_wait_cycles, result.unit_stall_cycles, result.launch_cycles) >= 0
    assert seconds == present(result.cycles) / result.clock_hz
    assert breakdown.cycles == result.cycles
    assert sum(line.cycles for line in breakdown.lines) == result.cycles
    for unit in result.units:
        assert 0 <= unit.executed_slots <= unit.offered_slots, unit.name
        assert unit.busy_cycles is None or unit.busy_cycles <= present(result.cycles)
    hardware = chip(result.chip)
    assert present(result.mxu_flops) <= hardware.peak_bf16_flops_per_second * seconds
    moved = result.hbm_read_bytes + result.hbm_written_bytes
    assert moved <= hardware.hbm_bytes_per_second * seconds


def longer(factor: int) -> Callable[[str], str]:
    """Multiplies the number of grid steps in the SMALL kernel's schedule."""
    steps = SMALL_STEPS

    def change(text: str) -> str:
        # The grid loop runs steps + 2 times; a larger number of query blocks makes it run longer.
        for offset in (0, 1, 2):
            text = re.sub(
                rf"(scmp\.\w\w\.s32\.totalorder %s\d+_s\d+), {steps + offset}\b",
                rf"\1, {steps * factor + offset}",
                text,
            )
        text = re.sub(rf"(scmp\.eq\.s32\.totalorder %s\d+_s\d+), {steps - 1}\b", rf"\1, {steps * factor - 1}", text)
        return re.sub(r"(scmp\.ge\.s32\.totalorder %s\d+_s\d+), 16\b", rf"\1, {16 * factor}", text)

    return change
