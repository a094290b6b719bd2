"""Texts and checks of verbs that make attempts: the report, the hypothesis, the expected gain."""

import shlex
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness import contest as contests
from harness.advice.kernel_changes import changed_constants, copied_from, kinds_of_change, on_change, on_constants
from harness.candidate import Candidate, Settings
from harness.contest import Contest
from harness.errors import RatchetError, UsageError
from harness.ledger import Ledger, experiments, history, notes
from harness.ledger.paths import place_of
from harness.loop import attempt as ratchet
from harness.loop import preconditions, rescale
from harness.loop.ledger_advice import advice_here, candidate_of
from harness.loop.opponent import champion_remedy
from harness.records import Attempt, Evidence
from harness.render.report_text import View, judge_blocks, report_blocks
from harness.render.sections import GAP, Block, Line
from harness.shell.arguments import command, directory, say
from harness.units import quantity
from harness.verbs.parts.context import progress_of, with_package_files


def refuse_early(arguments: Namespace, settings: Settings) -> None:
    """Raises RatchetError as `preconditions.refuse_early` does, and `no-contest`."""
    preconditions.refuse_early(contests.require(directory(arguments.directory)), settings)


def say_and_keep(remarks: list[str]) -> Callable[[str], None]:
    """A function that says a sentence on stderr and adds it to `remarks`."""

    def remark(sentence: str) -> None:
        remarks.append(sentence)
        say(sentence)

    return remark


def rescaled(contest: Contest, judged: ratchet.AttemptResult, arguments: Namespace) -> tuple[str, ...]:
    """Times the accepted attempts that have no time under the attempt's timing key; returns sentences, or ()."""
    if not (judged.recorded or judged.noted) or judged.attempt.key.source != "simulated":
        return ()
    ledger = Ledger.open(contest.directory)
    count = len(rescale.pending(ledger, contest, judged.attempt.key))
    if not count:
        return ()
    say(
        f"timing {quantity(count, 'accepted kernel')} again under the new timing key, so that the table has one scale; "
        "Ctrl-C is harmless"
    )
    with progress_of(arguments) as progress, ledger.lock("rescale"):
        return rescale.sentences(rescale.rescale_locked(ledger, contest, progress))


def _put_back(contest: Contest, judged: ratchet.AttemptResult, directory: Path | None) -> str:
    """A sentence on how to get the attempt's text back, if the champion's files have replaced it; else ""."""
    attempt = judged.attempt
    if not judged.recorded or attempt.champion is None or attempt.verdict.outcome == "accept":
        return ""
    if not contest.kernel_path.is_file() or contest.candidate() != Ledger.open(contest.directory).champion_candidate():
        return ""
    back = command(f"checkout {attempt.number}", directory)
    theirs = history.candidate(place_of(contest.directory), attempt.number).files
    # The files of the champion that the attempt had changed or did not have.
    names = sorted(name for name, data in contest.candidate().files.items() if theirs.get(name) != data) or [
        "kernel.py"
    ]
    return (
        f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} the champion's again (attempt "
        f"{attempt.champion.attempt}); to get your version back: {back}"
    )


def _left_uncommitted(contest: Contest, judged: ratchet.AttemptResult, directory: Path | None) -> str:
    """A sentence on the file of experiments/ that no commit of the branch has yet; "" if the attempt left none."""
    attempt = judged.attempt
    if judged.recorded and attempt.verdict.outcome != "accept":
        name = experiments.file_name(attempt.number, attempt.hypothesis)
    elif judged.noted:
        name = notes.FILE_NAME
    else:
        return ""
    folder = place_of(contest.directory).experiments_directory.name
    git = "git" if directory is None else f"git -C {shlex.quote(str(directory))}"
    return (
        f"{folder}/{name} joins the branch with the next accepted attempt; to commit it now: "
        f"{git} add {folder} && {git} commit -m 'Add attempts'"
    )


def attempt_blocks(contest: Contest, judged: ratchet.AttemptResult, arguments: Namespace) -> Iterator[Block]:
    """The report of an attempt that has just ended, recorded or not, then what it did to files, and what to do next."""
    attempt, directory = judged.attempt, arguments.directory
    words = friendly_words(contest, attempt)
    attempt = replace(attempt, evidence=replace(attempt.evidence, warnings=(*attempt.evidence.warnings, *words)))
    candidate, whole, unrecorded = contest.candidate(), "judge --full", attempt.sweep
    if judged.recorded:
        candidate = history.candidate(place_of(contest.directory), attempt.number)
        whole, unrecorded = f"show {attempt.number}", None
    advice = advice_here(judged.advice, attempt.evidence, candidate, contest.directory, unrecorded)
    files = with_package_files(candidate, attempt.evidence)
    view = View(files=files, full=arguments.full, whole=command(whole, directory))
    if judged.recorded:
        yield from report_blocks(attempt, judged.report, advice, judged.champion_report, view)
    else:
        yield from judge_blocks(attempt.evidence, judged.report, advice, attempt.verdict, view)
        came = "so nothing was recorded; --record keeps the result as a note."
        if judged.noted:
            note = f"the result is kept as a note on attempt {attempt.champion.attempt if attempt.champion else 1}"
            came = f"{note}; no attempt is recorded, and the branch stays as it is."
        yield from (GAP, Line(f"The kernel is the champion's{':' if judged.noted else ','} {came}", is_whole=True))
    yield GAP
    sentences = (_put_back(contest, judged, directory), _left_uncommitted(contest, judged, directory))
    yield from (Line(sentence, is_whole=True) for sentence in sentences if sentence)


def friendly_words(contest: Contest, attempt: Attempt) -> tuple[str, ...]:
    """Remarks on whether an experiment is one change. The verdict ignores them."""
    if attempt.kind != "experiment" or attempt.champion is None:
        return ()
    ledger = Ledger.open(contest.directory)
    old, new = (candidate_of(ledger.place, number) for number in (attempt.champion.attempt, attempt.number))
    if old is None or new is None:
        # A clone without the log may lack a kernel. Then these remarks are left out.
        old = new = Candidate(text=b"")
    champion = history.attempt(ledger.place, attempt.champion.attempt)
    words = [on_change(kinds_of_change(_with_copied_files(old, new, champion.evidence), new.source))]
    if attempt.sweep is None:
        # A search changes several constants on purpose, so this remark is left out.
        words.append(on_constants(changed_constants(old.source, new.source)))
    return tuple(sentence for sentence in words if sentence)


def _with_copied_files(old: Candidate, new: Candidate, evidence: Evidence) -> str:
    """The text of `old`, then the texts of the package files that `new` has copied, so that only their edits count.

    `evidence` is the evidence about `old` and names the package's files. A file of the package that has changed since
    that evidence was made is left out.
    """
    packages = with_package_files(Candidate(text=b""), evidence)
    added = (lines for name, lines in new.lines.items() if name not in old.files)
    copied = ("\n".join(copied_from(lines, packages.values())) for lines in added)
    return "\n".join((old.source, *filter(None, copied)))


def hypothesis_of(message: str) -> str:
    """The text after `experiment:`. Raises UsageError `no-message`."""
    if not message.startswith("experiment:"):
        raise UsageError("no-message", f"expected a message that begins with `experiment:`, got {message!r}")
    hypothesis = message.removeprefix("experiment:").strip()
    if not hypothesis:
        raise UsageError(
            "no-message", "expected a hypothesis after `experiment:`, got nothing; say what you changed and why"
        )
    return hypothesis


def expectation(text: str | None) -> float | None:
    """The expected time ratio, new/old: 0.95 for `5%` (less time) and for `x0.95`; None for None.

    Raises UsageError `bad-expectation`, also for a bare number.
    """
    if text is None:
        return None
    word, ratio = text.strip(), float("nan")
    with suppress(ValueError):
        if word.endswith("%"):
            ratio = 1 - float(word.removesuffix("%")) / 100
        elif word.startswith("x"):
            ratio = float(word.removeprefix("x"))
    if not 0 < ratio < 11:
        raise UsageError(
            "bad-expectation",
            "expected --expect 5% (5 % less time; below 100 %) or --expect x0.95 (times the champion's time), "
            f"got {text!r}",
        )
    return ratio


def on_champion(contest: Contest, evidence: Evidence) -> tuple[str, ...]:
    """Advice for the case that the judged kernel.py fails and is the champion's; () otherwise."""
    if evidence.failure is None:
        return ()
    try:
        ledger = Ledger.open(contest.directory)
        champion = ledger.champion()
        is_champions = champion is not None and contest.candidate() == ledger.champion_candidate()
    except RatchetError:
        # `judge` works outside of a repository too, where there is no champion.
        return ()
    if champion is None or not is_champions:
        return ()
    return champion_remedy(champion, evidence, preconditions.judge_put_back(contest))
