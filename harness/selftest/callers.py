"""Planted callers: code that times kernels and asks for a verdict, but cheats; the judge must not accept.

Run as a program, it prints the PlantedVerdict of the caller that its command line names.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from harness.hardware import DEFAULT_CHIP, chip
from harness.judge.verdict.decision import Tries, decide
from harness.operators import Attention
from harness.records import (
    NOMINAL,
    Check,
    Evidence,
    Latency,
    PairedBenchmark,
    Policy,
    Resimulation,
    Simulation,
    Source,
    Verdict,
)
from harness.records.selftest import Planted, PlantedVerdict, Refusal
from harness.sandbox.environment import environment

_CHIP, _POLICY = chip(DEFAULT_CHIP), Policy()
_PROBLEM = Attention(sequence=16384, head_dim=128)
# Three times the least time that the chip's peak allows, as for an ordinary kernel.
_SECONDS = 3 * _PROBLEM.work().matmul_flops / _CHIP.peak_bf16_flops_per_second
_PAIRS = 320
# Noise of half a percent in every sample, as on a quiet machine.
_SPREAD = 0.005
# The noise of a shared machine: the median of 20 pairs is off by more than the minimum effect in every third paired
# benchmark.
_ROUGH_SPREAD = 0.03
# The number of attempts that change nothing.
_NULL_ATTEMPTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A planted caller, and the function that asks for a verdict."""

    planted: Planted
    ask: Callable[[], Verdict]


def _evidence(time: float | None, source: Source = "measured", **fields: Any) -> Evidence:
    """Evidence of a kernel that passed and took `time` seconds."""
    check = Check(
        family="composite",
        mode="full",
        shape=(16384, 128),
        seed=1,
        elements=49152,
        error=0.01,
        honest_error=0.01,
        tolerance=0.1,
        passed=True,
    )
    evidence = Evidence(
        problem=_PROBLEM.statement(),
        chip=_CHIP.name,
        environment=environment(),
        checks=(check,),
        latency=Latency(source=source, seconds=time, plus_minus_seconds=None),
    )
    return replace(evidence, **fields)


def _samples(time: float, pairs: int, spread: float, seed: int) -> tuple[float, ...]:
    noise = np.random.default_rng(seed).normal(0, spread, pairs)
    return tuple(float(value) for value in time * np.exp(noise))


def _noisy_pairs(
    champion: float, candidate: float, control: float, pairs: int = _PAIRS, spread: float = _SPREAD, seed: int = 0
) -> PairedBenchmark:
    """Timing samples with noise around these true times."""
    sides = (_samples(time, pairs, spread, 3 * seed + side) for side, time in enumerate((champion, candidate, control)))
    first, second, third = sides
    return PairedBenchmark(champion_seconds=first, candidate_seconds=second, control_seconds=third, clock="device")


def _decide(paired: PairedBenchmark | None, candidate: Evidence | None = None) -> Verdict:
    return decide(candidate or _evidence(_SECONDS), _evidence(_SECONDS), paired, _POLICY, _CHIP)


def _lucky_rerun() -> Verdict:
    """The verdict on the luckiest of many attempts that change nothing, each with all looks of the policy."""
    ratios = {}
    for attempt in range(_NULL_ATTEMPTS):
        for pairs in _POLICY.looks:
            paired = _noisy_pairs(_SECONDS, _SECONDS, _SECONDS, pairs=pairs, spread=_ROUGH_SPREAD, seed=attempt)
            evidence = _evidence(_SECONDS)
            verdict = decide(evidence, evidence, paired, _POLICY, _CHIP, tries=Tries(since_accept=attempt + 1))
            if verdict.outcome == "accept":
                return verdict
            ratios[verdict.time_ratio or 1.0] = verdict
    return ratios[min(ratios)]


def _with_checks(**changes: Any) -> Verdict:
    """The verdict on a kernel that passed, with these changes of its checks."""
    right = _evidence(_SECONDS, "simulated")
    return _on_its_own(replace(right, checks=tuple(replace(check, **changes) for check in right.checks)))


def _simulated_gain(*again: Resimulation) -> Verdict:
    """The verdict on a simulated gain of 10 %, with the times `again` on the varied machines."""
    champion, candidate = (
        _evidence(time, "simulated", simulation=_simulation(time)) for time in (_SECONDS, 0.9 * _SECONDS)
    )
    return decide(candidate, champion, None, _POLICY, _CHIP, resimulated=again)


def _simulation(time: float) -> Simulation:
    """A run that took this time and did all the work of the problem."""
    work = _PROBLEM.work()
    cycles = time * _CHIP.clock_hz
    return Simulation(
        chip=_CHIP.name,
        seconds=time,
        plus_minus_seconds=None,
        cycles=cycles,
        bundle_cycles=int(cycles),
        dma_wait_cycles=0.0,
        unit_stall_cycles=0.0,
        launch_cycles=0.0,
        clock_hz=_CHIP.clock_hz,
        ops=(),
        units=(),
        static_bundles=1,
        empty_bundles=0,
        static_spills=0,
        static_fills=0,
        executed_spills=0,
        executed_fills=0,
        hbm_read_bytes=work.minimum_hbm_bytes,
        hbm_written_bytes=work.minimum_hbm_bytes,
        dma_transfers=1,
        unknown=(),
        mxu_flops=work.matmul_flops,
    )


def _run(name: str, ratio: float) -> Resimulation:
    return Resimulation(name=name, champion_seconds=_SECONDS, candidate_seconds=ratio * _SECONDS)


def _on_its_own(candidate: Evidence) -> Verdict:
    return decide(candidate, None, None, _POLICY, _CHIP)


def _row(name: str, row: str, what: str, caught_by: str, ask: Callable[[], Verdict]) -> Caller:
    stage, kind = caught_by.split()
    refusal = Refusal(stage=stage, kind=kind)
    return Caller(planted=Planted(name=name, what=what, row=row, expected=(refusal,)), ask=ask)


CALLERS = (
    _row("not_simulated_again", "33", "A simulated gain without simulations under changed uncertain constants.",
         "verdict inconclusive", _simulated_gain),
    _row("gain_of_one_constant", "33", "A simulated gain that vanishes if one uncertain constant changes.",
         "verdict inconclusive",
         lambda: _simulated_gain(
             _run(NOMINAL, 0.9), _run("push_cycles x1.2", 0.88), _run("transfer_cycles x0.1", 1.01))),
    _row("slowed_baseline", "16", "The champion's slot is slowed, but not its control's.", "verdict inconclusive",
         lambda: _decide(_noisy_pairs(1.05 * _SECONDS, _SECONDS, _SECONDS))),
    _row("no_control", "16", "The champion is slowed, and there is no control.", "verdict inconclusive",
         lambda: _decide(replace(_noisy_pairs(1.05 * _SECONDS, _SECONDS, _SECONDS), control_seconds=()))),
    _row("timed_apart", "16", "Champion and candidate were timed apart.", "verdict inconclusive",
         lambda: _decide(None, _evidence(0.9 * _SECONDS))),
    _row("single_sample", "20", "One sample of each side, the candidate's twice as fast.", "verdict inconclusive",
         lambda: _decide(_noisy_pairs(_SECONDS, 0.5 * _SECONDS, _SECONDS, pairs=1))),
    _row("three_samples", "20", "Three samples of each side.", "verdict inconclusive",
         lambda: _decide(_noisy_pairs(_SECONDS, 0.9 * _SECONDS, _SECONDS, pairs=3))),
    _row("hair_faster", "20", "A proven gain of only 0.3 %.", "verdict reject",
         lambda: _decide(_noisy_pairs(_SECONDS, 0.997 * _SECONDS, _SECONDS))),
    _row("lucky_rerun", "19", "The luckiest of 100 unchanged kernels, looked at 5 times each.", "verdict inconclusive",
         _lucky_rerun),
    _row("peeking", "19", "Samples looked at after every pair.", "verdict inconclusive",
         lambda: _decide(replace(_noisy_pairs(_SECONDS, 0.95 * _SECONDS, _SECONDS), looks=_PAIRS))),
    _row("impossible", "18", "More than three times the chip's peak.", "latency impossible",
         lambda: _decide(_noisy_pairs(_SECONDS, 0.1 * _SECONDS, _SECONDS), _evidence(0.1 * _SECONDS))),
    _row("unknown_latency", "9", "No latency at all.", "verdict inconclusive",
         lambda: _on_its_own(_evidence(None, "simulated"))),
    _row("nothing_checked", "22", "No check was run.", "verdict inconclusive",
         lambda: _on_its_own(_evidence(_SECONDS, "simulated", checks=()))),
    _row("empty_check", "22", "A check that compared nothing and passed.", "correctness nothing-compared",
         lambda: _with_checks(elements=0, error=0.0)),
    _row("lost_failure", "22", "A check that failed, but is marked as passed.", "correctness wrong-result",
         lambda: _with_checks(error=1.0)),
)  # fmt: skip


def judgement(verdict: Verdict) -> PlantedVerdict:
    """A verdict as a PlantedVerdict."""
    refusal = None
    if verdict.failure is not None:
        refusal = Refusal(stage=verdict.failure.stage, kind=verdict.failure.kind)
    elif verdict.outcome != "accept":
        refusal = Refusal(stage="verdict", kind=verdict.outcome)
    return PlantedVerdict(outcome=verdict.outcome, refusal=refusal, message="; ".join(verdict.reasons))


if __name__ == "__main__":
    asked = next(caller for caller in CALLERS if caller.planted.name == sys.argv[1])
    sys.stdout.buffer.write(msgspec.json.encode(judgement(asked.ask())))
