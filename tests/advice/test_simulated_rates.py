"""Bounds on gains at the rates that the simulator lets pass, which are below the published peaks."""

from dataclasses import replace

import pytest
from narrowing import present
from rule_examples import good, on_chip, rowwise, with_run, with_slots
from state_examples import row, seen

from harness.advice import diagnose
from harness.advice.report import report
from harness.advice.simulated_rates import hbm_share, least_seconds, matmul_share
from harness.hardware import TPUS, chip
from harness.loop.search_state import search_state
from harness.operators import RMSNorm
from harness.records import Evidence, Hint
from harness.units import percent
from harness.verbs.simulate import _floor

V6E, V7X = chip("v6e"), chip("v7x")


def norm(chip_name: str, seconds: float) -> Evidence:
    """A kernel that adds two rows and normalises them: one kernel, the least traffic, half of it writes."""
    base = on_chip(chip_name, rowwise(seconds))
    return with_run(base, hbm_read_bytes=2 * 8192 * 4096, hbm_written_bytes=2 * 8192 * 4096)


def advice(kernel: Evidence) -> tuple[Hint, ...]:
    return diagnose.hints(kernel, report(kernel, chip(kernel.chip)))


def test_reads_and_writes_pass_at_their_own_shares() -> None:
    assert hbm_share(1, 0, V6E) == pytest.approx(0.9)
    assert hbm_share(1, 1, V6E) == pytest.approx(2 / (1 / 0.9 + 1 / 0.82))
    assert hbm_share(1, 1, V7X) == pytest.approx(2 / (1 + 1 / 0.67))
    assert hbm_share(0, 0, V6E) == hbm_share(1, 1, chip("h100")) == matmul_share(chip("h100")) == 1


def test_the_matrix_units_of_no_simulated_chip_exceed_the_published_peak() -> None:
    assert {name.name for name in TPUS if not 0.8 < matmul_share(name) <= 1} == set()
    # 2 x 256^2 FLOPs a row, 2 rows a cycle on 2 units at 1.9 GHz, each matmul 33/32 as long: 966 of 1153.5 TFLOP/s.
    assert matmul_share(V7X) == pytest.approx(0.8374, abs=1e-4)


@pytest.mark.parametrize(("target", "share"), [(V6E, 0.858), (V7X, 0.802)])
def test_a_kernel_at_all_that_passes_is_not_told_to_use_idle_bandwidth(target: object, share: float) -> None:
    name = "v6e" if target is V6E else "v7x"
    least = least_seconds(norm(name, 1.0).problem, chip(name))
    hint, *others = advice(norm(name, least / 0.99))
    assert (hint.rule, hint.kind, others) == ("memory floor", "", [])
    assert present(hint.gain) == pytest.approx(0.01, abs=1e-3)
    assert hint.gain_source.startswith("what the simulator lets pass; published roofline: ")
    assert f" at {percent(0.99 * share, 0)[:2]}" in hint.observation
    assert "(99.0% of what the simulator lets pass)" in hint.observation


def test_idle_bandwidth_is_what_the_simulator_leaves() -> None:
    kernel = norm("v7x", least_seconds(norm("v7x", 1.0).problem, V7X) / 0.6)
    figures = report(kernel, V7X)
    assert present(figures.bandwidth_util) == pytest.approx(0.481, abs=1e-3)
    (hint,) = (each for each in advice(kernel) if each.rule == "idle bandwidth")
    assert "memory-bound at 48.1% of the bandwidth (60.0% of what the simulator lets pass)" in hint.observation
    # Half of the idle 40 %, the weight of this rule.
    assert hint.ranked_by == pytest.approx(0.2, abs=1e-3)


def test_a_measured_time_is_held_against_the_published_peaks() -> None:
    kernel = norm("v6e", 0.1e-3)
    figures = report(kernel, V6E)
    simulated = diagnose.observe(kernel, figures, 0.1e-3)
    measured = replace(simulated, report=replace(figures, source="measured"))
    assert measured.room == measured.published_room == simulated.published_room > simulated.room
    assert measured.transfer_share == pytest.approx(present(figures.bandwidth_util))


def test_matmuls_near_the_simulators_rate_end_the_search() -> None:
    base = with_slots(on_chip("v7x", good()), MXU=0.96)
    least = least_seconds(base.problem, V7X)
    kernel = replace(base, latency=replace(present(base.latency), seconds=least / 0.957))
    seen_kernel = diagnose.observe(kernel, report(kernel, V7X), least / 0.957)
    assert seen_kernel.room == pytest.approx(0.043, abs=1e-3)
    assert seen_kernel.published_room > 0.15
    assert advice(kernel)[0].rule == "saturated"
    assert "% of what the simulator lets pass): compute-bound" in advice(kernel)[0].observation


def test_next_stops_if_the_simulator_lets_no_more_pass() -> None:
    problem = RMSNorm(rows=8192, columns=4096).statement()
    time = least_seconds(problem, V6E) / 0.99
    champion = row(1, "accept", time, chip="v6e", source="simulated")
    state = search_state(seen([champion], {}, problem=problem, chip=V6E, advice=()))
    assert state.advice.do == "stop"
    assert (
        "1.0% of the time is left above what the simulator lets pass, 15.0% above the memory floor of"
        in state.advice.sentence
    )


def test_simulate_holds_its_floor_against_what_passes() -> None:
    run = present(norm("v6e", 0.1e-3).simulation)
    seconds = (run.hbm_read_bytes + run.hbm_written_bytes) / V6E.hbm_bytes_per_second / 0.846
    floor, rest = _floor(replace(run, units=(), links=()), seconds, 1000.0)
    assert "98.6% (HBM: its bytes at 85.8% of the bandwidth, what the simulator lets pass; at full" in floor
    assert floor.endswith("bandwidth 84.6%)")
    assert "1.4% (all that a better schedule" in rest
