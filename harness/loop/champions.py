"""The champion of every contest checked again under the keys of now, and its accepted attempts timed on one scale."""

from collections.abc import Iterable
from pathlib import Path

from harness.contest import Contest, load
from harness.errors import RatchetError
from harness.judge.evaluate.request import Progress
from harness.ledger import Ledger
from harness.ledger import notes as note_files
from harness.ledger.notes import outcome_of_checks
from harness.loop import preconditions, rescale
from harness.loop.bench import Bench, Say
from harness.loop.search_state import floor_of
from harness.records import Attempt, CheckedChampion, Note
from harness.units import quantity

# The folder below profile_data for what is found out about the champion.
WORK = "champion"


def check(
    folders: Iterable[tuple[str, Path]], progress: Progress, say: Say, *, everything: bool = False, again: bool = False
) -> tuple[CheckedChampion, ...]:
    """Checks the champion of each contest wholly, and times its attempts as `rescale` does; folders have their names.

    A champion that a note says passes under both keys of now is not checked `again`. Effects: notes in each contest's
    experiments/, and commits on logs that there are; none on the branch. What fails in one contest is said of it, and
    the next is checked.
    """
    found = []
    for name, folder in folders:
        try:
            one = _checked(name, folder, progress, say, everything=everything, again=again)
        except RatchetError as error:
            one = CheckedChampion(folder=name, why_not=f"{error} [{error.kind}]")
        found.append(one)
        if one.is_due:
            say(sentence(one))
    return tuple(found)


def sentence(one: CheckedChampion) -> str:
    """What came of one champion, in words."""
    if one.note is None:
        return f"{one.folder}: not checked: {one.why_not}"
    said = "passes" if one.passes else f"fails: {one.note.failure_kind}: {one.note.reason}"
    timed = f"; {quantity(one.timed, 'kernel')} timed again" if one.timed else ""
    return f"{one.folder}: attempt {one.attempt} {said}{timed}"


def _checked(
    name: str, folder: Path, progress: Progress, say: Say, *, everything: bool, again: bool
) -> CheckedChampion:
    ledger = Ledger.open(folder)
    if ledger.champion() is None:
        return CheckedChampion(folder=name, is_due=False, why_not="no attempt was accepted yet")
    contest = load(folder)
    if contest.chip.platform != "tpu":
        return CheckedChampion(folder=name, is_due=False, why_not=f"{contest.chip.name} is not simulated")
    with ledger.lock("champions"):
        for line in ledger.recover():
            say(line)
        preconditions.refuse_dirty_judge(contest)
        champion = ledger.champion()
        if champion is None:
            return CheckedChampion(folder=name, is_due=False, why_not="no attempt was accepted yet")
        note = None if again else _known(ledger, contest, champion)
        if note is None:
            note, why_not = _note(ledger, contest, champion, name, progress)
            if note is None:
                return CheckedChampion(folder=name, attempt=champion.number, why_not=why_not)
        timed = rescale.rescale_locked(ledger, contest, progress, everything=everything)
    for line in timed.skipped:
        say(f"{name}: {line}")
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


def _known(ledger: Ledger, contest: Contest, champion: Attempt) -> Note | None:
    """The note that says that the champion passes under both keys of now, if there is one."""
    key, notes = contest.key("simulated"), note_files.read(ledger.place)[0]
    if not outcome_of_checks(notes, champion.number, champion.kernel_sha256, key):
        return None
    about = (note for note in notes if note.passes and note.kernel_sha256 == champion.kernel_sha256)
    return max((note for note in about if note.key.counts_for(key)), key=lambda note: note.when)


def _note(
    ledger: Ledger, contest: Contest, champion: Attempt, name: str, progress: Progress
) -> tuple[Note | None, str]:
    """The note on the champion, kept; None and why where its failure may be this machine's."""
    bench = Bench(contest=contest, progress=progress, on="simulated")
    evidence = bench.judge(ledger.champion_candidate(), WORK, name)
    if evidence.failure is not None and evidence.failure.may_pass_next_time:
        return None, f"{evidence.failure.kind}: {evidence.failure.message}; it may be this machine"
    after = ledger.next_number() - 1
    note = rescale.note_of(
        evidence, contest, contest.key("simulated"), champion.number, champion.kernel_sha256, after, is_checked=True
    )
    ledger.keep_notes([note])
    ledger.log_notes()
    return note, ""
