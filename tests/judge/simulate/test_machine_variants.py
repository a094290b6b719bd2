"""A simulated gain has to be there on every machine that the chip might be: the verdict, the runs, the dumps."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
from evidence_examples import V5E, evidence, resimulated
from narrowing import present
from refusals import assert_failed
from schedule_examples import NEWEST, unpack

from harness import chips
from harness.advice.report import report
from harness.chips.row import Calibrated, Intervals
from harness.dumps import timing_tables
from harness.dumps.llo import read_module
from harness.hardware import chip, with_mesh
from harness.judge.evaluate.timing import resimulation
from harness.judge.simulate import machine_variants
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.module import run_module
from harness.judge.verdict.decision import decide, is_simulated_gain
from harness.records import (
    NOMINAL,
    OTHER_WAY,
    Array,
    Evidence,
    Failure,
    Offence,
    OffenceKind,
    Policy,
    Resimulation,
    Work,
)

pytestmark = pytest.mark.long

CHAMPION, CANDIDATE = evidence(2.16e-3), evidence(1.9e-3)
MACHINES = NOMINAL, *machine_variants.doubts(V5E)
TRACE, LATENCY, SIMULATION = present(CANDIDATE.trace), present(CANDIDATE.latency), present(CANDIDATE.simulation)


def judged(again: tuple[Resimulation, ...], candidate: Evidence = CANDIDATE) -> tuple[str, str]:
    verdict = decide(candidate, CHAMPION, None, Policy(), V5E, resimulated=again)
    if verdict.failure is None:
        assert verdict.resimulated == again
    return verdict.outcome, " ".join(verdict.reasons)


def test_a_gain_on_every_machine_is_accepted_and_the_worst_is_named() -> None:
    outcome, reason = judged(resimulated(CANDIDATE, CHAMPION, eager_pushes=0.97))
    assert outcome == "accept"
    assert (
        "any size suffices); the smallest gain, 3.0% less time, is under eager_pushes: 1.886 ms against 1.944 ms"
        in reason
    )


@pytest.mark.parametrize(("ratio", "outcome"), [(0.999, "accept"), (1.0, "inconclusive"), (1.05, "inconclusive")])
def test_a_gain_that_one_constant_takes_away_is_inconclusive(ratio: float, outcome: str) -> None:
    got, reason = judged(resimulated(CANDIDATE, CHAMPION, fast_transfers=ratio))
    assert got == outcome
    assert ("depends on an uncertain constant" in reason) == (outcome == "inconclusive")
    assert "fast_transfers" in reason


@pytest.mark.parametrize(
    ("again", "words"),
    [
        ((), "were not simulated again"),
        (resimulated(CANDIDATE, CHAMPION)[:1], "were not simulated again"),
        (resimulated(CANDIDATE, CHAMPION)[1:], "were not simulated again"),
        (resimulated(CANDIDATE, CHAMPION, slow_transfers=None), "is unknown: simulated again, one of the two"),
        (resimulated(CANDIDATE, CHAMPION, slow_transfers=float("nan")), "depends on an uncertain constant"),
        (resimulated(CANDIDATE, CHAMPION, nominal=0.8), "not those of the judged program"),
        (resimulated(CANDIDATE, evidence(2.5e-3)), "the champion takes 2.500 ms instead of the judged 2.160 ms"),
    ],
)
def test_without_sound_runs_no_gain_is_accepted(again: tuple[Resimulation, ...], words: str) -> None:
    outcome, reason = judged(again)
    assert outcome == "inconclusive"
    assert words in reason


def test_a_gain_that_the_assumption_alone_makes_is_inconclusive() -> None:
    outcome, reason = judged((*resimulated(CANDIDATE, CHAMPION), *_other_way(1.02)))
    assert outcome == "inconclusive"
    assert "depends on the contest's assumption on branches (ASSUME)" in reason
    assert judged((*resimulated(CANDIDATE, CHAMPION), *_other_way(0.99)))[0] == "accept"


def _other_way(ratio: float) -> tuple[Resimulation, ...]:
    *_, run = resimulated(CANDIDATE, CHAMPION, eager_pushes=ratio)
    return (replace(run, name=OTHER_WAY),)


def test_branches_are_taken_the_other_way_where_they_were_assumed(tmp_path: Path) -> None:
    names, plain = (NOMINAL, OTHER_WAY), unpack(NEWEST, "v5e-1024x512-2048", tmp_path / "plain")
    nominal, other = machine_variants.seconds_on(plain, V5E, names=names)
    assert nominal == other is not None
    dumps = unpack(NEWEST, "v5e-converged-1024", tmp_path / "converged")
    timing_tables.write_assumption(dumps, "always")
    most, least = machine_variants.seconds_on(dumps, V5E, names=names)
    timing_tables.write_assumption(dumps, "never")
    assert machine_variants.seconds_on(dumps, V5E, names=names) == (least, most)
    assert present(least) < present(most)


def test_only_a_gain_is_worth_the_runs() -> None:
    def is_gain(candidate: Evidence, champion: Evidence = CHAMPION) -> bool:
        return is_simulated_gain(candidate, champion, Policy(), V5E)

    assert is_gain(CANDIDATE)
    assert not is_gain(CHAMPION)
    assert not is_gain(evidence(None))
    assert not is_gain(CANDIDATE, evidence(None))
    assert not is_gain(replace(CANDIDATE, checks=()))
    assert not is_gain(replace(CANDIDATE, failure=Failure(stage="static", kind="no-pallas", message="none")))
    assert not is_gain(replace(CANDIDATE, latency=replace(LATENCY, source="measured")))


@pytest.mark.parametrize("kind", ["transfer-pending", "semaphore-not-zero", "chip-halts", "memory-nobody-wrote"])
def test_what_goes_wrong_where_the_schedule_is_executed_fails(kind: OffenceKind) -> None:
    offence = Offence(kind=kind, op="naive.1", what="what is wrong", line="kernel.py:3", count=2)
    wrong = replace(CANDIDATE, simulation=replace(SIMULATION, offences=(offence,)))
    verdict = decide(wrong, None, None, Policy(), V5E)
    assert_failed(verdict.failure, "latency", kind, "what is wrong in naive.1 at kernel.py:3 (2 times)")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("check-unknown", "the simulator cannot tell whether the chip halts: what it is in naive.1 at kernel.py:7"),
        (
            "transfer-raced",
            "the executed schedule and the interpreter disagree: the schedule has what it is in naive.1",
        ),
    ],
)
def test_what_only_the_schedule_shows_leaves_doubt(kind: OffenceKind, words: str) -> None:
    offence = Offence(kind=kind, op="naive.1", what="what it is", line="kernel.py:7")
    unsure = replace(CANDIDATE, simulation=replace(SIMULATION, offences=(offence,)))
    verdict = decide(unsure, None, None, Policy(), V5E)
    assert verdict.outcome == "inconclusive"
    assert words in " ".join(verdict.reasons)


@pytest.mark.slow
def test_a_pair_is_simulated_under_every_doubt(tmp_path: Path) -> None:
    """Runs have their own processes; a change that cannot affect a program is not run, and gets its nominal time."""
    two, single = (unpack(NEWEST, f"v5e-1024x512-2048{kind}", tmp_path / f"dumps{kind}") for kind in ("", "-single"))
    runs = resimulation.run(single, two, chip("v5e"), Policy(), MACHINES, machine_variants.seconds_on)
    assert not isinstance(runs, Failure), runs
    assert tuple(run.name for run in runs) == MACHINES
    dumps = read_module(single), read_module(two)
    machines = {NOMINAL: machine_of(V5E), **machine_variants.doubts(V5E)}
    for run in runs:
        again = [run_module(dump, V5E, machine=machines[run.name]).seconds for dump in dumps]
        assert again == [run.champion_seconds, run.candidate_seconds], run.name
    # A single buffer loses the time of its waits for transfers: less if they arrive sooner.
    ratios = {run.name: run.time_ratio for run in runs}
    lowest = next(name for name in MACHINES if name.startswith("dma_latency_seconds"))
    nominal, faster = ratios[NOMINAL], ratios[lowest]
    assert present(nominal) < present(faster)
    assert len({run.champion_seconds for run in runs}) > 5


def test_runs_that_are_not_done_in_time_have_no_seconds(tmp_path: Path) -> None:
    dumps = unpack(NEWEST, "v5e-128x256-2048", tmp_path / "dumps")
    assert set(machine_variants.seconds_on(dumps, V5E, names=MACHINES, deadline_seconds=0.0)) == {None}


def test_dumps_that_are_not_there_are_a_failure(tmp_path: Path) -> None:
    reply = resimulation.run(tmp_path / "none", tmp_path / "none", V5E, Policy(), MACHINES, machine_variants.seconds_on)
    assert isinstance(reply, Failure)
    assert reply.kind == "no-dump"


@pytest.mark.parametrize("name", ["v4", "v5e", "v5p", "v6e", "v7x"])
def test_fitted_constants_are_doubted_to_the_ends_of_their_intervals(name: str) -> None:
    """No end is lost to rounding, and nothing else moves with it."""
    row, machine, doubts = chips.row(name), machine_of(chip(name)), machine_variants.doubts(chip(name))
    calibrated = row.calibrated or Calibrated()
    assert [field.name for field in fields(Intervals)] == [field.name for field in fields(Calibrated)]
    for field in fields(Intervals):
        low, high = getattr(row.intervals, field.name)
        value = getattr(calibrated, field.name)
        assert low <= value <= high, field.name
        moved = [doubt for doubt in doubts if doubt.startswith(f"{field.name} ")]
        assert len(moved) == (low < value) + (value < high), field.name
        for doubt in moved:
            other = doubts[doubt]
            changed = [
                part.name for part in fields(machine) if getattr(other, part.name) != getattr(machine, part.name)
            ]
            assert changed == [field.name.replace("_seconds", "_cycles")]


@pytest.mark.parametrize("name", ["v4", "v5e", "v5p", "v6e", "v7x"])
def test_what_was_read_off_schedules_is_doubted_both_ways(name: str) -> None:
    machine, doubts = machine_of(chip(name)), machine_variants.doubts(chip(name))
    for constant in (f"{name}_cycles" for name in ("matmul_latency", "push", "xlu", "permute_latency", "eup_latency")):
        values = [getattr(doubt, constant) for doubt in doubts.values()]
        today = getattr(machine, constant)
        assert min(values) < today < max(values), constant
        assert max(values) - 1 <= 1.2 * today <= max(values) + 1, constant


@pytest.mark.parametrize("compiler", ["libtpu-0.0.42.1", "libtpu-0.0.50.1"])
def test_what_xla_keeps_in_vmem_is_no_traffic(compiler: str, tmp_path: Path) -> None:
    """Two kernels, one after the other: the maps of their windows show four passes over HBM, the schedule does two."""
    array = Array(name="x", shape=(1024, 1024), dtype="bfloat16")
    once = 1024 * 1024 * 2
    run = run_module(read_module(unpack(compiler, "v5e-twice-1024", tmp_path)), V5E)
    assert (run.hbm_read_bytes, run.hbm_written_bytes, run.unknown) == (once, once, ())
    problem = replace(
        CANDIDATE.problem,
        inputs=(array,),
        outputs=(array,),
        work=Work(matmul_flops=0, vector_flops=2 * 1024 * 1024, minimum_hbm_bytes=2 * once),
    )
    call = TRACE.pallas_calls[0]
    windows = tuple(replace(call.windows[0], array=array, hbm_bytes=once) for _ in range(2))
    trace = replace(TRACE, pallas_calls=(replace(call, windows=windows),) * 2, pallas_flops=0, exponentials=0)
    latency = replace(LATENCY, seconds=run.seconds)
    simulated = replace(CANDIDATE, problem=problem, trace=trace, simulation=run, latency=latency)
    figures = report(simulated, V5E)
    assert (figures.hbm_bytes, figures.traffic_source) == (2 * once, "simulated DMA")
    assert figures.bandwidth_util == pytest.approx(2 * once / V5E.hbm_bytes_per_second / present(run.seconds))
    assert present(figures.bandwidth_util) < 1 < 2 * present(figures.bandwidth_util)
    assert decide(simulated, None, None, Policy(), V5E).outcome == "accept"
    # The same program, said to move twice as much in the same time.
    more = replace(simulated, simulation=replace(run, hbm_read_bytes=3 * once))
    verdict = decide(more, None, None, Policy(), V5E)
    assert_failed(verdict.failure, "latency", "impossible", "of the 819.0 GB/s that a v5e has")


def test_links_are_doubted_where_there_are_several_chips() -> None:
    on_several = with_mesh(chip("v5e"), (("x", 4),))
    alone, several = machine_variants.doubts(chip("v5e")), machine_variants.doubts(on_several)
    assert several.keys() - alone.keys() == {
        "links: reached_share x0.9",
        "links: reached_share x1.1",
        "links: hop_seconds x0.5",
        "links: hop_seconds x2.0",
    }
    slower, believed = several["links: reached_share x0.9"].links, chips.row("v5e").links
    assert present(slower).reached_bytes_per_second == pytest.approx(0.9 * present(believed).reached_bytes_per_second)
