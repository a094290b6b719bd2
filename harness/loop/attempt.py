"""One attempt: evaluate, judge, record; nothing else."""

import ast
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from harness.advice import report as reporting
from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import RatchetError
from harness.judge.evaluate import evaluation as measuring
from harness.judge.evaluate.request import Listener, Progress
from harness.judge.evaluate.timing import latency
from harness.judge.evaluate.timing import paired_benchmark as pairing
from harness.judge.key import key_difference, problem_digest
from harness.judge.verdict import compare_measured
from harness.judge.verdict import decision as judging
from harness.judge.verdict.champion_evidence import disturbed
from harness.ledger import Ledger, diff, git, history
from harness.loop import guard, preconditions, rescale, resimulate
from harness.loop.champion_evaluation import Opponent, Run, champion_fails, defender, opponent
from harness.loop.evaluate import MAY_PASS_NEXT_TIME, Alternative, Options, Say, evaluate, may_pass_next_time
from harness.loop.search_state import CHOSEN
from harness.records import (
    TITLE_MOVES,
    Attempt,
    Champion,
    Evidence,
    Failure,
    Key,
    PairedBenchmark,
    Policy,
    Refused,
    Report,
    Trace,
    Verdict,
)
from harness.sandbox import warm
from harness.units import percent, seconds
from harness.workbench.profiles import pruning


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What an attempt came to.

    `recorded` is False when the champion's own kernel was evaluated again; what came of it is a note on the champion
    if `noted`, and is not kept otherwise.
    """

    attempt: Attempt
    report: Report
    champion_report: Report | None
    recorded: bool
    messages: tuple[str, ...]
    noted: bool = False


def attempt(
    contest: Contest, hypothesis: str, options: Options, policy: Policy, progress: Progress, say: Say
) -> Judged:
    """Runs one attempt of `contest` from kernel.py in the working tree and records it, whatever its outcome.

    Effects: one commit on the log ref; on accept one on the branch; on anything else kernel.py
    becomes the champion's again. Raises RatchetError before anything is recorded when the
    repository, the judge or the command is not fit for an attempt; files are then as they were.
    """
    ledger = Ledger.open(contest.directory)
    if policy.is_confined:
        # JAX is imported while the repository is looked at.
        warm.up()
    with ledger.lock():
        return attempt_locked(ledger, contest, hypothesis, options, policy, progress, say)


def attempt_locked(
    ledger: Ledger, contest: Contest, hypothesis: str, options: Options, policy: Policy, progress: Progress, say: Say
) -> Judged:
    """The same, for a caller that holds the lock of `ledger` already."""
    for sentence in ledger.recover():
        say(sentence)
    preconditions.refuse_unfit(ledger.place.repository, contest)
    original = contest.candidate()
    refuse_no_python(original)
    candidate = original.set(options.settings)
    rows, skipped = history.rows(ledger.place)
    for sentence in skipped:
        say(sentence)
    run = Run(
        ledger=ledger,
        contest=contest,
        options=options,
        policy=policy,
        progress=progress,
        say=say,
        number=ledger.next_number(),
        key=contest.key(measuring.source(contest.chip, options.on)),
        rows=rows,
    )
    ledger.begin(original, f"attempt {run.number}")
    watch, data = None, contest.directory / "profile_data"
    try:
        if candidate != original:
            ledger.restore(candidate)
        watch = guard.begin(ledger, contest)
        with pruning.in_use(data):
            judged = _attempt(run, watch, hypothesis, original, candidate)
    except BaseException:
        for sentence in _put_right(run, watch).sentences if watch else ():
            say(sentence)
        # Also Ctrl-C: what was only begun is undone, what was already decided is finished.
        for sentence in ledger.recover():
            say(sentence)
        raise
    if not judged.recorded:
        ledger.abandon()
    accepted = {row.number for row in rows if row.outcome == "accept"}
    for sentence in pruning.tidy(data, accepted | {run.number}, ledger.champion()):
        say(sentence)
    return judged


def refuse_no_python(candidate: Candidate) -> None:
    """Raises RatchetError `syntax-error` where a file of a candidate is no Python: then no idea was tried."""
    for name, source in candidate.files.items():
        try:
            ast.parse(source, name)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            where = f"{name} line {line}" if line else name
            raise RatchetError(
                "syntax-error",
                f"{where}: {getattr(error, 'msg', None) or error}; nothing was judged or recorded, and no attempt's "
                "number is taken",
            ) from None


def _put_right(run: Run, watch: guard.Watch) -> guard.Tampering:
    return guard.end(run.ledger, watch, f"{run.number:04d}", is_confined=run.policy.is_confined)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """One candidate, evaluated and judged."""

    candidate: Candidate
    evidence: Evidence
    paired: PairedBenchmark | None
    opponent: Opponent | None
    verdict: Verdict
    looked_at: int


def _attempt(run: Run, watch: guard.Watch, hypothesis: str, original: Candidate, candidate: Candidate) -> Judged:
    """Evaluates, judges and records one candidate; the lock is held and the journal begun."""
    ledger, contest, options = run.ledger, run.contest, run.options
    started = _now()
    head = git.head_commit(ledger.place.repository)
    champion = ledger.champion()
    champion_candidate = ledger.champion_candidate() if champion else None
    adopts = champion is not None and options.rebaseline and ledger.kernel_changed_since(champion)
    unchanged = champion is not None and candidate == champion_candidate and not adopts
    on_its_own = champion is None or unchanged or options.rebaseline
    if champion and not options.rebaseline and ledger.kernel_changed_since(champion):
        run.say(
            f"kernel.py at HEAD is not the champion's (attempt {champion.number}): an ordinary commit changed it. "
            "Attempts are judged against the champion; --rebaseline makes kernel.py the champion as it stands"
        )
    if unchanged and champion:
        kept = "what comes of it is kept as a note" if options.record else "not recorded"
        run.say(f"kernel.py is that of the champion (attempt {champion.number}): it is judged again, {kept}")
    facing = None
    if champion and champion_candidate and not on_its_own:
        facing = opponent(run, champion, champion_candidate)
    found = _decided(run, watch, candidate, facing, may_be_known=unchanged)
    settings, sweep = options.settings, options.sweep
    if found.verdict.outcome == "failed" and options.alternatives and not unchanged:
        chosen, found, refused = _in_its_place(run, original, found, facing, champion_candidate)
        sweep = replace(sweep, refused=refused) if sweep else None
        if chosen is not None:
            settings, hypothesis = chosen.settings, chosen.hypothesis
    evidence, verdict, facing = found.evidence, found.verdict, found.opponent
    report = reporting.report(evidence, contest.chip, run.rows)
    champion_report = reporting.report(facing.evidence, contest.chip) if facing else None
    if unchanged and champion:
        verdict = _with_drift(verdict, champion, report, run.key)
    result = Attempt(
        number=run.number,
        contest=ledger.place.name,
        hypothesis=hypothesis,
        started=started,
        finished=_now(),
        judged_against=head,
        kernel_sha256=found.candidate.sha256,
        key=run.key,
        policy=run.policy,
        evidence=evidence,
        verdict=verdict,
        champion=_champion_record(ledger, champion, champion_report),
        champion_evidence=facing.evidence if facing and facing.fresh else None,
        paired=found.paired,
        expected_time_ratio=options.expected_time_ratio,
        settings=settings,
        sweep=sweep,
        looked_at=found.looked_at,
        diff=diff.unified(champion_candidate.text if champion_candidate else b"", found.candidate.text),
        kind="baseline" if champion is None else "rebaseline" if on_its_own else "experiment",
    )
    if unchanged and champion:
        noted = options.record and _keep_note(run, watch, champion, evidence)
        ledger.log_notes()
        lost = champion_fails(champion, evidence)
        return Judged(
            attempt=result, report=report, champion_report=champion_report, recorded=False, messages=lost, noted=noted
        )
    if facing and facing.fresh and champion and run.key.source == "simulated":
        # In the file before the attempt is recorded, so that an accept commits it.
        _keep_note(run, watch, champion, facing.evidence)
    row = reporting.row(result, report, run.digest)
    recorded = ledger.record(
        result, row, found.candidate, new_branch_commit=verdict.outcome == "accept", guarded=_judge_paths(run)
    )
    ledger.log_notes()
    return Judged(
        attempt=result, report=report, champion_report=champion_report, recorded=True, messages=recorded.messages
    )


def _keep_note(run: Run, watch: guard.Watch, champion: Attempt, evidence: Evidence) -> bool:
    """Keeps in the file what came of checking the champion again; False where the machine may be to blame."""
    if evidence.failure is not None and may_pass_next_time(evidence.failure):
        run.say(f"no note was kept of it: {evidence.failure.kind} may come from this machine and not from the kernel")
        return False
    note = rescale.note_of(
        evidence, run.contest, run.key, champion.number, champion.kernel_sha256, run.number - 1, is_checked=True
    )
    run.ledger.keep_notes([note])
    guard.wrote_notes(run.ledger, watch)
    return True


def _decided(
    run: Run, watch: guard.Watch, candidate: Candidate, facing: Opponent | None, *, may_be_known: bool = False
) -> _Decided:
    """One candidate under the judge; what was changed while its processes ran is put right, and is its failure.

    Raises RatchetError `identical-candidate` where its program was judged before, unless it `may_be_known`.
    """

    def refuse_identical(trace: Trace) -> None:
        if not (run.options.again or run.options.rebaseline or may_be_known):
            _refuse_identical(run, trace)

    def is_slower(found: Evidence) -> bool:
        return facing is not None and judging.is_slower(found, facing.evidence, run.policy, run.contest.chip)

    asked = replace(run.request(candidate, f"{run.number:04d}"), timed=facing is None)
    evidence = evaluate(
        asked,
        Listener(
            progress=run.progress, after_trace=refuse_identical,
            is_slower=is_slower if facing and not run.options.all_checks else None,
        ),
    )  # fmt: skip
    paired = None
    attempts = compare_measured.attempts_since_accept(run.rows, run.key.source)
    if facing and evidence.failure is None and run.key.source != "simulated":
        paired, evidence, facing = _paired(run, run.key.source, evidence, facing, attempts)
    defending = defender(run, facing) if facing else None
    resimulated = resimulate.resimulated(run.contest, evidence, f"{run.number:04d}", defending, run.policy)
    evidence = disturbed(evidence, _put_right(run, watch).failure())
    theirs = facing.evidence if facing else None
    fingerprint = evidence.trace.fingerprint if evidence.trace else ""
    own = run.options.sweep.looked_at if run.options.sweep else 1
    looked_at = max(own, _looked_at(run, fingerprint))
    tries = judging.Tries(since_accept=attempts, looked_at=looked_at)
    verdict = judging.decide(evidence, theirs, paired, run.policy, run.contest.chip, resimulated, tries)
    return _Decided(
        candidate=candidate, evidence=evidence, paired=paired, opponent=facing, verdict=verdict, looked_at=looked_at
    )


def _looked_at(run: Run, fingerprint: str) -> int:
    """How many programs the searches since the last accept looked at that saw this one, under this key; 1: none did.

    A rebaseline is an accept here. If several did, the largest number. A record that cannot be read counts as one that
    says nothing.
    """
    counts = [1]
    last = max((row.number for row in run.rows if row.is_title or row.kind == "revoke"), default=0)
    for row in (row for row in run.rows if row.number > last and row.kind not in TITLE_MOVES):
        if fingerprint and row.key_digest == run.digest and CHOSEN in row.hypothesis:
            with suppress(RatchetError):
                sweep = history.attempt(run.ledger.place, row.number).sweep
                if sweep is not None and any(one.fingerprint == fingerprint for one in sweep.screened):
                    counts.append(sweep.looked_at)
    return max(counts)


def _in_its_place(
    run: Run, original: Candidate, first: _Decided, facing: Opponent | None, champion_candidate: Candidate | None
) -> tuple[Alternative | None, _Decided, tuple[Refused, ...]]:
    """The first alternative that does not fail, judged in place of `first`, and every setting that failed before it.

    Where all fail it is `first` again, whose files are put back. Tried is what promises a win: its screened time is
    below the champion's. The same program as one that failed is not evaluated.
    """
    refused = [_refused(run.options.settings, first)]
    programs = {first.evidence.trace.fingerprint} if first.evidence.trace else set()
    files = run.contest.directory / "profile_data" / f"{run.number:04d}"
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
            found = _decided(run, watch, candidate, facing)
        except BaseException:
            _put_right(run, watch)
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


def _refused(settings: tuple[tuple[str, str], ...], found: _Decided) -> Refused:
    assert found.verdict.failure is not None
    # What a record keeps of it is one sentence: the whole of the first failure is the attempt's own.
    return Refused(settings=settings, failure=replace(found.verdict.failure, detail=""))


def _setting(settings: tuple[tuple[str, str], ...]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings)


def _words(failure: Failure) -> str:
    return f"{failure.kind}: {failure.message}"


def _judge_paths(run: Run) -> tuple[str, ...]:
    """The judge's files as the contest's repository names them; none where the harness lies elsewhere."""
    root = run.ledger.place.root
    return tuple(path.relative_to(root).as_posix() for path in run.contest.judge_files() if path.is_relative_to(root))


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


def _paired(
    run: Run, source: Literal["measured", "measured cpu"], evidence: Evidence, opponent: Opponent, attempts: int
) -> tuple[PairedBenchmark | None, Evidence, Opponent]:
    """Champion and candidate timed in turn; their evidence then holds the samples and latencies of that."""
    folder = run.contest.directory / "profile_data"
    outcome = pairing.run(
        folder / f"{run.number:04d}-champion",
        folder / f"{run.number:04d}",
        run.contest.member(None).problem,
        run.policy,
        on="cpu" if source == "measured cpu" else run.contest.chip.platform,
        deep=run.options.deep,
        is_settled=lambda paired: compare_measured.rule(paired, run.policy, attempts).is_final,
    )
    if isinstance(outcome, Failure):
        # Whose fault it was cannot be told from outside; doubt falls on the candidate.
        return None, replace(evidence, failure=outcome), opponent
    paired, champion_samples, samples = outcome
    ours = replace(evidence, samples=samples, latency=latency.measured(samples, source))
    theirs = replace(opponent.evidence, samples=champion_samples, latency=latency.measured(champion_samples, source))
    return paired, ours, replace(opponent, evidence=theirs)


def _with_drift(verdict: Verdict, champion: Attempt, report: Report, own: Key) -> Verdict:
    """The verdict on an unchanged kernel: how far its latency is from what it was when it was accepted."""
    before = champion.evidence.latency
    sentence = f"kernel.py is the champion's (attempt {champion.number})"
    if not champion.key.counts_for(own):
        sentence += f", evaluated under {key_difference(champion.key, own)}"
    ratio = None
    then = (champion.key.chip, problem_digest(champion.evidence.problem), champion.key.source)
    now = (own.chip, own.problem, own.source)
    if then == now and report.seconds and before and before.seconds:
        ratio = report.seconds / before.seconds
        sentence += f": {seconds(report.seconds)} against {seconds(before.seconds)} then, drift {percent(ratio - 1, 2)}"
    return replace(verdict, reasons=(sentence, *verdict.reasons), time_ratio=ratio)


def _champion_record(ledger: Ledger, champion: Attempt | None, report: Report | None) -> Champion | None:
    """The champion with what it scored under this attempt's key, if it was compared with."""
    if champion is None:
        return None
    return Champion(
        attempt=champion.number,
        commit=ledger.champion_commit() or "",
        score=report.score if report else None,
        seconds=report.seconds if report else None,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
