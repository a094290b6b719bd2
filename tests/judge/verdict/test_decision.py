"""Every outcome of the verdict, at its borders; doubt never accepts."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evidence_examples import ENVIRONMENT, KEY, V5E, attempt, evidence, failed, measured, resimulated, statement
from narrowing import present
from refusals import assert_failed, assert_ruled

from harness.advice.report import report, row
from harness.hardware import chip
from harness.judge.key import key_digest
from harness.judge.verdict import compare_simulated
from harness.judge.verdict.compare_measured import attempts_since_accept, rule
from harness.judge.verdict.decision import Tries, decide
from harness.ledger.codec import decode_attempt, encode_attempt
from harness.records import Evidence, Failure, Latency, PairedBenchmark, Policy, Row, Samples, Verdict

POLICY = Policy()


def judged(
    candidate: Evidence, champion: Evidence | None = None, paired: PairedBenchmark | None = None, attempts: int = 1
) -> Verdict:
    again = resimulated(candidate, champion) if champion is not None else ()
    return decide(candidate, champion, paired, POLICY, V5E, again, Tries(since_accept=attempts))


def pairs_of(
    ratio: float, pairs: int = 40, spread: float = 0.003, seconds: float = 2e-3, control: float = 1.0, looks: int = 2
) -> PairedBenchmark:
    """A paired benchmark: the candidate takes `ratio` times the champion's time, the control `control` times."""
    rng = np.random.default_rng(7)
    champion, itself, candidate = (
        tuple((seconds * factor * np.exp(rng.normal(0, spread, pairs))).tolist()) for factor in (1.0, control, ratio)
    )
    return PairedBenchmark(
        champion_seconds=champion, control_seconds=itself, candidate_seconds=candidate, clock="device", looks=looks
    )


def with_host(judged: Evidence, seconds: float, pairs: int = 40) -> Evidence:
    """The same evidence with `pairs` host times near `seconds`."""
    host = tuple(seconds * np.exp(np.random.default_rng(8).normal(0, 0.003, pairs)))
    return replace(judged, samples=Samples(device_kind="TPU v5 lite", host_seconds=host))


def uncertain(seconds: float, fraction: float) -> Evidence:
    judged = evidence(seconds)
    return replace(judged, simulation=replace(present(judged.simulation), relative_uncertainty=fraction))


def test_baseline_is_accepted_when_everything_passed() -> None:
    verdict = judged(evidence(2.16e-3))
    assert verdict.outcome == "accept"
    assert verdict.time_ratio is None
    assert verdict.reasons == ("all 2 checks passed; judged on its own, against no champion: 2.160 ms, simulated v5e",)


def test_a_failure_is_failed_whatever_else_there_is() -> None:
    verdict = judged(failed("correctness", "wrong-result"), evidence())
    assert verdict.outcome == "failed"
    assert_failed(verdict.failure, "correctness", "wrong-result")


@pytest.mark.parametrize(
    "change", [{"passed": False}, {"error": float("nan")}, {"error": 1.0}, {"error": None, "passed": True}]
)
def test_a_check_that_did_not_pass_fails_even_without_a_failure(change: dict[str, Any]) -> None:
    plain = evidence(1e-3)
    bad = replace(plain, checks=(plain.checks[0], replace(plain.checks[1], **change)))
    verdict = judged(bad, evidence(2e-3))
    assert verdict.outcome == "failed"
    assert present(verdict.failure).kind == "wrong-result"
    assert "dominating key" in verdict.reasons[0]


def test_a_reason_that_ends_with_a_colon_goes_on_with_the_next_line_of_the_detail() -> None:
    message = "E2002: CompileTimeMosaicMisalignedBlockAndTiling:"
    detail = f"INVALID_ARGUMENT: Mosaic failed: {message}\nOperand has tiling (32, 128)\nSee error_2002."
    failure = Failure(stage="compile", kind="compile-error", message=message, detail=detail)
    reasons = judged(replace(evidence(None), failure=failure)).reasons
    assert reasons == (f"compile: {message} Operand has tiling (32, 128)",)
    cut = replace(failure, detail="See error_2002.")
    assert judged(replace(evidence(None), failure=cut)).reasons == (f"compile: {message}",)


def test_without_any_check_nothing_is_accepted() -> None:
    assert judged(evidence(1e-3, checks=()), evidence(2e-3)).outcome == "inconclusive"
    assert judged(evidence(1e-3, checks=())).outcome == "inconclusive"


def test_an_unknown_latency_is_inconclusive_with_its_reason() -> None:
    for champion in (None, evidence(2e-3)):
        assert_ruled(judged(evidence(None), champion), "inconclusive", "opcode vfrobnicate")
    assert judged(evidence(latency=None)).outcome == "inconclusive"
    assert_ruled(judged(evidence(2e-3), evidence(None)), "inconclusive", "the champion is unknown")


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_latency_that_is_no_time_is_not_accepted(seconds: float) -> None:
    latency = Latency(source="simulated", seconds=seconds, plus_minus_seconds=None)
    assert judged(evidence(latency=latency)).outcome == "inconclusive"


def test_a_champion_that_fails_now_leaves_nothing_to_compare_with() -> None:
    assert_ruled(judged(evidence(1e-3), failed()), "inconclusive", "vmem-exceeded")


def test_more_than_the_hardware_can_do_is_failed_as_impossible() -> None:
    for champion in (None, evidence(2e-3)):
        verdict = judged(evidence(0.6e-3), champion)
        assert verdict.outcome == "failed"
        assert_failed(verdict.failure, "latency", "impossible")
        assert "of the 197.0 TFLOP/s that a v5e can do" in verdict.reasons[0]


def test_an_impossible_paired_benchmark_is_refused_though_the_recorded_latency_is_fine() -> None:
    paired = pairs_of(0.3, seconds=2e-3)
    assert judged(measured(1e-3), measured(2e-3), paired).failure is not None


def test_a_measured_time_whose_low_end_is_impossible_is_never_accepted() -> None:
    """4 * 16384^2 * 128 FLOP take a v5e 0.6977 ms at its peak."""

    def near(plus_minus: float | None, source: str = "measured") -> Evidence:
        latency = Latency(source=source, seconds=0.71e-3, plus_minus_seconds=plus_minus)  # type: ignore[arg-type]
        return replace(measured(0.71e-3), latency=latency)

    fast = pairs_of(0.355, seconds=2e-3)
    assert judged(near(0.01e-3), measured(2e-3), fast).outcome == "accept"
    for wide in (0.02e-3, 1e-3):
        for champion in (None, measured(2e-3)):
            assert_ruled(
                judged(near(wide), champion, fast), "inconclusive", "low end of the measured interval is impossible"
            )
    # The simulator's uncertainty is no sign of a broken clock.
    assert judged(near(0.02e-3, "simulated"), evidence(2e-3)).outcome == "accept"


@pytest.mark.parametrize(
    ("candidate", "outcome", "words"),
    [
        (
            1.00e-3,
            "accept",
            "50.00% less time than the champion; threshold: at least 1.48% less time (minimum effect 1.0%,",
        ),
        (1.97e-3, "accept", "1.50% less time"),
        (1.971e-3, "inconclusive", "1.45% less time than the champion; threshold: at least 1.48% less time (minimum"),
        (1.98e-3, "inconclusive", "uncertainty 1.5% of the ratio, one sigma)"),
        (1.9801e-3, "reject", "1.00% less time than the champion; threshold: at least 1.48% less time"),
        (1.99e-3, "reject", "one sigma): 1.990 ms against 2.000 ms, sim"),
        (2.00e-3, "reject", "exactly the champion's time"),
        (2.01e-3, "reject", "0.50% more time than the champion; threshold: at least 1.48% less time"),
        (2.02e-3, "reject", "1.0% more time than the champion"),
        (3.00e-3, "reject", "50.0% more time than the champion: 3.000 ms against 2.000 ms, simulated v5e"),
    ],
)
def test_simulated_borders(candidate: float, outcome: str, words: str) -> None:
    verdict = judged(uncertain(candidate, 0.015), uncertain(2e-3, 0.015))
    assert_ruled(verdict, outcome, words)
    assert verdict.time_ratio == pytest.approx(candidate / 2e-3)


def test_a_gain_of_exactly_the_minimum_effect_counts_whatever_the_rounding() -> None:
    for milliseconds in (0.9, 1.1, 1.7, 2.3, 3.1):
        champion = uncertain(milliseconds * 1e-3, 0.001)
        assert judged(uncertain(0.99 * milliseconds * 1e-3, 0.001), champion).outcome == "accept"
        assert judged(uncertain(0.99001 * milliseconds * 1e-3, 0.001), champion).outcome == "reject"


def test_the_larger_uncertainty_of_the_two_simulations_counts() -> None:
    for ours, theirs in ((0.001, 0.2), (0.2, 0.001)):
        verdict = judged(uncertain(1.8e-3, ours), uncertain(2e-3, theirs))
        assert verdict.outcome == "inconclusive"
        assert verdict.time_ratio_high == pytest.approx(0.9 * 1.2)
    verdict = judged(uncertain(1.8e-3, 0.001), uncertain(2e-3, 0.001))
    assert verdict.outcome == "accept"
    assert (verdict.time_ratio_low, verdict.time_ratio_high) == pytest.approx((0.9 * 0.999, 0.9 * 1.001))


@pytest.mark.parametrize(("looked_at", "deviations"), [(1, 1.0), (10, 2.12), (100, 2.92)])
def test_the_fastest_of_many_is_asked_for_more(looked_at: int, deviations: float) -> None:
    champion = uncertain(2e-3, 0.02)
    for factor, outcome in ((1.01, "accept"), (0.99, "inconclusive")):
        time = 2e-3 / (1 + factor * deviations * 0.02)
        candidate = uncertain(time, 0.02)
        again = resimulated(candidate, champion)
        verdict = decide(candidate, champion, None, POLICY, V5E, resimulated=again, tries=Tries(looked_at=looked_at))
        assert verdict.outcome == outcome
        assert (f"the fastest of {looked_at} candidates" in " ".join(verdict.reasons)) == (looked_at > 1)


@pytest.mark.parametrize("looked_at", [1, 10, 200])
def test_choosing_by_simulated_times_brings_no_more_false_gains(looked_at: int) -> None:
    # No candidate is truly faster: they differ only by the simulator's errors, which choose the fastest.
    random, uncertainty, searches = np.random.default_rng(looked_at), 0.03, 4000
    fastest = (1 / (1 + uncertainty * random.standard_normal((searches, looked_at)))).min(axis=1)
    ruled = [compare_simulated.rule(1.0, ratio, uncertainty, POLICY, looked_at) for ratio in fastest]
    accepted = sum(ruling.outcome == "accept" for ruling in ruled) / searches
    # As for a single candidate: the normal distribution beyond one deviation.
    assert 0.14 < accepted < 0.18
    if looked_at > 1:
        alone = [compare_simulated.rule(1.0, ratio, uncertainty, POLICY) for ratio in fastest]
        assert sum(ruling.outcome == "accept" for ruling in alone) > 0.75 * searches


def test_a_simulated_gain_of_unknown_uncertainty_is_inconclusive() -> None:
    assert_ruled(
        judged(evidence(1e-3), evidence(2e-3, simulation=None)), "inconclusive", "simulator uncertainty not recorded)"
    )


@pytest.mark.parametrize(
    ("paired", "outcome"),
    [
        (pairs_of(0.97), "accept"),
        (pairs_of(1.0), "reject"),
        (pairs_of(1.05), "reject"),
        (pairs_of(0.99), "inconclusive"),
        (pairs_of(0.97, spread=0.1), "inconclusive"),
        (pairs_of(0.75, pairs=19), "inconclusive"),
        (pairs_of(0.75, pairs=20), "accept"),
        (pairs_of(0.75, looks=6), "inconclusive"),
        (replace(pairs_of(0.75), control_seconds=()), "inconclusive"),
        (None, "inconclusive"),
    ],
)
def test_measured_outcomes(paired: PairedBenchmark | None, outcome: str) -> None:
    verdict = judged(measured(1.94e-3), measured(2e-3), paired)
    assert verdict.outcome == outcome
    if outcome != "inconclusive":
        assert present(verdict.time_ratio_low) <= (verdict.time_ratio or 0) <= present(verdict.time_ratio_high)


def test_measured_reasons_state_figures_source_clock_and_certainty() -> None:
    verdict = judged(measured(1.94e-3), measured(2e-3), pairs_of(0.97), attempts=3)
    figures, certainty = verdict.reasons
    assert figures.startswith("the whole interval is at or below 0.9900; time ratio 0.9")
    assert "from 40 pairs (measured v5e, device clock)" in figures
    assert certainty.startswith("attempt 3 since the last accept, look 2 of at most 5: intervals of 99.997%")
    assert certainty.endswith("at most 0.1%, however many attempts are made")
    assert verdict.attempts_since_accept == 3
    assert verdict.error_rate == pytest.approx(0.001 / 12)


@pytest.mark.parametrize("control", [0.95, 1.05])
@pytest.mark.parametrize("ratio", [0.75, 0.97, 1.0])
def test_a_slower_slot_makes_the_control_fire_whatever_the_candidate_does(control: float, ratio: float) -> None:
    verdict = judged(measured(), measured(2e-3), pairs_of(ratio, control=control, pairs=20, looks=1))
    assert verdict.outcome == "inconclusive"
    assert verdict.reasons[0].startswith("the machine is too noisy: the champion, loaded twice, takes different times")
    assert f"the champion against itself: {control:.2f}"[:-1] in verdict.reasons[0]


def test_a_control_within_a_tenth_of_the_minimum_effect_is_no_alarm() -> None:
    """With sixteen times as many pairs as needed, the difference of the control is certain, but it does not matter."""
    assert rule(pairs_of(0.97, control=1.0008, spread=1e-4, pairs=320), POLICY, 1).outcome == "accept"
    assert rule(pairs_of(0.97, control=1.0012, spread=1e-4, pairs=320), POLICY, 1).outcome == "inconclusive"


def test_without_a_verdict_for_noise_the_control_says_so() -> None:
    verdict = judged(measured(), measured(2e-3), pairs_of(0.97, spread=0.1))
    assert verdict.reasons[0].startswith(
        "the machine is too noisy to show a gain of 1.0% (the champion against itself: 1.0"
    )
    verdict = judged(measured(), measured(2e-3), pairs_of(0.99))
    assert verdict.reasons[0].startswith("the interval straddles 0.9900: the gain may or may not reach 1.0%")


def test_the_same_pairs_are_enough_for_a_first_attempt_and_not_for_the_thousandth() -> None:
    paired = pairs_of(0.97, pairs=20, looks=1)
    assert rule(paired, POLICY, 1).outcome == "accept"
    late = rule(paired, POLICY, 1000)
    assert (late.outcome, late.is_final) == ("inconclusive", False)
    assert "too few for the required certainty" in late.reason


def test_a_ruling_that_more_pairs_may_change_is_not_final() -> None:
    assert not rule(pairs_of(0.97, spread=0.1), POLICY, 1).is_final
    assert not rule(pairs_of(0.75, pairs=19), POLICY, 1).is_final
    for final in (
        pairs_of(0.97),
        pairs_of(1.0),
        pairs_of(0.97, control=1.1),
        replace(pairs_of(0.97), control_seconds=()),
    ):
        assert rule(final, POLICY, 1).is_final


def test_a_gain_of_the_host_alone_is_named_and_not_accepted() -> None:
    candidate, champion = with_host(measured(2e-3), 2.0e-3), with_host(measured(2e-3), 2.5e-3)
    for ratio, outcome in ((1.0, "reject"), (0.99, "inconclusive")):
        verdict = judged(candidate, champion, pairs_of(ratio))
        assert verdict.outcome == outcome
        assert verdict.reasons[0].startswith("host-only: ")
        assert "host time ratio 0.80" in verdict.reasons[0]
    assert "host-only" not in judged(candidate, champion, pairs_of(0.9)).reasons[0]
    assert "host-only" not in judged(candidate, candidate, pairs_of(1.0)).reasons[0]
    # If the machine is too noisy for the device's clock, the host's clock tells nothing.
    assert "host-only" not in judged(candidate, champion, pairs_of(1.0, control=1.1)).reasons[0]


def test_host_time_alone_accepts_nothing_on_a_device() -> None:
    on_host = replace(pairs_of(0.9), clock="host")
    assert_ruled(judged(measured(1.8e-3), measured(2e-3), on_host), "inconclusive", "no device time")
    assert judged(measured(2e-3), measured(2e-3), replace(pairs_of(1.0), clock="host")).outcome == "reject"


def test_a_paired_benchmark_with_unusable_samples_is_inconclusive() -> None:
    few = (1e-3,) * 29
    for paired in (replace(pairs_of(0.75), candidate_seconds=few), replace(pairs_of(0.75), control_seconds=few)):
        assert_ruled(judged(measured(1e-3), measured(2e-3), paired), "inconclusive", "unusable")


def line(number: int, outcome: str, kind: str = "experiment", source: str = "measured") -> Row:
    recorded = attempt(measured(), Verdict(outcome=outcome, reasons=()), number=number, kind=kind)  # type: ignore[arg-type]
    return replace(row(recorded, report(recorded.evidence, V5E), "digest"), source=source)  # type: ignore[arg-type]


def test_attempts_are_counted_from_the_last_accept_repeats_included() -> None:
    rows = [line(1, "accept", "baseline")]
    assert attempts_since_accept(rows, "measured") == 1
    # The same program is judged again and again: each attempt counts.
    rows += [line(2, "reject"), line(3, "inconclusive"), line(4, "reject")]
    assert attempts_since_accept(rows, "measured") == 4
    # Attempts that were not timed, or judged by another source, do not count.
    rows += [line(5, "failed"), line(6, "reject", source="simulated")]
    assert attempts_since_accept(rows, "measured") == 4
    assert attempts_since_accept(rows, "simulated") == 2
    rows += [line(7, "accept", "undo")]
    assert attempts_since_accept(rows, "measured") == 4
    rows += [line(8, "accept"), line(9, "reject")]
    # The order of the rows does not matter.
    assert attempts_since_accept(rows[::-1], "measured") == 2


def test_a_paired_benchmark_from_before_there_was_a_control_is_still_read_and_settles_nothing() -> None:
    document = json.loads(
        encode_attempt(attempt(measured(), Verdict(outcome="accept", reasons=()), paired=pairs_of(0.75)))
    )
    for part, names in (
        ("paired", ("control_seconds", "looks")),
        ("policy", ("looks", "paired_seconds", "false_accept_rate")),
        ("verdict", ("attempts_since_accept", "error_rate")),
    ):
        for name in names:
            del document["attempt"][part][name]
    decoded = decode_attempt(json.dumps(document).encode(), "here")
    assert judged(measured(), measured(2e-3), present(decoded.paired)).outcome == "inconclusive"


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
        judged(measured(1e-3), measured(2e-3, environment=elsewhere), pairs_of(0.75))


def test_verdict_for_another_chip_is_refused() -> None:
    with pytest.raises(ValueError, match="chip of the verdict"):
        decide(evidence(1e-3), evidence(2e-3), None, POLICY, chip("v6e"))


def test_changes_say_what_moved() -> None:
    verdict = judged(evidence(1e-3, bq=2048), evidence(2e-3))
    assert "HBM traffic" in [change.name for change in verdict.changes]


def test_key_digest_is_stable_and_sees_every_field() -> None:
    assert key_digest(KEY) == key_digest(replace(KEY))
    assert len(key_digest(KEY)) == 12
    changes: list[dict[str, Any]] = [{name: "x"} for name in ("judge", "problem", "chip", "jax", "jaxlib", "libtpu")]
    others = {key_digest(replace(KEY, **change)) for change in changes}
    others |= {key_digest(replace(KEY, source="measured")), key_digest(replace(KEY, machine="x"))}
    assert len(others | {key_digest(KEY)}) == 9
