"""Judges the champion again: if it fails, its title goes to the latest accepted attempt that passes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness import contest as contests
from harness.advice import report as reporting
from harness.candidate import Candidate
from harness.contest import Contest
from harness.errors import RatchetError
from harness.hardware import chip
from harness.judge.evaluate.request import Progress
from harness.judge.key import key_difference, key_digest
from harness.judge.verdict import decision as judging
from harness.judge.verdict.champion_evidence import disturbed
from harness.ledger import Ledger, diff, git, history
from harness.ledger import champion as champions
from harness.loop import guard, preconditions
from harness.loop.bench import ON_SOURCE, Bench, Say, now, say_all
from harness.loop.draw_text import failing
from harness.loop.opponent import champion_record, drift_since
from harness.records import (
    MAY_PASS_NEXT_TIME,
    Attempt,
    Draw,
    Evidence,
    Failure,
    Key,
    Policy,
    RejudgedAttempt,
    Revocation,
    Row,
    Trace,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeResult:
    """The result of judging the champion again, by `outcome`.

    - `passes` and `undecided`: the title stays and nothing is recorded.
    - `revoked`: another attempt holds the title.
    - `no champion`: no attempt passes.

    `time_ratio` is the champion's time, now / then, if both are known.
    """

    outcome: Literal["passes", "undecided", "revoked", "no champion"]
    champion: int
    reasons: tuple[str, ...]
    time_ratio: float | None = None
    attempt: Attempt | None = None
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recheck:
    """The constant parts of a revoke; `force`: failures that the machine may have caused count as the kernel's."""

    ledger: Ledger
    bench: Bench
    key: Key
    number: int
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecheckResult:
    """One attempt, judged again by the present judge."""

    attempt: Attempt
    candidate: Candidate
    evidence: Evidence
    verdict: Verdict

    @property
    def failure(self) -> Failure | None:
        """The failure, of kind `inconclusive` for a verdict in doubt; None if the verdict is an accept."""
        if self.verdict.outcome == "accept":
            return None
        doubt = Failure(stage="latency", kind="inconclusive", message="; ".join(self.verdict.reasons))
        return self.verdict.failure or doubt


class _SameProgramError(Exception):
    """The kernel that was just traced has the program of an attempt that failed earlier in this revoke."""

    def __init__(self, other: RejudgedAttempt) -> None:
        super().__init__()
        self.other = other


def revoke(
    contest: Contest,
    reason: str,
    policy: Policy,
    progress: Progress,
    say: Say,
    *,
    draws: Sequence[Draw] = (),
    force: bool = False,
) -> RevokeResult:
    """Judges the champion again under the present judge, and takes its title if it fails.

    - If the champion passes, nothing is recorded.
    - If it fails, the title goes to the latest accepted attempt that passes. The revoke is recorded as one attempt of
      kind `revoke`, and its commit on the branch has the new holder's kernel.py. If no attempt passes, the commit
      leaves kernel.py unchanged, and the contest has no champion.
    - In the working tree, kernel.py is replaced by the new holder's kernel.py only if it is the old champion's.

    `draws` are inputs on which a champion failed. Every attempt is checked on these inputs, and on the inputs on which
    later attempts with the champion's kernel.py failed.

    Raises RatchetError, and leaves files as before:
    - `no-champion`;
    - `kernel-changed` if an ordinary commit changed kernel.py;
    - `undecided`, without `force`, if the machine may have caused a failure;
    - the errors of an attempt that cannot be recorded.
    """
    ledger = Ledger.open(contest.directory)
    with ledger.lock("revoke"):
        say_all(ledger.recover(), say)
        preconditions.refuse_unfit(ledger.place.repository, contest)
        champion = ledger.champion()
        if champion is None:
            raise RatchetError("no-champion", "expected a champion, got none on this branch: there is no title to take")
        if ledger.kernel_changed_since(champion):
            raise RatchetError(
                "kernel-changed",
                f"expected kernel.py at HEAD to be the champion's (attempt {champion.number}), got a different one: an "
                "ordinary commit changed it, and a revoke would overwrite that change. To keep HEAD's kernel.py: "
                "--rebaseline (it becomes the champion if it passes). To drop it: "
                f"./ratchet.sh checkout {champion.number}, commit that, then revoke",
            )
        candidate = ledger.champion_candidate()
        rows, skipped = history.rows(ledger.place)
        say_all(skipped, say)
        bench = Bench(
            # `prepare.py` names one chip; the champion may have been judged for another.
            contest=contests.load(ledger.place.kernel_path.parent, champion.evidence.chip),
            progress=progress,
            policy=policy,
            on=ON_SOURCE[champion.key.source],
            draws=(*draws, *_recorded_failures(ledger, champion, rows)),
        )
        key = bench.contest.key(bench.source)
        recheck = _Recheck(ledger=ledger, bench=bench, key=key, number=ledger.next_number(), force=force)
        started = now()
        rejudged_attempts: list[RejudgedAttempt] = []
        first = _judged(recheck, champion, candidate, rejudged_attempts)
        if first.verdict.outcome != "failed":
            return _title_stays(recheck, first)
        say(f"attempt {champion.number}, the champion, fails: {_words(first.failure)}")
        rejudged_attempts.append(_rejudged(first))
        holder = _next_holder(recheck, champion, rejudged_attempts, say)
        attempt = _attempt(recheck, reason, first, holder, tuple(rejudged_attempts), started)
        messages = record(ledger, attempt, (holder or first).candidate, f"revoke {attempt.number}")
        return RevokeResult(
            outcome="revoked" if holder else "no champion",
            champion=champion.number,
            reasons=attempt.verdict.reasons,
            attempt=attempt,
            messages=messages,
        )


def _recorded_failures(ledger: Ledger, champion: Attempt, rows: Sequence[Row]) -> Iterator[Draw]:
    """The inputs on which later attempts with the champion's exact kernel.py failed."""
    for row in rows:
        is_same = row.number > champion.number and row.kernel_sha256 == champion.kernel_sha256
        if is_same and row.outcome == "failed":
            yield from failing(history.attempt(ledger.place, row.number).evidence)


def _judged(
    recheck: _Recheck, attempt: Attempt, candidate: Candidate, rejudged_attempts: Sequence[RejudgedAttempt]
) -> _RecheckResult:
    """Judges `attempt` again. Raises _SameProgramError if it has the program of one of `rejudged_attempts`."""
    bench = recheck.bench
    watch = guard.begin(recheck.ledger, bench.contest)
    try:
        after_trace, work = _unless_judged(rejudged_attempts), f"revoke/{attempt.number:04d}"
        evidence = bench.judge(candidate, work, f"{attempt.number}", after_trace=after_trace)
    finally:
        name = f"{recheck.number:04d}-revoke"
        tampering = guard.end(recheck.ledger, watch, name, is_confined=bench.policy.is_confined)
    evidence = disturbed(evidence, tampering.failure())
    verdict = judging.decide(evidence, None, None, bench.policy, bench.contest.chip)
    result = _RecheckResult(attempt=attempt, candidate=candidate, evidence=evidence, verdict=verdict)
    if verdict.failure is not None and verdict.failure.kind in MAY_PASS_NEXT_TIME and not recheck.force:
        raise RatchetError(
            "undecided",
            f"attempt {attempt.number} ended with {_words(verdict.failure)}. That may be this machine's fault and not "
            "the kernel's, so nothing was recorded. Run revoke again while the machine is idle; with --force this "
            "counts as a failure of the kernel",
        )
    return result


def _unless_judged(rejudged_attempts: Sequence[RejudgedAttempt]) -> Callable[[Trace], None]:
    programs = {
        rejudged.fingerprint: rejudged
        for rejudged in rejudged_attempts
        if rejudged.fingerprint and rejudged.same_as is None
    }

    def refuse(trace: Trace) -> None:
        if trace.fingerprint in programs:
            raise _SameProgramError(programs[trace.fingerprint])

    return refuse


def _next_holder(
    recheck: _Recheck, champion: Attempt, rejudged_attempts: list[RejudgedAttempt], say: Say
) -> _RecheckResult | None:
    """The latest accepted attempt before `champion` that passes; None if there is none.

    Adds the failing accepted attempts in between to `rejudged_attempts`, and then the new holder.
    """
    for before in champions.all_before(recheck.ledger.place, champion.number):
        same = next(
            (rejudged for rejudged in rejudged_attempts if rejudged.kernel_sha256 == before.kernel_sha256), None
        )
        if same is not None:
            rejudged_attempts.append(_same(before, same))
            continue
        try:
            candidate = history.candidate(recheck.ledger.place, before.number)
        except RatchetError as error:
            missing = Failure(stage="contract", kind=error.kind, message=str(error))
            sha256 = before.kernel_sha256
            rejudged_attempts.append(
                RejudgedAttempt(attempt=before.number, kernel_sha256=sha256, fingerprint="", failure=missing)
            )
            continue
        try:
            result = _judged(recheck, before, candidate, rejudged_attempts)
        except _SameProgramError as found:
            rejudged_attempts.append(_same(before, found.other))
            say(f"attempt {before.number} has the same program as attempt {found.other.attempt}")
            continue
        rejudged_attempts.append(_rejudged(result))
        if result.failure is None:
            return result
        say(f"attempt {before.number} fails: {_words(result.failure)}")
    return None


def _same(before: Attempt, other: RejudgedAttempt) -> RejudgedAttempt:
    return replace(
        other,
        attempt=before.number,
        kernel_sha256=before.kernel_sha256,
        same_as=other.attempt if other.same_as is None else other.same_as,
    )


def _rejudged(result: _RecheckResult) -> RejudgedAttempt:
    return RejudgedAttempt(
        attempt=result.attempt.number,
        kernel_sha256=result.attempt.kernel_sha256,
        fingerprint=result.evidence.trace.fingerprint if result.evidence.trace else "",
        failure=result.failure,
    )


def _title_stays(recheck: _Recheck, result: _RecheckResult) -> RevokeResult:
    """The result if the champion passes or its verdict is in doubt, with the drift of its time."""
    champion, latency = result.attempt, result.evidence.latency
    ratio, drift = drift_since(champion, recheck.key, latency.seconds if latency else None)
    under = "" if champion.key.counts_for(recheck.key) else f" under {key_difference(champion.key, recheck.key)}"
    is_passed = result.verdict.outcome == "accept"
    word = "passes" if is_passed else "neither passes nor fails"
    return RevokeResult(
        outcome="passes" if is_passed else "undecided",
        champion=champion.number,
        reasons=(f"attempt {champion.number}, the champion, {word}{under}{drift}", *result.verdict.reasons),
        time_ratio=ratio,
    )


def _attempt(
    recheck: _Recheck,
    reason: str,
    first: _RecheckResult,
    holder: _RecheckResult | None,
    rejudged_attempts: tuple[RejudgedAttempt, ...],
    started: str,
) -> Attempt:
    """The record: evidence and kernel of the new title holder; if there is none, of the failed champion."""
    champion, shown = first.attempt, holder or first
    revocation = Revocation(
        champion=champion.number,
        reason=reason,
        tried=rejudged_attempts,
        holder=holder.attempt.number if holder else None,
    )
    if holder is None:
        sentence = f"attempt {champion.number} loses its title and no accepted attempt passes: there is no champion"
    else:
        sentence = f"attempt {champion.number} loses its title, attempt {holder.attempt.number} holds it again"
    failed = tuple(_sentence(rejudged) for rejudged in rejudged_attempts if rejudged.failure is not None)
    holders_reasons = () if holder is None else holder.verdict.reasons
    return Attempt(
        number=recheck.number,
        contest=recheck.ledger.place.name,
        hypothesis=f"revoke attempt {champion.number}: {reason or _words(first.failure)}",
        started=started,
        finished=now(),
        judged_against=git.head_commit(recheck.ledger.place.repository),
        kernel_sha256=shown.candidate.sha256,
        key=recheck.key,
        policy=recheck.bench.policy,
        evidence=shown.evidence,
        verdict=Verdict(
            outcome="accept" if holder else "failed",
            reasons=(sentence, *failed, *holders_reasons),
            failure=None if holder else first.failure,
        ),
        champion=champion_record(recheck.ledger, champion),
        champion_evidence=first.evidence if holder else None,
        diff=diff.unified(first.candidate.text, shown.candidate.text),
        kind="revoke",
        revocation=revocation,
    )


def record(ledger: Ledger, attempt: Attempt, candidate: Candidate, purpose: str) -> tuple[str, ...]:
    """Records a revoke or an undo, with its commit of `candidate` on the branch, and returns messages for the user.

    The caller holds the lock. kernel.py in the working tree is replaced by `candidate`'s if it is the kernel.py of the
    champion that loses its title. Raises the errors of recording an attempt; files are then as before, or the next
    command finishes the work. `purpose` names the work in messages.
    """
    original = ledger.candidate_here()
    messages: tuple[str, ...] = ()
    ledger.begin(original, purpose)
    try:
        if original == ledger.champion_candidate():
            ledger.restore(candidate)
        elif original != candidate:
            messages = ("kernel.py was not the champion's, so it stays as it is",)
        report = reporting.report(attempt.evidence, chip(attempt.evidence.chip))
        row = reporting.row(attempt, report, key_digest(attempt.key))
        recorded = ledger.record(attempt, row, candidate, new_branch_commit=True)
    except BaseException:
        ledger.recover()
        raise
    return (*messages, *recorded.messages)


def _sentence(rejudged: RejudgedAttempt) -> str:
    if rejudged.same_as is not None:
        return f"attempt {rejudged.attempt} has the same program as attempt {rejudged.same_as}, which fails"
    return f"attempt {rejudged.attempt} fails: {_words(rejudged.failure)}"


def _words(failure: Failure | None) -> str:
    return f"{failure.kind}: {failure.message}" if failure else ""
