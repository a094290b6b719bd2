"""One candidate of an attempt under the judge: evaluated, held against the champion, decided."""

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.judge.evaluate.timing import latency
from harness.judge.evaluate.timing import paired_benchmark as pairing
from harness.judge.verdict import compare_measured, early_rejection
from harness.judge.verdict import decision as deciding
from harness.judge.verdict.champion_evidence import disturbed
from harness.ledger import history
from harness.loop import guard, resimulate
from harness.loop.opponent import Opponent, Run, defender
from harness.loop.options import Alternative
from harness.records import (
    MAY_PASS_NEXT_TIME,
    TITLE_MOVES,
    Evidence,
    Failure,
    PairedBenchmark,
    RefusedSetting,
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
    """One candidate under the judge; what was changed while its processes ran is put right, and is its failure.

    Raises RatchetError `identical-candidate` where its program was judged before, unless it `may_be_known`.
    """

    def refuse_identical(trace: Trace) -> None:
        if not (run.options.again or run.options.rebaseline or may_be_known):
            _refuse_identical(run, trace)

    def is_slower(found: Evidence) -> bool:
        if not run.options.again:
            _refuse_same_schedule(run, found)
        return facing is not None and early_rejection.is_slower(found, facing.evidence, run.policy, run.contest.chip)

    evidence = replace(run.bench, timed=facing is None).judge(
        candidate,
        run.work,
        after_trace=refuse_identical,
        is_slower=is_slower if facing and not run.options.all_checks else None,
    )
    paired = None
    attempts = compare_measured.attempts_since_accept(run.rows, run.key.source)
    if facing and evidence.failure is None and run.key.source != "simulated":
        paired, evidence, facing = _paired(run, run.key.source, evidence, facing, attempts)
    defending = defender(run, facing) if facing else None
    resimulated = resimulate.resimulated(run.contest, evidence, run.work, defending, run.policy)
    evidence = disturbed(evidence, run.put_right(watch).failure())
    theirs = facing.evidence if facing else None
    fingerprint = evidence.trace.fingerprint if evidence.trace else ""
    own = run.options.sweep.looked_at if run.options.sweep else 1
    looked_at = max(own, _looked_at(run, fingerprint))
    tries = deciding.Tries(since_accept=attempts, looked_at=looked_at)
    verdict = deciding.decide(evidence, theirs, paired, run.policy, run.contest.chip, resimulated, tries)
    return Judging(
        candidate=candidate, evidence=evidence, paired=paired, opponent=facing, verdict=verdict, looked_at=looked_at
    )


def _refuse_identical(run: Run, trace: Trace) -> None:
    """Raises RatchetError `identical-candidate` where this very program was judged before under the same key."""
    for row in reversed(run.rows):
        same = row.fingerprint == trace.fingerprint and row.key is not None and row.key.counts_for(run.key)
        if same and row.failure_kind not in MAY_PASS_NEXT_TIME:
            raise RatchetError(
                "identical-candidate",
                f"this is the same program as attempt {row.number} "
                f"({row.outcome}: {' '.join(row.hypothesis.split())}), "
                "traced to the same operations under the same judge; nothing was recorded. To judge it again, "
                "add --again",
            )


def _refuse_same_schedule(run: Run, evidence: Evidence) -> None:
    """Raises RatchetError `same-schedule` where it compiles to what was judged before, under this key, and passed.

    The same bundles take the same time. What failed may differ in a constant that the schedule does not show.
    """
    for row in reversed(run.rows):
        is_same = bool(evidence.schedule) and row.schedule == evidence.schedule and row.key_digest == run.digest
        if is_same and row.outcome != "failed":
            raise RatchetError(
                "same-schedule",
                f"this compiles to the same schedule as attempt {row.number} ({row.outcome}: "
                f"{' '.join(row.hypothesis.split())}), bundle for bundle, so it takes the same time; nothing was "
                "recorded, and no attempt's number is taken. To judge it all the same, add --again",
            )


def _looked_at(run: Run, fingerprint: str) -> int:
    """How many programs the searches since the last accept looked at that saw this one, under this key; 1: none did.

    A rebaseline is an accept here. If several did, the largest number. A record that cannot be read counts as one that
    says nothing.
    """
    counts = [1]
    last = max((row.number for row in run.rows if row.is_title or row.kind == "revoke"), default=0)
    for row in (row for row in run.rows if row.number > last and row.kind not in TITLE_MOVES):
        if fingerprint and row.key_digest == run.digest and row.looked_at != 0:
            with suppress(RatchetError):
                sweep = history.attempt(run.ledger.place, row.number).sweep
                if sweep is not None and any(one.fingerprint == fingerprint for one in sweep.screened):
                    counts.append(sweep.looked_at)
    return max(counts)


def _paired(
    run: Run, source: Literal["measured", "measured cpu"], evidence: Evidence, opponent: Opponent, attempts: int
) -> tuple[PairedBenchmark | None, Evidence, Opponent]:
    """Champion and candidate timed in turn; their evidence then holds the samples and latencies of that."""
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
        # Whose fault it was cannot be told from outside; doubt falls on the candidate.
        return None, replace(evidence, failure=outcome), opponent
    paired, champion_samples, samples = outcome
    ours = replace(evidence, samples=samples, latency=latency.measured(samples, source))
    theirs = replace(opponent.evidence, samples=champion_samples, latency=latency.measured(champion_samples, source))
    return paired, ours, replace(opponent, evidence=theirs)


def judge_alternatives(
    run: Run, original: Candidate, first: Judging, facing: Opponent | None, champion_candidate: Candidate | None
) -> tuple[Alternative | None, Judging, tuple[RefusedSetting, ...]]:
    """The first alternative that does not fail, judged in place of `first`, and every setting that failed before it.

    Where all fail it is `first` again, whose files are put back. Tried is what promises a win: its screened time is
    below the champion's. The same program as one that failed is not evaluated.
    """
    refused = [_refused(run.options.settings, first)]
    programs = {first.evidence.trace.fingerprint} if first.evidence.trace else set()
    files = run.bench.profile_data / run.work
    aside = files.with_name(f"{files.name}-failed")
    tampered = first.verdict.failure is not None and first.verdict.failure.kind == "tampered"
    worth = [] if tampered else [one for one in run.options.alternatives if _promises_a_win(one, facing)]
    # Of a sweep that was killed.
    shutil.rmtree(aside, ignore_errors=True)
    for one in worth:
        candidate = original.set(one.settings)
        if one.fingerprint in programs or candidate == champion_candidate:
            continue
        run.say(
            f"{_setting(refused[-1].settings)} fails: {_words(refused[-1].failure)}. Next: {_setting(one.settings)}"
        )
        if not aside.exists():
            files.rename(aside)
        run.ledger.restore(candidate)
        watch = guard.begin(run.ledger, run.contest)
        try:
            found = judge(run, watch, candidate, facing)
        except BaseException:
            run.put_right(watch)
            raise
        if found.verdict.outcome != "failed":
            shutil.rmtree(aside, ignore_errors=True)
            return one, found, tuple(refused)
        refused.append(_refused(one.settings, found))
        programs.add(one.fingerprint)
    if aside.exists():
        shutil.rmtree(files, ignore_errors=True)
        aside.rename(files)
        run.ledger.restore(first.candidate)
    return None, first, tuple(refused)


def _promises_a_win(one: Alternative, facing: Opponent | None) -> bool:
    """True if the screened time is below the champion's of the same source, or nobody knows that one."""
    if facing is None:
        return True
    if one.source == "simulated":
        run = facing.evidence.simulation
        theirs = run.mean_seconds if run else None
    else:
        taken = facing.evidence.latency or facing.attempt.evidence.latency
        theirs = taken.seconds if taken and taken.source == one.source else None
    return theirs is None or one.seconds < theirs


def _refused(settings: tuple[tuple[str, str], ...], found: Judging) -> RefusedSetting:
    assert found.verdict.failure is not None
    # What a record keeps of it is one sentence: the whole of the first failure is the attempt's own.
    return RefusedSetting(settings=settings, failure=replace(found.verdict.failure, detail=""))


def _setting(settings: tuple[tuple[str, str], ...]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings)


def _words(failure: Failure) -> str:
    return f"{failure.kind}: {failure.message}"
