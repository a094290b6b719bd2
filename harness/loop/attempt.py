"""One attempt: locks and recovers the ledger, checks the preconditions, evaluates, decides, and records."""

import ast
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

from harness.advice import report as reporting
from harness.advice.kernel_changes import on_hypothesis
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.judge.key import key_difference
from harness.ledger import Ledger, diff, git, history
from harness.loop import guard, kept_captures, preconditions, refusals, rescale, simulated_capture
from harness.loop.bench import HERE, Bench, Say, forget, keep, now, say_all
from harness.loop.judging import Judging, judge, judge_alternatives
from harness.loop.ledger_advice import set_constants
from harness.loop.opponent import Run, champion_record, champion_remedy, drift_since, opponent
from harness.loop.options import Options
from harness.records import Attempt, Evidence, Hint, Key, Report, Row, Verdict
from harness.sandbox import warm


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The result of an attempt.

    `recorded` is False if the champion's kernel was evaluated again; `row` is then None. `noted` is True if the result
    of this evaluation was kept as a note on the champion.
    """

    attempt: Attempt
    report: Report
    advice: tuple[Hint, ...]
    champion_report: Report | None
    recorded: bool
    row: Row | None = None
    messages: tuple[str, ...] = ()
    noted: bool = False


def attempt(bench: Bench, hypothesis: str, options: Options, say: Say) -> AttemptResult:
    """Runs one attempt with the working tree's kernel.py and records it, whatever its outcome.

    If kernel.py is the champion's, it is judged again, which does not count as an attempt.

    A recorded attempt makes one commit on the log ref. After an accept, it also makes one commit on the branch. After
    any other outcome, it restores the champion's kernel.py.

    Raises RatchetError, and changes no file, if the repository, the judge or the command is not fit for an attempt.
    """
    ledger = Ledger.open(bench.contest.directory)
    if bench.policy.is_confined:
        # A process begins to import JAX while this one checks the repository.
        warm.start()
    with ledger.lock():
        return attempt_locked(ledger, bench, hypothesis, options, say)


def attempt_locked(ledger: Ledger, bench: Bench, hypothesis: str, options: Options, say: Say) -> AttemptResult:
    """`attempt` for a caller that already holds the lock of `ledger`."""
    say_all(ledger.recover(), say)
    contest = bench.contest
    preconditions.refuse_unfit(ledger.place.repository, contest)
    original = contest.candidate()
    refuse_no_python(original)
    candidate = set_constants(original, options.settings, contest.directory)
    rows, skipped = history.rows(ledger.place)
    say_all(skipped, say)
    run = Run(
        ledger=ledger,
        bench=bench,
        options=options,
        say=say,
        number=ledger.next_number(),
        rows=rows,
        key=contest.key(bench.source),
    )
    ledger.begin(original, f"attempt {run.number}")
    watch = title = None
    try:
        if candidate != original:
            ledger.restore(candidate)
        watch = guard.begin(ledger, contest)
        with kept_captures.in_use(bench.profile_data):
            title = _title(run, candidate)
            # A sweep reports on the hypothesis itself, before it screens settings.
            if title.is_contested and options.sweep is None:
                say_all(filter(None, (on_hypothesis(hypothesis),)), say)
            with _kept_for_later(run) if title.is_held_here else nullcontext(run) as its_run:
                judged = _judge_and_record(its_run, watch, title, hypothesis, original, candidate)
    except BaseException as error:
        say_all(run.put_right(watch).sentences if watch else (), say)
        # This runs after Ctrl-C too: an undecided attempt is undone, a decided attempt is finished.
        say_all(ledger.recover(), say)
        champion, defender = (title.champion, title.candidate) if title else (None, None)
        if isinstance(error, RatchetError) and error.kind in refusals.KINDS and champion and defender:
            # A refusal that cannot be kept is not an error, because only `next` reads refusals.
            with suppress(RatchetError):
                refusal = refusals.refusal_of(error, hypothesis, champion.number, defender, candidate)
                refusals.keep(ledger.place, refusal)
        raise
    if not judged.recorded:
        ledger.abandon()
    accepted = {row.number for row in rows if row.outcome == "accept"}
    say_all(kept_captures.tidy(bench.profile_data, accepted | {run.number}, ledger.champion()), say)
    return judged


def refuse_no_python(candidate: Candidate) -> None:
    """Raises RatchetError `syntax-error` if a file of the candidate is not valid Python."""
    for name, source in candidate.files.items():
        try:
            ast.parse(source, name)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            where = f"{name} line {line}" if line else name
            raise RatchetError(
                "syntax-error",
                f"{where}: {getattr(error, 'msg', None) or error}; nothing was judged or recorded, and no attempt "
                "number is used",
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Title:
    """The champion, its kernel, and how the attempt's kernel relates to them.

    - `is_held_here`: the attempt's kernel is the champion's, so the champion is judged again.
    - `is_contested`: the attempt must beat the champion.
    """

    champion: Attempt | None
    candidate: Candidate | None
    is_held_here: bool
    is_contested: bool


def _title(run: Run, candidate: Candidate) -> _Title:
    ledger, options = run.ledger, run.options
    champion = ledger.champion()
    if champion is None:
        return _Title(champion=None, candidate=None, is_held_here=False, is_contested=False)
    champions = ledger.champion_candidate()
    was_changed = ledger.kernel_changed_since(champion)
    if was_changed and not options.rebaseline:
        run.say(
            f"kernel.py at HEAD is not the champion's (attempt {champion.number}): an ordinary commit changed it. "
            "Attempts are judged against the champion; --rebaseline makes this kernel.py the champion if it passes"
        )
    is_held_here = candidate == champions and not (options.rebaseline and was_changed)
    if is_held_here:
        kept = "the result is kept as a note" if options.record else "the result is not recorded"
        run.say(f"kernel.py is the champion's (attempt {champion.number}): it is judged again, and {kept}")
    is_contested = not (is_held_here or options.rebaseline)
    return _Title(champion=champion, candidate=champions, is_held_here=is_held_here, is_contested=is_contested)


@contextmanager
def _kept_for_later(run: Run) -> Iterator[Run]:
    """Yields the run with its files in the folder `HERE`, where later commands find the evidence about kernel.py.

    If another command is using that folder, yields the run unchanged; later commands then do not find its evidence.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(run.bench.locked(f"attempt {run.number}"))
        except RatchetError as error:
            if error.kind != "busy":
                raise
        else:
            forget(run.contest)
            run = replace(run, folder=HERE)
        yield run


def _judge_and_record(
    run: Run, watch: guard.Watch, title: _Title, hypothesis: str, original: Candidate, candidate: Candidate
) -> AttemptResult:
    """Evaluates, judges and records one candidate. The caller holds the lock and has begun the journal."""
    started = now()
    head = git.head_commit(run.ledger.place.repository)
    champion, facing = title.champion, None
    if champion and title.candidate and title.is_contested:
        preconditions.refuse_cpu_title(champion, run.key.source)
        facing = opponent(run, champion, title.candidate)
    judging = judge(run, watch, candidate, facing, may_be_known=title.is_held_here)
    settings, sweep = run.options.settings, run.options.sweep
    if judging.verdict.outcome == "failed" and run.options.alternatives and not title.is_held_here:
        chosen, judging, refused = judge_alternatives(run, original, judging, facing, title.candidate)
        sweep = replace(sweep, refused=refused) if sweep else None
        if chosen is not None:
            hypothesis, settings = chosen
    facing = judging.opponent
    report = reporting.report(judging.evidence, run.contest.chip)
    advice = reporting.advise(judging.evidence, report, run.rows)
    champion_report = reporting.report(facing.evidence, run.contest.chip) if facing else None
    verdict = judging.verdict
    if champion and title.is_held_here:
        verdict = _with_drift(verdict, champion, judging.evidence, report, run.key)
    elif champion:
        say_all(on_packages(champion.evidence, judging.evidence), run.say)
    attempt = Attempt(
        number=run.number,
        contest=run.ledger.place.name,
        hypothesis=hypothesis,
        started=started,
        finished=now(),
        judged_against=head,
        kernel_sha256=judging.candidate.sha256,
        key=run.key,
        policy=run.policy,
        evidence=judging.evidence,
        verdict=verdict,
        champion=champion_record(run.ledger, champion, champion_report) if champion else None,
        champion_evidence=facing.evidence if facing and facing.fresh else None,
        paired=judging.paired,
        expected_time_ratio=run.options.expected_time_ratio,
        settings=settings,
        sweep=sweep,
        looked_at=judging.looked_at,
        diff=diff.unified(title.candidate.text if title.candidate else b"", judging.candidate.text),
        kind="baseline" if champion is None else "experiment" if title.is_contested else "rebaseline",
    )
    result = AttemptResult(
        attempt=attempt, report=report, advice=advice, champion_report=champion_report, recorded=False
    )
    if champion and title.is_held_here:
        return _result_for_champion(run, watch, champion, result)
    if facing and facing.fresh and champion and run.key.source == "simulated":
        # The note is in its file before the attempt is recorded, so that an accept commits both.
        _keep_note(run, watch, champion, facing.evidence)
    return _record(run, judging, result)


def _result_for_champion(run: Run, watch: guard.Watch, champion: Attempt, result: AttemptResult) -> AttemptResult:
    """The result for the champion's own kernel: no new attempt, but a note if the options say so."""
    evidence = result.attempt.evidence
    if run.folder:
        keep(run.bench, result.attempt.kernel_sha256, evidence)
    noted = run.options.record and _keep_note(run, watch, champion, evidence)
    run.ledger.log_notes()
    return replace(result, noted=noted, messages=champion_remedy(champion, evidence))


def _record(run: Run, judging: Judging, result: AttemptResult) -> AttemptResult:
    attempt, row = result.attempt, reporting.row(result.attempt, result.report, run.digest)
    is_accepted = attempt.verdict.outcome == "accept"
    root = run.ledger.place.root
    # If one of these files changed on the branch meanwhile, the accept is not committed. Files of a harness in another
    # repository are left out.
    guarded = tuple(
        file.relative_to(root).as_posix() for file in run.contest.judge_files() if file.is_relative_to(root)
    )
    recorded = run.ledger.record(attempt, row, judging.candidate, new_branch_commit=is_accepted, guarded=guarded)
    run.ledger.log_notes()
    if trouble := simulated_capture.keep(judging.evidence, run.contest.directory, f"{run.number:04d}"):
        run.say(trouble)
    commit = recorded.branch_commit or recorded.log_commit
    row = replace(row, commit=commit, is_on_branch=True if recorded.branch_commit else None)
    return replace(result, recorded=True, row=row, messages=recorded.messages)


def _keep_note(run: Run, watch: guard.Watch, champion: Attempt, evidence: Evidence) -> bool:
    """Keeps the result as a note on the champion; False, without a note, if the machine may have caused a failure."""
    if evidence.failure is not None and evidence.failure.may_pass_next_time:
        run.say(
            f"no note was kept of the result: {evidence.failure.kind} may be caused by this machine, not by the kernel"
        )
        return False
    note = rescale.note_of(evidence, run.contest, run.key, champion, run.number - 1, is_checked=True)
    run.ledger.keep_notes([note])
    guard.accept_notes(run.ledger, watch)
    return True


def on_packages(then: Evidence, now: Evidence) -> tuple[str, ...]:
    """A sentence on the packages that both kernels import with different installed files; () if there are none."""
    before, after = (
        {package.name: package for package in evidence.trace.imported} if evidence.trace else {}
        for evidence in (then, now)
    )
    changed = sorted(name for name in before.keys() & after.keys() if before[name].sha256 != after[name].sha256)
    if not changed:
        return ()
    return (
        f"{' and '.join(changed)}, which kernel.py imports, changed after the champion was judged; the files of "
        "imported packages are part of the kernel. To try an edit of a package as an attempt, which is undone if it is "
        "rejected, copy the edited file into the folder of kernel.py and import the copy",
    )


def _with_drift(verdict: Verdict, champion: Attempt, evidence: Evidence, report: Report, key: Key) -> Verdict:
    """The verdict on an unchanged kernel, with the drift of the kernel's latency since it was accepted."""
    under = "" if champion.key.counts_for(key) else f", evaluated under {key_difference(champion.key, key)}"
    ratio, drift = drift_since(champion, key, report.seconds)
    sentence = f"kernel.py is the champion's (attempt {champion.number}){under}{drift}"
    packages = on_packages(champion.evidence, evidence)
    return replace(verdict, reasons=(sentence, *packages, *verdict.reasons), time_ratio=ratio)
