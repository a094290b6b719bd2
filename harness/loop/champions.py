"""Checks the champion of every contest under the present keys, and times the accepted attempts on one scale."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from harness.contest import Contest, load
from harness.errors import RatchetError
from harness.judge.evaluate.request import Progress
from harness.judge.verdict.roofline import floor_of
from harness.ledger import Ledger
from harness.ledger import notes as note_files
from harness.ledger.notes import outcome_of_checks
from harness.loop import preconditions, rescale
from harness.loop.bench import TIME_LIMITS, Bench, Say, say_all, why_not
from harness.records import Attempt, CheckedChampion, Note
from harness.units import quantity

# The folder below profile_data for the champion's judgement.
WORK = "champion"


def check(
    folders: Iterable[tuple[str, Path]], progress: Progress, say: Say, *, everything: bool = False, again: bool = False
) -> tuple[CheckedChampion, ...]:
    """The result for each contest of `folders` (name and path): its champion checked, its attempts timed by `rescale`.

    A champion that passed under the present timing and checks keys, in its attempt or by a note, is checked only with
    `again`.
    `everything` is passed to `rescale`. Writes notes to each contest's experiments/, and commits them on existing logs;
    makes no commit on the branch. An error in one contest does not stop the others.
    """
    results = []
    for name, folder in folders:
        try:
            result = _check_contest(name, folder, progress, say, everything=everything, again=again)
        except RatchetError as error:
            result = CheckedChampion(folder=name, why_not=f"{error} [{error.kind}]")
        results.append(result)
        if result.is_due:
            say(sentence(result))
    return tuple(results)


def sentence(champion: CheckedChampion) -> str:
    """The result for one champion, in words."""
    if champion.note is None:
        return f"{champion.folder}: not checked: {champion.why_not}"
    words = "passes" if champion.passes else f"fails: {champion.note.failure_kind}: {champion.note.reason}"
    timed = f"; {quantity(champion.timed, 'kernel')} timed again" if champion.timed else ""
    return f"{champion.folder}: attempt {champion.attempt} {words}{timed}"


def _check_contest(
    name: str, folder: Path, progress: Progress, say: Say, *, everything: bool, again: bool
) -> CheckedChampion:
    ledger = Ledger.open(folder)
    if ledger.champion() is None:
        return CheckedChampion(folder=name, is_due=False, why_not="there is no champion")
    contest = load(folder)
    if contest.chip.platform != "tpu":
        return CheckedChampion(folder=name, is_due=False, why_not=f"{contest.chip.name} is not simulated")
    with ledger.lock("champions"):
        say_all(ledger.recover(), say)
        preconditions.refuse_dirty_judge(contest)
        champion = ledger.champion()
        if champion is None:
            return CheckedChampion(folder=name, is_due=False, why_not="there is no champion")
        note = None if again else _earlier_note(ledger, contest, champion)
        if note is None:
            note, reason = _note(ledger, contest, champion, name, progress)
            if note is None:
                return CheckedChampion(folder=name, attempt=champion.number, why_not=reason)
        timed = rescale.rescale_locked(ledger, contest, progress, everything=everything)
    say_all((f"{name}: {line}" for line in timed.skipped), say)
    statement = contest.problem.statement()
    return CheckedChampion(
        folder=name,
        title=statement.title,
        chip=contest.chip.name,
        attempt=champion.number,
        note=note,
        floor_seconds=floor_of(statement.work, contest.chip, None).seconds,
        timed=len(timed.notes),
    )


def _earlier_note(ledger: Ledger, contest: Contest, champion: Attempt) -> Note | None:
    """The newest note that the champion passes under the present keys; without notes, one made of its attempt's record.

    None if a check under these keys failed, or if nothing was checked under them.
    """
    key, notes = contest.key("simulated"), note_files.read(ledger.place)[0]
    outcome = outcome_of_checks(notes, champion.number, champion.kernel_sha256, key)
    if outcome is None and champion.key.counts_for(key) and not champion.evidence.unchecked:
        note = rescale.note_of(champion.evidence, contest, key, champion, champion.number, is_checked=True)
        return replace(note, when=champion.finished) if note.passes else None
    if not outcome:
        return None
    about = (note for note in notes if note.passes and note.kernel_sha256 == champion.kernel_sha256)
    return max((note for note in about if note.key.counts_for(key)), key=lambda note: note.when)


def _note(
    ledger: Ledger, contest: Contest, champion: Attempt, name: str, progress: Progress
) -> tuple[Note | None, str]:
    """Judges the champion, keeps a note and returns it; if the machine may be at fault, returns None and the reason."""
    bench = Bench(contest=contest, progress=progress, on="simulated")
    evidence = bench.judge(ledger.champion_candidate(), WORK, name)
    if evidence.failure is not None and evidence.failure.may_pass_next_time:
        remedy = f": {TIME_LIMITS.variable}=3 allows three times the time" if evidence.failure.kind == "timeout" else ""
        return None, f"{why_not(evidence)}; this machine may be the cause{remedy}"
    after = ledger.next_number() - 1
    note = rescale.note_of(evidence, contest, contest.key("simulated"), champion, after, is_checked=True)
    ledger.keep_notes([note])
    ledger.log_notes()
    return note, ""
