"""What an experiment and `judge` do: both judge kernel.py, and `judge` records nothing."""

import shlex
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from harness import contest as contests
from harness.advice import hypotheses
from harness.advice import report as reporting
from harness.advice.kernel_changes import kinds_of_change
from harness.candidate import Candidate
from harness.cli.arguments import EXIT_OF_OUTCOME, colour, command, directory, say
from harness.cli.documents import AttemptDocument, JudgeDocument
from harness.cli.ledger import with_packages
from harness.cli.verb import Outcome
from harness.contest import Contest
from harness.errors import RatchetError, UsageError
from harness.judge.key import key_digest
from harness.judge.verdict import decision as judging
from harness.ledger import Ledger, history
from harness.ledger.paths import place_of
from harness.loop import attempt as ratchet
from harness.loop import expected, rescale
from harness.loop.bench import Bench, judge_here
from harness.loop.opponent import champion_fails
from harness.loop.options import Options
from harness.loop.package_kernel import for_kernel
from harness.loop.settings import parse
from harness.records import Attempt, Evidence
from harness.render import report_text
from harness.render.progress import Progress
from harness.units import quantity


def experiment(given: Namespace) -> Outcome:
    message, deep = given.message, given.deep
    if message.split()[-1:] == ["--deep"]:
        message, deep = message.rstrip().removesuffix("--deep"), True
    hypothesis = hypothesis_of(message)
    contest = contests.load(directory(given.directory), given.chip)
    options = Options(
        settings=tuple(parse(text) for text in given.settings),
        expected_time_ratio=expectation(given.expect),
        again=given.again,
        record=given.record,
        rebaseline=given.rebaseline,
        all_checks=given.all_checks,
    )
    with Progress(quiet=given.quiet or given.json) as progress:
        guess = expected.of(contest, wholly=given.all_checks)
        progress.expect(guess.stages, guess.total_seconds, guess.attempts)
        bench = Bench(contest=contest, progress=progress, on=given.on, deep=deep)
        judged = ratchet.attempt(bench, hypothesis, options, say)
    attempt = judged.attempt
    # The text of the report has them among its warnings.
    words = friendly_words(contest, attempt) if given.json else ()
    row = replace(reporting.row(attempt, judged.report, key_digest(attempt.key)), commit="")

    def text() -> str:
        put_back = _put_back(contest, judged, given.directory)
        return attempt_text(contest, judged, given.directory, full=given.full) + (put_back and f"\n\n{put_back}")

    return Outcome(
        document=AttemptDocument(attempt=attempt, row=row),
        text=text,
        exit_code=EXIT_OF_OUTCOME[attempt.verdict.outcome],
        messages=(*words, *judged.messages),
        afterwards=lambda: _rescaled(contest, judged, given),
    )


def _rescaled(contest: Contest, judged: ratchet.Judged, given: Namespace) -> tuple[str, ...]:
    """Times accepted attempts under today's key if that is new, so that the table keeps one scale; says what it did."""
    if not (judged.recorded or judged.noted) or judged.attempt.key.source != "simulated":
        return ()
    ledger = Ledger.open(contest.directory)
    count = len(rescale.pending(ledger, contest, judged.attempt.key))
    if not count:
        return ()
    say(
        f"the timing key is new: {quantity(count, 'accepted kernel')} timed again, so that the table has one scale; "
        "Ctrl-C is harmless"
    )
    with Progress(quiet=given.quiet or given.json) as progress, ledger.lock("rescale"):
        return rescale.sentences(rescale.rescale_locked(ledger, contest, progress))


def _put_back(contest: Contest, judged: ratchet.Judged, given: Path | None) -> str:
    """Where the text of an attempt went whose kernel.py is the champion's again; "" where it stayed."""
    attempt = judged.attempt
    if not judged.recorded or attempt.champion is None or attempt.verdict.outcome == "accept":
        return ""
    if not contest.kernel_path.is_file() or contest.candidate() != Ledger.open(contest.directory).champion_candidate():
        return ""
    back = command(f"checkout {attempt.number}", given)
    return f"kernel.py is the champion's again (attempt {attempt.champion.attempt}); your text: {back}"


def attempt_text(contest: Contest, judged: ratchet.Judged, given: Path | None, *, full: bool) -> str:
    """The report of an attempt that has just ended, recorded or not; `given` is the folder as `-C` named it."""
    attempt, report = judged.attempt, judged.report
    words = friendly_words(contest, attempt)
    attempt = replace(attempt, evidence=replace(attempt.evidence, warnings=(*attempt.evidence.warnings, *words)))
    if judged.recorded:
        recorded = history.candidate(place_of(contest.directory), attempt.number)
        return report_text.report_text(
            attempt,
            report,
            for_kernel(judged.advice, attempt.evidence, recorded),
            judged.champion_report,
            report_text.View(
                files=with_packages(recorded, attempt.evidence),
                full=full,
                colour=colour(),
                whole=command(f"show {attempt.number}", given),
            ),
        )
    text = report_text.judge_text(
        attempt.evidence,
        report,
        for_kernel(judged.advice, attempt.evidence, contest.candidate()),
        attempt.verdict,
        report_text.View(
            files=with_packages(contest.candidate(), attempt.evidence),
            full=full,
            colour=colour(),
            whole=command("judge --full", given),
        ),
    )
    if judged.noted:
        note = f"what was found is kept as a note on attempt {attempt.champion.attempt if attempt.champion else 1}"
        return f"{text}\n\nThe kernel is the champion's: {note}; it is no attempt, and the branch stays as it is."
    return f"{text}\n\nThe kernel is the champion's, so nothing was recorded; --record keeps it as a note."


def friendly_words(contest: Contest, attempt: Attempt) -> tuple[str, ...]:
    """What may be said of how an experiment was made: its hypothesis, and whether it is one change; no verdict."""
    if attempt.kind != "experiment" or attempt.champion is None:
        return ()
    words = [hypotheses.on_hypothesis(attempt.hypothesis)]
    ledger = Ledger.open(contest.directory)
    try:
        old, new = (history.candidate(ledger.place, number) for number in (attempt.champion.attempt, attempt.number))
    except RatchetError:
        # A plain clone has not every kernel, and these are only words.
        old = new = Candidate(text=b"")
    words.append(hypotheses.on_change(kinds_of_change(old.source, new.source)))
    return tuple(sentence for sentence in words if sentence)


def hypothesis_of(message: str) -> str:
    """What follows `experiment:`. Raises UsageError `no-message`."""
    if not message.startswith("experiment:"):
        raise UsageError("no-message", f"expected a message that begins with `experiment:`, got {message!r}")
    hypothesis = message.removeprefix("experiment:").strip()
    if not hypothesis:
        raise UsageError(
            "no-message", "expected a hypothesis after `experiment:`, got nothing; say what you changed and why"
        )
    return hypothesis


def expectation(text: str | None) -> float | None:
    """`5%` (less time) or `x0.95` (new/old) -> 0.95. Raises UsageError `bad-expectation`, also for a bare number."""
    if text is None:
        return None
    word = text.strip()
    try:
        if word.endswith("%"):
            ratio = 1 - float(word.removesuffix("%")) / 100
        elif word.startswith("x"):
            ratio = float(word.removeprefix("x"))
        else:
            ratio = float("nan")
    except ValueError:
        ratio = float("nan")
    if not 0 < ratio < 11:
        raise UsageError(
            "bad-expectation",
            "expected --expect 5% (5 % less time; below 100 %) or --expect x0.95 (times the champion's time), "
            f"got {text!r}",
        )
    return ratio


def judge(given: Namespace) -> Outcome:
    contest = contests.load(directory(given.directory), given.chip)
    settings = tuple(parse(text) for text in given.settings)
    judged = contest.candidate().set(settings)
    with Progress(quiet=given.quiet or given.json) as progress:
        guess = expected.of(contest, wholly=True)
        progress.expect(guess.stages, guess.total_seconds, guess.attempts)
        bench = Bench(contest=contest, progress=progress, on=given.on, deep=given.deep)
        evidence = judge_here(bench, settings)
    verdict = judging.decide(evidence, None, None, bench.policy, contest.chip)
    report = reporting.report(evidence, contest.chip)
    advice = for_kernel(reporting.advise(evidence, report), evidence, judged)
    for sentence in () if settings else _on_champion(contest, evidence):
        say(sentence)
    again = [f"--set {shlex.quote(text)}" for text in given.settings]
    whole = command(" ".join(["judge", *again, "--full"]), given.directory)
    return Outcome(
        document=JudgeDocument(
            evidence=evidence, report=reporting.with_advice(evidence, report, advice), verdict=verdict
        ),
        text=lambda: report_text.judge_text(
            evidence,
            report,
            advice,
            verdict,
            report_text.View(files=with_packages(judged, evidence), full=given.full, colour=colour(), whole=whole),
        ),
        exit_code=EXIT_OF_OUTCOME[verdict.outcome],
    )


def _on_champion(contest: Contest, evidence: Evidence) -> tuple[str, ...]:
    """What to do where what was judged and fails is the champion's own kernel.py."""
    if evidence.failure is None:
        return ()
    try:
        ledger = Ledger.open(contest.directory)
        champion = ledger.champion()
        is_champions = champion is not None and contest.candidate() == ledger.champion_candidate()
    except RatchetError:
        # `judge` works outside of a repository too, where there is no champion.
        return ()
    return champion_fails(champion, evidence) if champion is not None and is_champions else ()
