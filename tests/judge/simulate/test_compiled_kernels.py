"""Small kernels that the real compiler compiles for every chip, and what the simulator makes of them."""

import dataclasses
from pathlib import Path

import pytest
from narrowing import present
from refusals import refused
from simulated_examples import compiled

from harness import contest as contests
from harness.chips.row import Chip
from harness.dumps.llo import read_module
from harness.hardware import chip
from harness.judge.evaluate.compile.topology import described_device
from harness.judge.simulate.module import run_module
from harness.loop import scaffold
from harness.loop.bench import Bench
from harness.records import Simulation
from harness.sandbox import environment

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")

SUPPORT = Path(__file__).parents[2] / "support"
CHIPS = ("v4", "v5e", "v5p", "v6e", "v7x")


def simulated(kernel: str, name: str, folder: Path) -> Simulation:
    """The simulation of a kernel of compiled_kernels.py, compiled now for the chip of that name."""
    compiled(SUPPORT / "compiled_kernels.py", kernel, name, name=name, folder=folder / kernel)
    return run_module(read_module(folder / kernel / "dumps"), chip(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", CHIPS)
def test_the_cores_of_a_chip_share_the_steps_of_a_parallel_axis(name: str, tmp_path: Path) -> None:
    result = simulated("doubled", name, tmp_path)
    assert result.unknown == ()
    assert result.executed_steps == 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v4", "v7x"])
@pytest.mark.parametrize("template", ["matmul", "rmsnorm"])
def test_a_template_runs_each_step_of_its_grid_once(template: str, name: str, tmp_path: Path) -> None:
    scaffold.scaffold(tmp_path, template, (("CHIP", f'"{name}"'),))
    contest = contests.load(tmp_path)
    evidence = Bench(contest=contest, on="simulated", checked=False, reuses=False).judge(contest.candidate(), "work")
    steps = sum(call.steps for call in present(evidence.trace).pallas_calls)
    assert present(evidence.simulation).executed_steps == steps


@pytest.mark.slow
@pytest.mark.parametrize("name", CHIPS)
def test_the_only_result_lies_in_memory_that_was_handed_over(name: str, tmp_path: Path) -> None:
    copied, in_place = (
        present(simulated(kernel, name, tmp_path).hbm_written_bytes) for kernel in ("updated", "updated in place")
    )
    cache, rows = 2048 * 512 * 4, 256 * 512 * 4
    assert copied - in_place == pytest.approx(cache, rel=0.01)
    assert in_place < 2.1 * rows


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v5e", "v5p", "v6e", "v7x"])
def test_the_operations_of_a_row_maximum_are_known(name: str, tmp_path: Path) -> None:
    assert simulated("scaled", name, tmp_path).unknown == ()


def test_a_device_of_other_cores_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    single: Chip = dataclasses.replace(chip("v5p"), cores=1)
    for variable, value in environment.compiling(chip("v5p")).items():
        monkeypatch.setenv(variable, value)
    with refused("wrong-topology", "expected a device of 1 core"):
        described_device(single)
