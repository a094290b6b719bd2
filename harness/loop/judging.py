"""Judges one candidate of an attempt: evaluates it, compares it with the champion, decides the verdict."""

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from harness.advice.kernel_changes import kinds_of_change
from harness.candidate import Candidate, Settings
from harness.errors import RatchetError
from harness.judge.evaluate.timing import latency
from harness.judge.evaluate.timing import paired_benchmark as pairing
from harness.judge.verdict import compare_measured, early_rejection
from harness.judge.verdict import decision as deciding
from harness.judge.verdict.champion_evidence import disturbed
from harness.ledger import history
from harness.loop import guard, resimulate
from harness.loop.opponent import Opponent, Run
from harness.loop.search_space import words
from harness.records import (
    MAY_PASS_NEXT_TIME,
    TITLE_MOVES,
    Evidence,
    Failure,
    PairedBenchmark,
    RefusedSetting,
    Row,
    ScreenedSetting,
    Trace,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """One candidate, evaluated and judged."""

    candidate: Candidate
    evidence: Evidence
    paired: PairedBenchmark | None
    opponent: Opponent | None
    verdict: Verdict
    looked_at: int


def judge(
    run: Run, watch: guard.Watch, candidate: Candidate, facing: Opponent | None, *, may_be_known: bool = False
) -> Judging:
    """Judges one candidate; tampering while its processes ran is undone and counts as its failure.

    Raises RatchetError
    - `identical-candidate` if its program was judged before, unless `again`, `rebaseline` or `may_be_known` is set;
    - `same-schedule` if its schedule was judged before, unless `again` or `all_checks` is set or no opponent is given.
    """

    def refuse_identical(trace: Trace) -> None:
        if not (run.options.again or run.options.rebaseline or may_be_known):
            _refuse_identical(run, candidate, trace)

    def is_slower(evidence_so_far: Evidence) -> bool:
        if not run.options.again:
            _refuse_same_schedule(run, evidence_so_far)
        return facing is not None and early_rejection.is_slower(
            evidence_so_far, facing.evidence, run.policy, run.contest.chip
        )

    evidence = replace(run.bench, timed=facing is None).judge(
        candidate,
        run.work,
        after_trace=refuse_identical,
        is_slower=is_slower if facing and not run.options.all_checks else None,
    )
    paired = None
    attempts = compare_measured.attempts_since_accept(run.rows, run.key.source)
    if facing and evidence.failure is None and run.key.source != "simulated":
        paired, evidence, facing = _time_pair(run, run.key.source, evidence, facing, attempts)
    defender = None
    if facing:
        works = (run.champions_work, f"{facing.attempt.number:04d}")
        defender = resimulate.Defender(
            evidence=facing.evidence, candidate=facing.candidate, bench=run.bench, say=run.say, works=works
        )
    resimulated = resimulate.resimulated(evidence, run.work, defender)
    evidence = disturbed(evidence, run.put_right(watch).failure())
    theirs = facing.evidence if facing else None
    fingerprint = evidence.trace.fingerprint if evidence.trace else ""
    looked_at = max(run.options.sweep.looked_at if run.options.sweep else 1, _looked_at(run, fingerprint))
    tries = deciding.Tries(since_accept=attempts, looked_at=looked_at)
    verdict = deciding.decide(evidence, theirs, paired, run.policy, run.contest.chip, resimulated, tries)
    return Judging(
        candidate=candidate, evidence=evidence, paired=paired, opponent=facing, verdict=verdict, looked_at=looked_at
    )


def _refuse_identical(run: Run, candidate: Candidate, trace: Trace) -> None:
    """Raises RatchetError `identical-candidate` if this very program was judged before under the same key.

    An attempt that failed a check does not count if the code has changed since, because at smaller shapes the new
    program may differ from the old one.
    """
    for row in reversed(run.rows):
        same = row.fingerprint == trace.fingerprint and row.key is not None and row.key.counts_for(run.key)
        if same and _failed_a_check_as_other_code(run, row, candidate):
            continue
        if same and row.failure_kind not in MAY_PASS_NEXT_TIME:
            raise RatchetError(
                "identical-candidate",
                f"this is the same program as attempt {row.number} ({row.outcome}: "
                f"{' '.join(row.hypothesis.split())}), traced to the same operations under the same judge; nothing was "
                "recorded. To judge it again, add --again",
            )


def _failed_a_check_as_other_code(run: Run, row: Row, candidate: Candidate) -> bool:
    """True if the attempt failed a check, and its candidate is known to differ from this one in more than comments."""
    if row.failure_kind and row.kernel_sha256 != candidate.sha256:
        with suppress(RatchetError):
            failure = history.attempt(run.ledger.place, row.number).evidence.failure
            before = history.candidate(run.ledger.place, row.number)
            is_check = failure is not None and failure.stage == "correctness"
            return is_check and bool(kinds_of_change(before.source, candidate.source))
    return False


def _refuse_same_schedule(run: Run, evidence: Evidence) -> None:
    """Raises RatchetError `same-schedule` if an attempt with this schedule was judged under this key and passed.

    The same bundles take the same time. Failed attempts do not count, because the kernels may differ in a constant that
    the schedule does not show.
    """
    for row in reversed(run.rows):
        is_same = bool(evidence.schedule) and row.schedule == evidence.schedule and row.key_digest == run.digest
        if is_same and row.outcome != "failed":
            raise RatchetError(
                "same-schedule",
                f"this compiles to the same schedule as attempt {row.number} ({row.outcome}: "
                f"{' '.join(row.hypothesis.split())}), bundle for bundle, so it takes the same time; nothing was "
                "recorded, and no attempt number is used. To judge it all the same, add --again",
            )


def _looked_at(run: Run, fingerprint: str) -> int:
    """The number of programs that a search looked at, if that search screened this program; else 1.

    Only searches under this key since the last accept, rebaseline or revoke count. If several of them screened this
    program, the largest number counts. An unreadable record is ignored.
    """
    counts = [1]
    last = max((row.number for row in run.rows if row.is_title or row.kind == "revoke"), default=0)
    for row in (row for row in run.rows if row.number > last and row.kind not in TITLE_MOVES):
        if fingerprint and row.key_digest == run.digest and row.looked_at != 0:
            with suppress(RatchetError):
                sweep = history.attempt(run.ledger.place, row.number).sweep
                if sweep is not None and any(setting.fingerprint == fingerprint for setting in sweep.screened):
                    counts.append(sweep.looked_at)
    return max(counts)


def _time_pair(
    run: Run, source: Literal["measured", "measured cpu"], evidence: Evidence, opponent: Opponent, attempts: int
) -> tuple[PairedBenchmark | None, Evidence, Opponent]:
    """The paired benchmark (None if it failed), the candidate's evidence, and the opponent.

    The evidence and the opponent have the samples of the benchmark. If the benchmark failed, the evidence has its
    failure instead.
    """
    outcome = pairing.run(
        run.bench.profile_data / run.champions_work,
        run.bench.profile_data / run.work,
        run.contest.member(None).problem,
        run.policy,
        on="cpu" if source == "measured cpu" else run.contest.chip.platform,
        deep=run.bench.deep,
        is_settled=lambda paired: compare_measured.rule(paired, run.policy, attempts).is_final,
    )
    if isinstance(outcome, Failure):
        # Either program may have caused the failure; the candidate is blamed.
        return None, replace(evidence, failure=outcome), opponent
    paired, champion_samples, samples = outcome
    ours = replace(evidence, samples=samples, latency=latency.measured(samples, source))
    theirs = replace(opponent.evidence, samples=champion_samples, latency=latency.measured(champion_samples, source))
    return paired, ours, replace(opponent, evidence=theirs)


def judge_alternatives(
    run: Run, original: Candidate, first: Judging, facing: Opponent | None, champion_candidate: Candidate | None
) -> tuple[tuple[str, Settings] | None, Judging, tuple[RefusedSetting, ...]]:
    """The first alternative that passes (hypothesis and settings), its judging, and the settings that failed before.

    If all fail, returns None and `first` instead, and restores the files of `first`. An alternative is tried if its
    screened time is below the champion's, its text is not the champion's, and no setting with its program has failed.
    """
    refused = [_refusal(run.options.settings, first)]
    programs = {first.evidence.trace.fingerprint} if first.evidence.trace else set()
    files = run.bench.profile_data / run.work
    aside = files.with_name(f"{files.name}-failed")
    tampered = first.verdict.failure is not None and first.verdict.failure.kind == "tampered"
    alternatives = () if tampered else run.options.alternatives
    # A killed sweep may have left this folder.
    shutil.rmtree(aside, ignore_errors=True)
    for hypothesis, setting in alternatives:
        candidate = original.set(setting.settings)
        is_known = setting.fingerprint in programs or candidate == champion_candidate
        if is_known or not _promises_a_win(run, setting, facing):
            continue
        last = refused[-1]
        fails = f"{words(last.settings)} fails: {last.failure.kind}: {last.failure.message}"
        run.say(f"{fails}. Next: {words(setting.settings)}")
        if not aside.exists():
            files.rename(aside)
        run.ledger.restore(candidate)
        watch = guard.begin(run.ledger, run.contest)
        try:
            judging = judge(run, watch, candidate, facing)
        except BaseException:
            run.put_right(watch)
            raise
        if judging.verdict.outcome != "failed":
            shutil.rmtree(aside, ignore_errors=True)
            return (hypothesis, setting.settings), judging, tuple(refused)
        refused.append(_refusal(setting.settings, judging))
        programs.add(setting.fingerprint)
    if aside.exists():
        shutil.rmtree(files, ignore_errors=True)
        aside.rename(files)
        run.ledger.restore(first.candidate)
    return None, first, tuple(refused)


def _promises_a_win(run: Run, setting: ScreenedSetting, facing: Opponent | None) -> bool:
    """True if the screened time is below the champion's time of the same source, or if either time is unknown."""
    if facing is None or run.options.sweep is None or setting.seconds is None:
        return True
    if run.options.sweep.source == "simulated":
        simulation = facing.evidence.simulation
        theirs = simulation.mean_seconds if simulation else None
    else:
        latency = facing.evidence.latency or facing.attempt.evidence.latency
        theirs = latency.seconds if latency and latency.source == run.options.sweep.source else None
    return theirs is None or setting.seconds < theirs


def _refusal(settings: Settings, judging: Judging) -> RefusedSetting:
    assert judging.verdict.failure is not None
    # Only the message is recorded. If all settings fail, the attempt's verdict has the details of the first failure.
    return RefusedSetting(settings=settings, failure=replace(judging.verdict.failure, detail=""))
