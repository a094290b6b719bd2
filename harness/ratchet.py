"""One attempt: evaluate, judge, record; nothing else."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from harness import diff, git, preconditions, simulate, tamper, watching
from harness.contest import PACKAGE, Contest
from harness.errors import RatchetError
from harness.judge import measured
from harness.judge import report as reporting
from harness.judge import verdict as judging
from harness.ledger import Ledger
from harness.measure import duel as duelling
from harness.measure import evidence as measuring
from harness.measure import latency
from harness.portable import portable
from harness.profiles import pruning
from harness.records import (
    Attempt,
    Champion,
    Duel,
    Evidence,
    Failure,
    Key,
    Policy,
    Report,
    Row,
    Source,
    Sweep,
    Trace,
    Verdict,
)
from harness.settings import rewrite
from harness.units import percent, seconds

# Failures that may come from the machine rather than from the candidate: it may be tried again as it is.
MAY_PASS_NEXT_TIME = ("timeout", "killed", "crash", "out-of-memory", "judge-changed", "tampered")

# How an evaluation is asked for whose latency has this source; a TPU is taken where there is one.
ON_SOURCE: dict[Source, str | None] = {"simulated": "simulated", "measured cpu": "cpu", "measured": None}

# What is to be done about a champion that fails.
REVOKE = "./ratchet.sh revoke judges it again, takes its title and gives it to the latest accepted attempt that passes"

Progress = Callable[[str, str, float], None]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How one attempt is to be run, from the command line."""

    settings: tuple[tuple[str, str], ...] = ()
    expected_time_ratio: float | None = None
    on: str | None = None
    deep: bool = False
    again: bool = False
    record: bool = False
    rebaseline: bool = False
    sweep: Sweep | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What an attempt came to. `recorded` is False when an unchanged kernel was only evaluated again."""

    attempt: Attempt
    report: Report
    champion_report: Report | None
    recorded: bool
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What stays the same during one attempt."""

    ledger: Ledger
    contest: Contest
    options: Options
    policy: Policy
    progress: Progress
    say: Say
    number: int
    key: Key
    rows: tuple[Row, ...]

    @property
    def digest(self) -> str:
        return judging.key_digest(self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opponent:
    """The champion as the candidate meets it. `fresh`: it was evaluated inside this attempt."""

    attempt: Attempt
    commit: str
    kernel: bytes
    evidence: Evidence
    fresh: bool


def attempt(
    contest: Contest, hypothesis: str, options: Options, policy: Policy, progress: Progress, say: Say
) -> Judged:
    """Runs one attempt of `contest` from kernel.py in the working tree and records it, whatever its outcome.

    Effects: one commit on the log ref; on accept one on the branch; on anything else kernel.py
    becomes the champion's again. Raises RatchetError before anything is recorded when the
    repository, the judge or the command is not fit for an attempt; files are then as they were.
    """
    ledger = Ledger.open(contest.directory)
    with ledger.lock():
        return attempt_locked(ledger, contest, hypothesis, options, policy, progress, say)


def attempt_locked(
    ledger: Ledger, contest: Contest, hypothesis: str, options: Options, policy: Policy, progress: Progress, say: Say
) -> Judged:
    """The same, for a caller that holds the lock of `ledger` already."""
    for sentence in ledger.recover():
        say(sentence)
    preconditions.refuse_unfit(ledger.repository, contest)
    original = contest.kernel_path.read_bytes()
    kernel = original
    for name, value in options.settings:
        kernel = rewrite(kernel, name, value, "kernel.py")
    rows, skipped = ledger.rows()
    for sentence in skipped:
        say(sentence)
    run = _Run(
        ledger=ledger,
        contest=contest,
        options=options,
        policy=policy,
        progress=progress,
        say=say,
        number=ledger.next_number(),
        key=preconditions.key(contest, measuring.source(contest.chip, options.on)),
        rows=rows,
    )
    ledger.begin(original, f"attempt {run.number}")
    watch = None
    try:
        if kernel != original:
            ledger.restore_kernel(kernel)
        watch = watching.begin(ledger, contest)
        judged = _attempt(run, watch, hypothesis, kernel)
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
    for sentence in pruning.tidy(contest.directory / "profile_data", accepted | {run.number}):
        say(sentence)
    return judged


def evaluate(
    contest: Contest,
    kernel: bytes,
    options: Options,
    policy: Policy,
    progress: Progress,
    *,
    work: str,
    timed: bool = True,
    checked: bool = True,
    after_trace: Callable[[Trace], None] = lambda trace: None,
) -> Evidence:
    """Everything found out about `kernel` (the bytes of a kernel.py); files go to `profile_data/<work>`.

    Not `timed`: a device's latency is left to a duel. Not `checked`: whether it is right is not asked.
    """
    evidence = measuring.gather(
        contest.directory,
        kernel,
        contest.problem,
        contest.chip,
        policy,
        work_directory=contest.directory / "profile_data" / work,
        simulate=simulate.run,
        on=options.on,
        deep=options.deep,
        timed=timed,
        checked=checked,
        after_trace=after_trace,
        progress=progress,
    )
    return replace(evidence, failure=portable(evidence.failure, PACKAGE.parent, contest.directory))


def _put_right(run: _Run, watch: tamper.Watch) -> tamper.Tampering:
    return watching.end(run.ledger, watch, f"{run.number:04d}", is_confined=run.policy.is_confined)


def _attempt(run: _Run, watch: tamper.Watch, hypothesis: str, kernel: bytes) -> Judged:
    """Evaluates, judges and records one candidate; the lock is held and the journal begun."""
    ledger, contest, options = run.ledger, run.contest, run.options
    started = _now()
    head = git.head_commit(ledger.repository)
    champion = ledger.champion()
    champion_kernel = ledger.champion_kernel() if champion else b""
    unchanged = champion is not None and kernel == champion_kernel
    on_its_own = champion is None or unchanged or options.rebaseline
    if champion and not options.rebaseline and ledger.kernel_changed_since(champion):
        run.say(
            f"kernel.py at HEAD is not the champion's (attempt {champion.number}): an ordinary commit changed it. "
            "Attempts are judged against the champion; --rebaseline makes kernel.py the champion as it stands"
        )
    opponent = None
    if champion and not on_its_own:
        opponent = _opponent(run, champion, champion_kernel)

    def refuse_identical(trace: Trace) -> None:
        if not (options.again or options.rebaseline or unchanged):
            _refuse_identical(run, trace)

    evidence = evaluate(
        contest,
        kernel,
        options,
        run.policy,
        run.progress,
        work=f"{run.number:04d}",
        timed=opponent is None,
        after_trace=refuse_identical,
    )
    duel = None
    attempts = measured.attempts_since_accept(run.rows, run.key.source)
    if opponent and evidence.failure is None and run.key.source != "simulated":
        duel, evidence, opponent = _duel(run, run.key.source, evidence, opponent, attempts)
    evidence = replace(evidence, failure=_put_right(run, watch).failure() or evidence.failure)
    theirs = opponent.evidence if opponent else None
    verdict = judging.decide(evidence, theirs, duel, run.policy, contest.chip, attempts)
    report = reporting.report(evidence, contest.chip, run.rows)
    champion_report = reporting.report(opponent.evidence, contest.chip) if opponent else None
    if unchanged and champion:
        verdict = _with_drift(verdict, champion, report, run.key)
    result = Attempt(
        number=run.number,
        contest=ledger.name,
        hypothesis=hypothesis,
        started=started,
        finished=_now(),
        judged_against=head,
        kernel_sha256=sha256(kernel),
        key=run.key,
        policy=run.policy,
        evidence=evidence,
        verdict=verdict,
        champion=_champion_record(ledger, champion, champion_report),
        champion_evidence=opponent.evidence if opponent and opponent.fresh else None,
        duel=duel,
        expected_time_ratio=options.expected_time_ratio,
        settings=options.settings,
        sweep=options.sweep,
        diff=diff.unified(champion_kernel, kernel),
        kind="baseline" if champion is None else "rebaseline" if on_its_own else "experiment",
    )
    lost = champion_fails(champion, evidence) if champion and unchanged else ()
    if unchanged and not options.record:
        return Judged(attempt=result, report=report, champion_report=champion_report, recorded=False, messages=lost)
    row = reporting.row(result, report, run.digest)
    recorded = ledger.record(
        result, row, kernel, new_branch_commit=verdict.outcome == "accept", guarded=_judge_paths(run)
    )
    return Judged(
        attempt=result, report=report, champion_report=champion_report, recorded=True,
        messages=(*lost, *recorded.messages),
    )  # fmt: skip


def champion_fails(champion: Attempt, evidence: Evidence) -> tuple[str, ...]:
    """What is to be said of the `evidence` about the champion's own kernel.py, if it fails now; () if it does not."""
    if evidence.failure is None:
        return ()
    said = f"the champion (attempt {champion.number}) fails: {evidence.failure.kind}: {evidence.failure.message}"
    return (f"{said}. {REVOKE}",)


def _judge_paths(run: _Run) -> tuple[str, ...]:
    """The judge's files as the contest's repository names them; none where the harness lies elsewhere."""
    root = run.ledger.root
    return tuple(path.relative_to(root).as_posix() for path in run.contest.judge_files() if path.is_relative_to(root))


def _opponent(run: _Run, champion: Attempt, kernel: bytes) -> _Opponent:
    """The champion under this attempt's key: its own evidence, what an attempt since found out, or evaluated now."""
    commit = run.ledger.champion_commit() or ""
    if champion.key == run.key and run.key.source == "simulated":
        return _Opponent(attempt=champion, commit=commit, kernel=kernel, evidence=champion.evidence, fresh=False)
    if run.key.source == "simulated":
        known = _known_evidence(run, champion, commit)
        if known:
            return _Opponent(attempt=champion, commit=commit, kernel=kernel, evidence=known, fresh=False)
        differs = preconditions.key_difference(champion.key, run.key)
        run.say(f"{differs}: the champion (attempt {champion.number}) is evaluated again first")
    work = f"{run.number:04d}-champion"

    def progress(stage: str, state: str, taken: float) -> None:
        run.progress(f"champion {stage}", state, taken)

    evidence = evaluate(run.contest, kernel, run.options, run.policy, progress, work=work, timed=False)
    if evidence.failure:
        raise RatchetError(
            "champion-fails",
            f"the champion (attempt {champion.number}) itself fails under "
            f"{preconditions.key_difference(champion.key, run.key)}: "
            f"{evidence.failure.kind}: {evidence.failure.message}. There is nothing to compare with and nothing was "
            f"recorded. {REVOKE}; --rebaseline makes kernel.py the champion if it passes",
        )
    return _Opponent(attempt=champion, commit=commit, kernel=kernel, evidence=evidence, fresh=True)


def _known_evidence(run: _Run, champion: Attempt, commit: str) -> Evidence | None:
    """The champion's evidence under this key as an attempt since then found it, or None: the first of them had to.

    A revoke that gave it the title holds it as its own.
    """
    for row in run.rows:
        if row.number > champion.number and row.key_digest == run.digest:
            try:
                since = run.ledger.attempt(row.number)
            except RatchetError:
                # Named already when the rows were read.
                continue
            if since.revocation:
                if since.revocation.holder == champion.number and row.is_on_branch is not False:
                    return since.evidence
            elif since.champion and since.champion.commit == commit and since.champion_evidence:
                return since.champion_evidence
    return None


def _refuse_identical(run: _Run, trace: Trace) -> None:
    """Raises RatchetError `identical-candidate` where this very program was judged before under the same key."""
    for row in reversed(run.rows):
        same = row.fingerprint == trace.fingerprint and row.key_digest == run.digest
        if same and row.failure_kind not in MAY_PASS_NEXT_TIME:
            raise RatchetError(
                "identical-candidate",
                f"this is the same program as attempt {row.number} "
                f"({row.outcome}: {' '.join(row.hypothesis.split())}), "
                "traced to the same operations under the same judge; nothing was recorded. --again judges it once more",
            )


def _duel(
    run: _Run, source: Literal["measured", "measured cpu"], evidence: Evidence, opponent: _Opponent, attempts: int
) -> tuple[Duel | None, Evidence, _Opponent]:
    """Champion and candidate timed in turn; their evidence then holds the samples and latencies of the duel."""
    folder = run.contest.directory / "profile_data"
    outcome = duelling.run(
        folder / f"{run.number:04d}-champion",
        folder / f"{run.number:04d}",
        run.contest.problem,
        run.policy,
        on="cpu" if source == "measured cpu" else run.contest.chip.platform,
        deep=run.options.deep,
        is_settled=lambda duel: measured.rule(duel, run.policy, attempts).is_final,
    )
    if isinstance(outcome, Failure):
        # Whose fault it was cannot be told from outside; doubt falls on the candidate.
        return None, replace(evidence, failure=outcome), opponent
    duel, champion_samples, samples = outcome
    ours = replace(evidence, samples=samples, latency=latency.measured(samples, source))
    theirs = replace(opponent.evidence, samples=champion_samples, latency=latency.measured(champion_samples, source))
    return duel, ours, replace(opponent, evidence=theirs)


def _with_drift(verdict: Verdict, champion: Attempt, report: Report, own: Key) -> Verdict:
    """The verdict on an unchanged kernel: how far its latency is from what it was when it was accepted."""
    before = champion.evidence.latency
    sentence = f"kernel.py is the champion's (attempt {champion.number})"
    if champion.key != own:
        sentence += f", evaluated under {preconditions.key_difference(champion.key, own)}"
    ratio = None
    then, now = ((key.chip, key.problem, key.source) for key in (champion.key, own))
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


def sha256(kernel: bytes) -> str:
    """The hash by which records know a kernel.py."""
    return hashlib.sha256(kernel).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
