"""Tables that lie beside a dump: the schedule is executed with each set of them, and the latency is their mean."""

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evidence_examples import evidence, simulation
from narrowing import present
from schedule_examples import NEWEST, unpack

from harness.dumps import timing_tables
from harness.dumps.llo import read_module
from harness.errors import RatchetError
from harness.hardware import chip
from harness.hlo import parse
from harness.hlo.evaluation import Values
from harness.hlo.tables import Tables
from harness.judge import simulate
from harness.judge.evaluate.reach import work_not_done
from harness.judge.evaluate.timing import latency
from harness.judge.simulate import machine_variants
from harness.judge.simulate.module import run_module
from harness.judge.verdict.compare_simulated import uncertainty
from harness.records import NOMINAL, TimedRun

pytestmark = pytest.mark.long

# A kernel whose grid loop runs as often as its table of counts says.
CASE, COUNTS = "v5e-counted-1024", np.array([3, 0, 1, 2, 0, 4, 5, 1], np.int32)


def timed(seconds: float | None, **changes: float) -> TimedRun:
    fields = {"plus_minus_seconds": 0.02 * (seconds or 1), "relative_uncertainty": 0.02, "hbm_bytes": 100}
    return TimedRun(name=f"at {seconds}", seconds=seconds, mxu_flops=10, **{**fields, **changes})  # type: ignore[arg-type]


def test_what_is_written_beside_a_dump_is_read_again(tmp_path: Path) -> None:
    tables: dict[int, Values] = {0: np.array([[1, -2], [3, 4]], np.int32), 2: np.zeros((0,), np.int16)}
    timing_tables.write(tmp_path, (timing_tables.timing_tables("balanced", tables),))
    (call,) = timing_tables.read(tmp_path)
    assert call.name == "balanced"
    for position, values in tables.items():
        assert np.array_equal(call.arguments[position], values)
        assert call.arguments[position].dtype == values.dtype
    timing_tables.write(tmp_path / "none", ())
    assert timing_tables.read(tmp_path / "none") == ()
    next(tmp_path.glob("*.json")).write_text("[{}]")
    with pytest.raises(RatchetError, match="cannot be read"):
        timing_tables.read(tmp_path)


def test_an_argument_is_known_by_its_position_and_a_parameter_of_a_fusion_is_not() -> None:
    hlo = """HloModule m

%fused (p: s32[2]) -> s32[2] {
  ROOT %p = s32[2]{0} parameter(0)
}

ENTRY %main (x: f32[2], y: s32[2]) -> s32[2] {
  %x = f32[2]{0} parameter(0)
  %y = s32[2]{0:T(128)} parameter(1)
  %unknown = s32[2]{0} custom-call()
  ROOT %z = s32[2]{0} fusion(%unknown), kind=kLoop, calls=%fused
}
"""
    tables = Tables(parse.read(hlo), {0: np.array([5, 6], np.int32), 1: np.array([7, 8], np.int32)})
    assert tables.words("y") == (7, 8, *[0] * 126)
    assert tables.values("z") is None


def test_the_mean_over_timing_inputs_is_judged() -> None:
    run = simulation(1e-3, runs=(timed(1e-3), timed(3e-3, hbm_bytes=300, relative_uncertainty=0.05)))
    result = latency.simulated(run)
    assert result.seconds == pytest.approx(2e-3)
    assert result.plus_minus_seconds == pytest.approx(0.04e-3)
    assert "at 0.001, at 0.003" in result.reasons[0]
    assert (run.mean_hbm_bytes, run.mean_mxu_flops) == (200, 10)
    assert not work_not_done(run, 10)
    assert work_not_done(run, 11)[0].kind == "work-not-done"
    # Their errors have the same sign, so the mean is as uncertain as the worst of them.
    assert uncertainty(evidence(simulation=run), evidence()) == 0.05


def test_one_run_without_a_latency_leaves_none() -> None:
    skewed = replace(
        timed(None), name="skewed", plus_minus_seconds=None, mxu_flops=None, unknown=("it waits for ever",)
    )
    result = latency.simulated(simulation(1e-3, runs=(timed(1e-3), skewed)))
    assert (result.seconds, result.reasons) == (None, ("skewed: it waits for ever",))


def test_the_schedule_is_executed_with_each_set(tmp_path: Path) -> None:
    directory = unpack(NEWEST, CASE, tmp_path)
    entry = read_module(directory).hlo.rpartition("ENTRY ")[2]
    position = int(re.findall(r"%given_1_\.1 = .*? parameter\((\d+)\)", entry)[0])
    alone = [simulate.run(directory, chip("v5e"), operands={"given_1_.1": times * COUNTS}) for times in (1, 2)]
    sets = [timing_tables.timing_tables(f"times {times}", {position: times * COUNTS}) for times in (1, 2)]
    timing_tables.write(directory, sets)
    simulation = simulate.run(directory, chip("v5e"))
    assert [run.name for run in simulation.runs] == ["times 1", "times 2"]
    assert [run.seconds for run in simulation.runs] == [run.seconds for run in alone]
    assert simulation.seconds == alone[0].seconds
    seconds = [run.seconds for run in alone if run.seconds is not None]
    assert seconds[0] < seconds[1]
    assert math.isclose(present(simulation.mean_seconds), sum(seconds) / 2)
    # A gain is tested with the same mean on other machines.
    machines = machine_variants.doubts(chip("v5e"))
    doubts = [doubt for doubt in machines if doubt.startswith(("transfer_seconds", "wait_seconds"))]
    assert len(doubts) == 4
    nominal, *others = machine_variants.seconds_on(directory, chip("v5e"), names=(NOMINAL, *doubts))
    assert nominal == simulation.mean_seconds
    dump = read_module(directory)
    for doubt, other in zip(doubts, others, strict=True):
        assert run_module(dump, chip("v5e"), machine=machines[doubt]).mean_seconds == other != nominal, doubt
