"""One attempt: evaluate, judge, record; nothing else."""

import difflib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from harness import git, simulate
from harness.contest import PACKAGE, Contest
from harness.errors import RatchetError
from harness.judge import report as reporting
from harness.judge import verdict as judging
from harness.ledger import Ledger
from harness.measure import evidence as measuring
from harness.measure import timing
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
    Trace,
    Verdict,
)
from harness.settings import rewrite

Progress = Callable[[str, str, float], None]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What an attempt came to. `recorded` is False when an unchanged kernel was only evaluated again."""

    attempt: Attempt
    report: Report
    champion_report: Report | None
    recorded: bool
    messages: tuple[str, ...]


def attempt(
    contest: Contest, hypothesis: str, options: Options, policy: Policy, progress: Progress, say: Callable[[str], None]
) -> Judged:
    """Runs one attempt of `contest` from kernel.py in the working tree and records it, whatever its outcome.

    Effects: one commit on the log ref; on accept one on the branch; on anything else kernel.py
    becomes the champion's again. Raises RatchetError before anything is recorded when the
    repository, the judge or the command is not fit for an attempt; files are then as they were.
    """
    ledger = Ledger.open(contest.directory)
    with ledger.lock():
        for sentence in ledger.recover():
            say(sentence)
        refuse_unfit(ledger, contest)
        original = contest.kernel_path.read_bytes()
        kernel = original
        for name, value in options.settings:
            kernel = rewrite(kernel, name, value, "kernel.py")
        ledger.begin(original, f"attempt {ledger.next_number()}")
        try:
            if kernel != original:
                ledger.restore_kernel(kernel)
            judged = _judge(ledger, contest, hypothesis, kernel, options, policy, progress, say)
        except BaseException:
            # Also Ctrl-C: what was begun is undone, what was already decided is finished.
            for sentence in ledger.recover():
                say(sentence)
            raise
        if not judged.recorded:
            ledger.abandon()
        return judged


def refuse_unfit(ledger: Ledger, contest: Contest) -> None:
    """Raises RatchetError where an attempt could not be judged or recorded: dirty judge, no branch, no identity."""
    dirty = dirty_judge_files(contest)
    if dirty:
        raise RatchetError(
            "dirty-judge",
            f"the judge differs from HEAD: {', '.join(dirty)}. A verdict must come from a committed judge: "
            "commit these files or put them back (git checkout -- FILE), then run again",
        )
    git.require_committable(ledger.repository)


def dirty_judge_files(contest: Contest) -> tuple[str, ...]:
    """Judge files that differ from HEAD of the repository they lie in, as they are named there."""
    dirty: list[str] = list(git.changed_paths(git.open_repository(contest.directory), (contest.directory / "prepare.py",)))
    harness_repository = git.find_repository(PACKAGE)
    # An installed package lies in no repository: its bytes are still hashed into every record.
    if harness_repository is not None:
        parts = tuple(path for path in contest.judge_files() if path.is_relative_to(PACKAGE))
        folders = tuple({path.parent if path.parent != PACKAGE else path for path in parts})
        dirty += [path for path in git.changed_paths(harness_repository, folders) if path.endswith(".py")]
    return tuple(dict.fromkeys(dirty))


def key(contest: Contest, source: Source) -> Key:
    """The comparability key of evidence taken now."""
    environment = measuring.environment()
    return Key(
        judge=contest.judge_digest(),
        problem=contest.problem_digest,
        chip=contest.chip.name,
        source=source,
        jax=environment.jax,
        jaxlib=environment.jaxlib,
        libtpu=environment.libtpu or "",
        machine="" if source == "simulated" else environment.machine,
    )


def evaluate(
    contest: Contest,
    kernel: bytes,
    options: Options,
    policy: Policy,
    progress: Progress,
    *,
    work: str,
    after_trace: Callable[[Trace], None] = lambda trace: None,
) -> Evidence:
    """Everything found out about `kernel` (the bytes of a kernel.py); files go to `profile_data/<work>`."""
    return measuring.gather(
        contest.directory,
        kernel,
        contest.problem,
        contest.chip,
        policy,
        work_directory=contest.directory / "profile_data" / work,
        simulate=simulate.run,
        on=options.on,
        deep=options.deep,
        after_trace=after_trace,
        progress=progress,
    )


def _judge(
    ledger: Ledger,
    contest: Contest,
    hypothesis: str,
    kernel: bytes,
    options: Options,
    policy: Policy,
    progress: Progress,
    say: Callable[[str], None],
) -> Judged:
    started = _now()
    number = ledger.next_number()
    head = git.head_commit(ledger.repository)
    rows, skipped = ledger.rows()
    for sentence in skipped:
        say(sentence)
    own_key = key(contest, measuring.source(contest.chip, options.on))
    digest = judging.key_digest(own_key)
    champion = ledger.champion()
    champion_kernel = ledger.champion_kernel() if champion else b""
    unchanged = champion is not None and kernel == champion_kernel
    if champion and ledger.kernel_changed_since(champion) and not options.rebaseline:
        say(
            f"kernel.py at HEAD is not the champion's (attempt {champion.number}): an ordinary commit changed it. "
            "The candidate is judged against the champion; --rebaseline makes kernel.py the champion as it stands"
        )

    opponent = None
    if champion and not unchanged and not options.rebaseline:
        opponent = _opponent(_Scene(ledger, contest, own_key, options, policy, progress, say), champion, champion_kernel, rows)

    def refuse_identical(trace: Trace) -> None:
        if options.again or options.rebaseline or unchanged:
            return
        for row in reversed(rows):
            if row.fingerprint == trace.fingerprint and row.key_digest == digest:
                raise RatchetError(
                    "identical-candidate",
                    f"this is the same program as attempt {row.number} ({row.outcome}: {row.hypothesis}), traced to the "
                    "same operations under the same judge; nothing was recorded. --again judges it once more",
                )

    work = f"{number:04d}"
    evidence = evaluate(contest, kernel, options, policy, progress, work=work, after_trace=refuse_identical)
    if contest.judge_digest() != own_key.judge:
        failure = Failure(stage="static", kind="judge-changed", message="a file of the judge changed during the attempt")
        evidence = replace(evidence, failure=failure)
    duel: Duel | None = None
    if champion_evidence is not None and own_key.source != "simulated" and evidence.failure is None:
        duel, evidence, champion_evidence = _duel(contest, evidence, champion_evidence, policy, work, options)

    if unchanged or options.rebaseline:
        verdict = judging.decide(evidence, None, None, policy, contest.chip)
        kind = "rebaseline"
    else:
        verdict = judging.decide(evidence, champion_evidence, duel, policy, contest.chip)
        kind = "experiment" if champion else "baseline"
    report = reporting.report(evidence, contest.chip, rows)
    champion_report = None
    if champion:
        champion_report = reporting.report(champion_evidence or champion.evidence, contest.chip)
    if unchanged and champion and champion_report:
        verdict = _drift(verdict, champion, report, champion_report, own_key)
    result = Attempt(
        number=number,
        contest=ledger.name,
        hypothesis=hypothesis,
        started=started,
        finished=_now(),
        judged_against=head,
        kernel_sha256=hashlib.sha256(kernel).hexdigest(),
        key=own_key,
        policy=policy,
        evidence=evidence,
        verdict=verdict,
        champion=_champion(ledger, champion, champion_report),
        champion_evidence=champion_evidence if champion and champion.key != own_key else None,
        duel=duel,
        expected_time_ratio=options.expected_time_ratio,
        settings=options.settings,
        diff=_diff(champion_kernel, kernel) if champion else "",
        kind=kind,
    )
    if unchanged and not options.record and not options.rebaseline:
        return Judged(attempt=result, report=report, champion_report=champion_report, recorded=False, messages=())
    row = reporting.row(result, report, digest)
    messages = ledger.record(
        result, row, kernel, _small_files(contest, work), new_branch_commit=verdict.outcome == "accept"
    ).messages
    return Judged(attempt=result, report=report, champion_report=champion_report, recorded=True, messages=messages)
