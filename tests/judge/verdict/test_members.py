"""The verdict on a suite: the mean has to gain, no member may lose too much, and doubt never accepts."""

import re
from dataclasses import replace

import pytest
from evidence_examples import KEY, V5E, attempt, evidence, failed, statement
from narrowing import present
from refusals import assert_failed, assert_ruled
from screen_examples import shown

from harness.advice.report import advise, report, row, with_advice
from harness.hardware import chip
from harness.judge.evaluate.suite import combined
from harness.judge.key import key_digest
from harness.judge.verdict import compare_simulated, members
from harness.judge.verdict.decision import decide
from harness.judge.verdict.early_rejection import is_slower
from harness.ledger.codec import decode_attempt, encode_attempt
from harness.records import NOMINAL, Evidence, Policy, Resimulation, Statement, SuiteMember, Verdict
from harness.render.report_text import report_blocks
from harness.render.results import results_table
from harness.render.sections import screen

POLICY = Policy()
NAMES, WEIGHTS = ("prefill-2k", "prefill-16k"), (0.25, 0.75)
BEFORE = (2e-3, 2.16e-3)
VARIANT = "transfer_cycles x10"


def suite(may_lose: float = 0.01) -> Statement:
    stated = tuple(
        SuiteMember(name=name, weight=weight, function="kernel_fn", statement=statement())
        for name, weight in zip(NAMES, WEIGHTS, strict=True)
    )
    return replace(statement(), title="suite of 2", inputs=(), outputs=(), members=stated, may_lose=may_lose)


def member_evidence(seconds: float | None, program: str) -> Evidence:
    judged, off = evidence(seconds), None if seconds is None else 0.02 * seconds
    trace, latency = present(judged.trace), present(judged.latency)
    return replace(judged, trace=replace(trace, fingerprint=program), latency=replace(latency, plus_minus_seconds=off))


def whole(times: tuple[float | None, ...], programs: str = "cd", may_lose: float = 0.01) -> Evidence:
    return combined(
        suite(may_lose), [member_evidence(time, program) for time, program in zip(times, programs, strict=True)]
    )


CHAMPION = whole(BEFORE, "ab")


def again(candidate: Evidence, champion: Evidence = CHAMPION, **under: float) -> tuple[Resimulation, ...]:
    """The runs of members whose programs differ on two machines; the second has the ratios `under`, as NAMES."""
    runs: dict[str, tuple[Resimulation, ...]] = {}
    if len(candidate.members) != len(champion.members):
        return ()
    for (name, ours), (_, theirs) in members.pairs(candidate, champion):
        if members.is_same_program(ours, theirs):
            continue
        new, old = (judged.latency.seconds for judged in (ours, theirs) if judged.latency)
        ratio = under.get(name.replace("-", "_"))
        runs[name] = (
            Resimulation(name=NOMINAL, champion_seconds=old, candidate_seconds=new),
            Resimulation(
                name=VARIANT, champion_seconds=old, candidate_seconds=new if ratio is None else ratio * present(old)
            ),
        )
    return members.resimulated(candidate, champion, runs) if runs else ()


def judged(candidate: Evidence, champion: Evidence = CHAMPION, **under: float) -> Verdict:
    return decide(candidate, champion, None, POLICY, V5E, resimulated=again(candidate, champion, **under))


def after(*ratios: float, programs: str = "cd") -> Evidence:
    return whole(tuple(ratio * time for ratio, time in zip(ratios, BEFORE, strict=True)), programs)


def test_the_ratio_is_the_weighted_mean_of_the_ratios() -> None:
    verdict = judged(after(0.9, 0.8))
    assert verdict.outcome == "accept"
    assert verdict.time_ratio == pytest.approx(0.9**0.25 * 0.8**0.75)
    assert [member.time_ratio for member in verdict.members] == pytest.approx([0.9, 0.8])
    # The suite is as uncertain as one program: the errors have the same sign at every member.
    assert verdict.time_ratio_high == pytest.approx(1.02 * (verdict.time_ratio or 0))


@pytest.mark.parametrize("loss", [1.0004, 1.5])
def test_a_loss_within_the_uncertainty_is_rejected_without_the_remaining_checks(loss: float) -> None:
    candidate = after(1.0, loss)
    assert judged(candidate).outcome == "reject"
    assert is_slower(candidate, CHAMPION, POLICY, V5E)
    assert not is_slower(after(1.0, 0.9996), CHAMPION, POLICY, V5E)


@pytest.mark.parametrize(("loss", "outcome"), [(1.0, "accept"), (1.01, "accept"), (1.0101, "reject"), (1.5, "reject")])
def test_no_member_may_lose_more_than_it_may(loss: float, outcome: str) -> None:
    candidate = after(loss, 0.5)
    verdict = judged(candidate)
    assert verdict.outcome == outcome
    assert is_slower(candidate, CHAMPION, POLICY, V5E) == (outcome == "reject")
    if outcome == "reject":
        assert verdict.reasons[0].startswith("prefill-2k takes ")
        assert "simulated v5e" in verdict.reasons[0]


def test_where_a_member_may_lose_more_the_mean_decides() -> None:
    candidate = replace(after(1.5, 0.5), problem=suite(0.6))
    assert judged(candidate, replace(CHAMPION, problem=suite(0.6))).outcome == "accept"


def test_a_loss_that_hangs_on_a_doubtful_constant_is_not_accepted() -> None:
    assert_ruled(judged(after(1.005, 0.5), prefill_2k=1.2), "inconclusive", "prefill-2k takes 20.0% more time", VARIANT)


def test_a_gain_that_hangs_on_a_doubtful_constant_is_not_accepted() -> None:
    assert judged(after(1.0, 0.9), prefill_2k=1.01, prefill_16k=1.0).outcome == "inconclusive"


def test_without_runs_under_the_doubts_nothing_is_accepted() -> None:
    assert decide(after(0.9, 0.8), CHAMPION, None, POLICY, V5E).outcome == "inconclusive"


def test_a_member_whose_program_stays_has_no_uncertainty() -> None:
    candidate = after(1.0, 0.96, programs="ad")
    assert compare_simulated.uncertainty(candidate, CHAMPION) == pytest.approx(0.75 * 0.02)
    assert judged(candidate).outcome == "accept"
    assert judged(after(1.0, 0.985, programs="ad")).outcome == "inconclusive"
    assert judged(after(1.0, 0.978, programs="ad")).outcome == "accept"
    assert judged(after(1.0, 0.978)).outcome == "inconclusive"
    # An equal fingerprint with another time means that the simulator changed: it does not count as the same program.
    assert compare_simulated.uncertainty(after(0.99, 0.96, programs="ad"), CHAMPION) == pytest.approx(0.02)


def test_slower_in_the_mean_is_rejected() -> None:
    assert judged(after(0.99, 1.005)).outcome == "reject"
    assert judged(after(1.0, 1.0)).outcome == "reject"
    slower = judged(after(1.5, 1.5)).reasons
    assert slower[0].startswith("50.0% more time than the champion: ")
    assert [reason.split()[0] for reason in slower[1:]] == [*NAMES]


def test_a_failed_check_of_a_member_names_it() -> None:
    first, second = after(0.9, 0.8).members
    wrong = replace(second, checks=(replace(second.checks[0], passed=False), *second.checks[1:]))
    verdict = judged(combined(suite(), [first, wrong]))
    assert verdict.outcome == "failed"
    assert present(verdict.failure).message.startswith("prefill-16k: composite (full shape)")


def test_an_impossible_time_at_one_member_fails() -> None:
    verdict = judged(after(0.3, 1.0))
    assert_failed(verdict.failure, "latency", "impossible")
    assert present(verdict.failure).message.startswith("prefill-2k: ")


def test_a_member_without_a_latency_or_a_check_is_no_verdict() -> None:
    assert_ruled(judged(whole((None, 1e-3))), "inconclusive", "the candidate at prefill-2k")
    first, second = after(0.9, 0.8).members
    unchecked = judged(combined(suite(), [first, replace(second, checks=())]))
    assert_ruled(unchecked, "inconclusive", "prefill-16k")


def test_a_suite_of_which_a_member_is_missing_is_no_verdict() -> None:
    candidate = after(0.9, 0.8)
    verdict = judged(replace(candidate, members=candidate.members[:1]))
    assert verdict.outcome == "inconclusive"
    assert judged(candidate, replace(CHAMPION, members=())).outcome == "inconclusive"


def test_what_a_member_may_lose_and_its_weight_are_part_of_the_problem() -> None:
    with pytest.raises(ValueError, match="problem is"):
        judged(replace(after(0.9, 0.8), problem=suite(0.02)))


def test_a_failure_ends_the_suite_at_its_member() -> None:
    result = combined(suite(), [failed()])
    assert present(result.failure).message.startswith("prefill-2k: ")
    assert result.latency is None
    assert result.trace is None
    assert judged(result).outcome == "failed"


def test_what_is_recorded_is_read_as_it_was() -> None:
    candidate = after(0.9, 0.8)
    whole = attempt(candidate, judged(candidate))
    assert decode_attempt(encode_attempt(whole), "here") == whole


def test_the_report_and_the_table_show_each_member() -> None:
    candidate = after(0.9, 0.8)
    made = attempt(candidate, judged(candidate))
    meant = report(candidate, chip("v5e"))
    assert meant.util == pytest.approx(
        (meant.members[0].report.util or 0) ** 0.25 * (meant.members[1].report.util or 0) ** 0.75
    )
    text = screen(report_blocks(made, meant, (), None), 100)
    table = [line.split() for line in text.splitlines() if line.startswith("prefill")]
    assert [line[:7] for line in table] == [
        ["prefill-2k", "25.0%", "2.000", "ms", "1.800", "ms", "0.9000"],
        ["prefill-16k", "75.0%", "2.160", "ms", "1.728", "ms", "0.8000"],
    ]
    printed = results_table(shown([row(made, meant, key_digest(KEY))], 2), width=160)
    assert "prefill-16k" in printed
    assert "1.728" in printed


def test_what_is_suggested_for_several_members_is_said_once() -> None:
    whole, member = after(0.9, 0.8), after(0.9, 0.8).members[0]
    alone = advise(member, report(member, V5E))[0]
    hints = advise(whole, report(whole, V5E))
    assert [hint.suggestion for hint in hints] == [alone.suggestion]
    assert hints[0].observation.startswith("prefill-16k (and prefill-2k): ")
    printed = with_advice(whole, report(whole, V5E), hints)
    assert printed.hints == hints
    assert printed.members[0].report.hints[0] == alone


def test_a_suite_that_loses_at_a_member_says_so_wherever_its_time_is_told() -> None:
    candidate = replace(after(1.5, 0.5), unchecked=("needles",))
    verdict = judged(candidate)
    figures, number = report(candidate, V5E), 2
    text = screen(report_blocks(attempt(candidate, verdict, number=number), figures, (), None), 200)
    assert "1 were not run, because prefill-2k loses more time than a member may" in text
    mean = next(line for line in text.splitlines() if line.startswith("latency is"))
    assert re.fullmatch(
        r"latency is the weighted geometric mean of the members' times: [\d.]+ ms ± [\d.]+ us \[simulated v5e\]", mean
    )
    first = decide(CHAMPION, None, None, POLICY, V5E)
    rows = (
        replace(
            row(attempt(CHAMPION, first, number=1, kind="baseline"), report(CHAMPION, V5E), "key"),
            kernel_sha256="first",
        ),
        row(attempt(candidate, verdict, number=number), figures, "key"),
    )
    loser = next(line for line in results_table(shown(rows, 1), width=200).splitlines() if line.startswith(" 2 "))
    assert " 3.000! " in loser
    assert loser.count("!") == 1
    slower = replace(after(1.5, 2.0), unchecked=("needles",))
    text = screen(report_blocks(attempt(slower, judged(slower)), figures, (), None), 200)
    assert "were not run, because the kernel is slower" in text
