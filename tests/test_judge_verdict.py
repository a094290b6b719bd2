"""Every outcome of the verdict, at its borders; doubt never accepts."""

from dataclasses import replace

import numpy as np
import pytest
from evidence_examples import ENVIRONMENT, KEY, V5E, evidence, failed, measured, statement

from harness.hardware import chip
from harness.judge.verdict import decide, key_digest
from harness.records import Duel, Evidence, Latency, Policy, Verdict

POLICY = Policy()


def judged(candidate: Evidence, champion: Evidence | None = None, duel: Duel | None = None) -> Verdict:
    return decide(candidate, champion, duel, POLICY, V5E)


def paired(ratio: float, pairs: int = 30, spread: float = 0.003, seconds: float = 2e-3) -> Duel:
    rng = np.random.default_rng(7)
    champion = seconds * np.exp(rng.normal(0, spread, pairs))
    candidate = seconds * ratio * np.exp(rng.normal(0, spread, pairs))
    return Duel(champion_seconds=tuple(champion), candidate_seconds=tuple(candidate), clock="device")


def test_baseline_is_accepted_when_everything_passed() -> None:
    verdict = judged(evidence(2.16e-3))
    assert verdict.outcome == "accept"
    assert verdict.time_ratio is None
    assert verdict.reasons == ("all 2 checks passed; judged on its own, against no champion: 2.160 ms, simulated v5e",)


def test_a_failure_is_failed_whatever_else_there_is() -> None:
    verdict = judged(failed("correctness", "wrong-result"), evidence())
    assert verdict.outcome == "failed"
    assert verdict.failure is not None
    assert (verdict.failure.stage, verdict.failure.kind) == ("correctness", "wrong-result")


@pytest.mark.parametrize(
    "change", [{"passed": False}, {"error": float("nan")}, {"error": 1.0}, {"error": None, "passed": True}]
)
def test_a_check_that_did_not_pass_fails_even_without_a_failure(change: dict[str, object]) -> None:
    given = evidence(1e-3)
    bad = replace(given, checks=(given.checks[0], replace(given.checks[1], **change)))
    verdict = judged(bad, evidence(2e-3))
    assert verdict.outcome == "failed"
    assert verdict.failure is not None
    assert verdict.failure.kind == "wrong-result"
    assert "dominating key" in verdict.reasons[0]


def test_without_any_check_nothing_is_accepted() -> None:
    assert judged(evidence(1e-3, checks=()), evidence(2e-3)).outcome == "inconclusive"
    assert judged(evidence(1e-3, checks=())).outcome == "inconclusive"


def test_an_unknown_latency_is_inconclusive_with_its_reason() -> None:
    for champion in (None, evidence(2e-3)):
        verdict = judged(evidence(None), champion)
        assert verdict.outcome == "inconclusive"
        assert "opcode vfrobnicate" in verdict.reasons[0]
    assert judged(evidence(latency=None)).outcome == "inconclusive"
    verdict = judged(evidence(2e-3), evidence(None))
    assert verdict.outcome == "inconclusive"
    assert "the champion is unknown" in verdict.reasons[0]


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_latency_that_is_no_time_is_not_accepted(seconds: float) -> None:
    latency = Latency(source="simulated", seconds=seconds, plus_minus_seconds=None)
    assert judged(evidence(latency=latency)).outcome == "inconclusive"


def test_a_champion_that_fails_now_leaves_nothing_to_compare_with() -> None:
    verdict = judged(evidence(1e-3), failed())
    assert verdict.outcome == "inconclusive"
    assert "vmem-exceeded" in verdict.reasons[0]


def test_more_than_the_hardware_can_do_is_failed_as_impossible() -> None:
    for champion in (None, evidence(2e-3)):
        verdict = judged(evidence(0.6e-3), champion)
        assert verdict.outcome == "failed"
        assert verdict.failure is not None
        assert (verdict.failure.stage, verdict.failure.kind) == ("latency", "impossible")
        assert "of the 197.0 TFLOP/s that a v5e can do" in verdict.reasons[0]


def test_an_impossible_duel_is_refused_though_the_recorded_latency_is_fine() -> None:
    duel = paired(0.3, seconds=2e-3)
    assert judged(measured(1e-3), measured(2e-3), duel).failure is not None


@pytest.mark.parametrize(
    ("candidate", "outcome", "words"),
    [
        (1.00e-3, "accept", "50.0% less time than the champion: 1.000 ms against 2.000 ms, simulated v5e"),
        (1.98e-3, "accept", "1.0% less time"),
        (1.9801e-3, "reject", "1.00% less time than the champion is within ±1.0%: not a difference the simulator"),
        (1.99e-3, "reject", "0.50% less time than the champion is within ±1.0%"),
        (2.00e-3, "reject", "exactly the champion's time"),
        (2.01e-3, "reject", "0.50% more time than the champion is within ±1.0%"),
        (2.02e-3, "reject", "1.0% more time than the champion"),
        (3.00e-3, "reject", "50.0% more time than the champion: 3.000 ms against 2.000 ms"),
    ],
)
def test_simulated_borders(candidate: float, outcome: str, words: str) -> None:
    verdict = judged(evidence(candidate), evidence(2e-3))
    assert verdict.outcome == outcome
    assert words in verdict.reasons[0]
    assert verdict.time_ratio == pytest.approx(candidate / 2e-3)


def test_a_gain_of_exactly_the_minimum_effect_counts_whatever_the_rounding() -> None:
    for milliseconds in (0.9, 1.1, 1.7, 2.3, 3.1):
        assert judged(evidence(0.99 * milliseconds * 1e-3), evidence(milliseconds * 1e-3)).outcome == "accept"
        assert judged(evidence(0.99001 * milliseconds * 1e-3), evidence(milliseconds * 1e-3)).outcome == "reject"


@pytest.mark.parametrize(
    ("duel", "outcome"),
    [
        (paired(0.97), "accept"),
        (paired(1.0), "reject"),
        (paired(1.05), "reject"),
        (paired(0.99), "inconclusive"),
        (paired(0.97, spread=0.1), "inconclusive"),
        (paired(0.5, pairs=19), "inconclusive"),
        (paired(0.5, pairs=20), "accept"),
        (None, "inconclusive"),
    ],
)
def test_measured_outcomes(duel: Duel | None, outcome: str) -> None:
    verdict = judged(measured(1.94e-3), measured(2e-3), duel)
    assert verdict.outcome == outcome
    if outcome != "inconclusive":
        assert verdict.time_ratio_low is not None
        assert verdict.time_ratio_high is not None
        assert verdict.time_ratio_low <= (verdict.time_ratio or 0) <= verdict.time_ratio_high


def test_measured_reason_states_figures_source_and_clock() -> None:
    (reason,) = judged(measured(1.94e-3), measured(2e-3), paired(0.97)).reasons
    assert reason.startswith("the whole interval is at or below 0.9900; time ratio 0.9")
    assert "from 30 pairs (measured v5e, device clock)" in reason


def test_a_duel_with_unusable_samples_is_inconclusive() -> None:
    duel = replace(paired(0.5), candidate_seconds=(1e-3,) * 29)
    verdict = judged(measured(1e-3), measured(2e-3), duel)
    assert verdict.outcome == "inconclusive"
    assert "unusable" in verdict.reasons[0]


@pytest.mark.parametrize(
    "champion",
    [
        measured(2e-3),
        evidence(2e-3, problem=statement(8192)),
        evidence(2e-3, chip="v6e"),
        evidence(2e-3, environment=replace(ENVIRONMENT, libtpu="0.0.50")),
        evidence(2e-3, environment=replace(ENVIRONMENT, jax="0.12.0")),
    ],
)
def test_different_keys_are_never_compared(champion: Evidence) -> None:
    with pytest.raises(ValueError, match="not comparable"):
        judged(evidence(1e-3), champion)


def test_another_machine_matters_to_measured_numbers_only() -> None:
    elsewhere = replace(ENVIRONMENT, machine="another")
    assert judged(evidence(1e-3), evidence(2e-3, environment=elsewhere)).outcome == "accept"
    with pytest.raises(ValueError, match="machine"):
        judged(measured(1e-3), measured(2e-3, environment=elsewhere), paired(0.5))


def test_verdict_for_another_chip_is_refused() -> None:
    with pytest.raises(ValueError, match="chip of the verdict"):
        decide(evidence(1e-3), evidence(2e-3), None, POLICY, chip("v6e"))


def test_changes_say_what_moved() -> None:
    verdict = judged(evidence(1e-3, bq=2048), evidence(2e-3))
    assert "HBM traffic" in [change.name for change in verdict.changes]


def test_key_digest_is_stable_and_sees_every_field() -> None:
    assert key_digest(KEY) == key_digest(replace(KEY))
    assert len(key_digest(KEY)) == 12
    others = {
        key_digest(replace(KEY, **{name: "x"})) for name in ("judge", "problem", "chip", "jax", "jaxlib", "libtpu")
    }
    others |= {key_digest(replace(KEY, source="measured")), key_digest(replace(KEY, machine="x"))}
    assert len(others | {key_digest(KEY)}) == 9
