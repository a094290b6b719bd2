"""Judges one attempt again, from git, under the present judge; nothing is recorded."""

from collections.abc import Iterator
from dataclasses import fields, replace

from harness.advice import report as reporting
from harness.contest import Contest, load
from harness.judge.evaluate.request import Progress
from harness.judge.verdict import decision as judging
from harness.judge.verdict.changes import changes
from harness.ledger import Ledger, history
from harness.loop import draw_text, resimulate
from harness.loop.bench import CHAMPION, ON_SOURCE, Bench
from harness.loop.opponent import time_ratio
from harness.records import Attempt, Check, Evidence, Judgement, Key, Policy, RepeatedCheck, Replay, Statement, Verdict


def replay(contest: Contest, number: int, progress: Progress) -> Replay:
    """Evaluates and judges attempt `number` of the contest again, whatever its outcome was.

    - Inputs: fresh inputs, and the inputs of the recorded checks, drawn again by seed.
    - Files: kernel.py comes from git and is evaluated below `profile_data/replay/`. The working tree's kernel.py and
      the ledger are not changed.
    - As recorded: the chip and the source of the latency.
    - As at present: prepare.py, judge, policy and versions. The differences are reported.
    - Opponent: a simulated latency is judged against the champion that the attempt had, which is evaluated again if the
      key differs. A measured latency gets no verdict, because that needs a paired benchmark, which only an attempt
      makes.

    Raises RatchetError `busy`, and the errors of reading the attempt or its kernel.
    """
    ledger = Ledger.open(contest.directory)
    attempt = history.attempt(ledger.place, number)
    candidate = history.candidate(ledger.place, number)
    # `prepare.py` names one chip; the attempt may have been judged for another.
    contest = load(contest.directory, attempt.evidence.chip)
    bench = Bench(contest=contest, progress=progress, on=ON_SOURCE[attempt.key.source], reuses=False)
    policy, key = bench.policy, contest.key(bench.source)
    work = f"replay/{number:04d}"
    # Recorded failures first.
    draws = (*draw_text.failing(attempt.evidence), *draw_text.of(attempt.evidence.all_checks))
    # The lock is kept to the end, because the files of the first evaluation are read again there.
    with bench.locked(f"replay {number}"):
        evidence = replace(bench, draws=draws).judge(candidate, work)
        opponent = _opponent(ledger, attempt, bench, key) if evidence.failure is None else None
        resimulated = resimulate.resimulated(evidence, work, _defender(ledger, attempt, opponent, bench))
    tries = judging.Tries(looked_at=attempt.looked_at)
    verdict = judging.decide(evidence, opponent, None, policy, contest.chip, resimulated, tries)
    then = _judgement(attempt.evidence, attempt.verdict, contest)
    now = _judgement(evidence, verdict, contest)
    return Replay(
        number=number,
        hypothesis=attempt.hypothesis,
        kernel_sha256=attempt.kernel_sha256,
        then=then,
        now=now,
        differences=_differences(attempt, key, policy, evidence.problem),
        drift=time_ratio(attempt, then.seconds, key, now.seconds),
        changes=changes(evidence, attempt.evidence),
        scratch=f"profile_data/{work}",
        redrawn=tuple(_redrawn(check, evidence) for check in attempt.evidence.all_checks),
        are_same_draws=attempt.key.checks == key.checks,
    )


def _redrawn(then: Check, evidence: Evidence) -> RepeatedCheck:
    """The recorded check next to the check of the same draw in `evidence`."""
    named = (then.draw, then.family)
    now = next((check for check in evidence.all_checks if (check.draw, check.family) == named), None)
    if now is None and then.mode != "device":
        # At some shapes, today's judge uses the interpreter instead of the CPU reference program, or the other way
        # round, so the mode may differ.
        elsewhere = (check for check in evidence.all_checks if check.mode != "device")
        now = next(
            (check_ for check_ in elsewhere if (replace(check_.draw, mode=then.mode), check_.family) == named), None
        )
    if now is not None:
        why_not = ""
    elif then.mode == "device":
        why_not = "it needs the device"
    elif evidence.failure is not None:
        why_not = f"{evidence.failure.kind} ended the judgement before this check"
    elif then.mode == "interpret":
        why_not = "it was interpreted at a shape that is no longer checked"
    else:
        why_not = "the judge no longer has this family, shape or probe"
    return RepeatedCheck(
        family=then.family,
        draw=then.draw,
        then=_fraction(then),
        passed_then=then.passed,
        now=_fraction(now) if now else None,
        passes_now=now.passed if now else None,
        why_not=why_not,
    )


def _fraction(check: Check) -> float | None:
    """The error as a fraction of its tolerance."""
    return None if check.error is None or not check.tolerance else check.error / check.tolerance


def _opponent(ledger: Ledger, attempt: Attempt, bench: Bench, key: Key) -> Evidence | None:
    """The evidence about the attempt's champion; None if there is none, or if only a paired benchmark can decide."""
    champion = attempt.champion
    # A baseline, a rebaseline and an undo were not compared with a champion.
    if attempt.kind != "experiment" or champion is None or key.source != "simulated":
        return None
    if attempt.key.counts_for(key):
        return attempt.champion_evidence or history.attempt(ledger.place, champion.attempt).evidence
    return bench.judge(history.candidate(ledger.place, champion.attempt), _champions_work(attempt), CHAMPION)


def _defender(ledger: Ledger, attempt: Attempt, opponent: Evidence | None, bench: Bench) -> resimulate.Defender | None:
    """The champion that the attempt was judged against, for testing a simulated gain."""
    if opponent is None or attempt.champion is None:
        return None
    return resimulate.Defender(
        evidence=opponent,
        candidate=history.candidate(ledger.place, attempt.champion.attempt),
        works=(_champions_work(attempt), f"{attempt.champion.attempt:04d}"),
        bench=bench,
        say=lambda sentence: bench.progress(sentence, "done", 0.0),
    )


def _champions_work(attempt: Attempt) -> str:
    return f"replay/{attempt.number:04d}-champion"


def _judgement(evidence: Evidence, verdict: Verdict, contest: Contest) -> Judgement:
    report = reporting.report(evidence, contest.chip)
    used = [
        (f"{check.family} ({check.mode})", part)
        for check in evidence.all_checks
        if (part := _fraction(check)) is not None
    ]
    return Judgement(
        outcome=verdict.outcome,
        reasons=verdict.reasons,
        failure_kind=verdict.failure.kind if verdict.failure else "",
        source=report.source,
        seconds=report.seconds,
        plus_minus_seconds=report.plus_minus_seconds,
        score=report.score,
        time_ratio=verdict.time_ratio,
        checks_passed=sum(check.passed for check in evidence.all_checks),
        checks=len(evidence.all_checks),
        tightest=max(used, key=lambda pair: pair[1], default=None),
        fingerprint=evidence.trace.fingerprint if evidence.trace else "",
        certificate=evidence.certified,
    )


def _differences(attempt: Attempt, key: Key, policy: Policy, problem: Statement) -> tuple[str, ...]:
    """The differences since the attempt was judged, a phrase each."""
    differences = [f"{name} {old or 'none'} -> {new or 'none'}" for name, old, new in _changed(attempt.key, key)]
    if attempt.evidence.problem.title != problem.title:
        differences.append(f"problem: {attempt.evidence.problem.title} -> {problem.title}")
    differences += [f"policy {name} {old} -> {new}" for name, old, new in _changed(attempt.policy, policy)]
    if key.source != "simulated" and attempt.kind == "experiment":
        differences.append(
            "the kernel was timed alone, not alternately with the champion's; for a verdict, make an attempt (--again)"
        )
    return tuple(differences)


def _changed(then: Key | Policy, now: Key | Policy) -> Iterator[tuple[str, object, object]]:
    """Name and both values of each field that differs."""
    for field in fields(then):
        old, new = getattr(then, field.name), getattr(now, field.name)
        if old != new:
            yield field.name, old, new
