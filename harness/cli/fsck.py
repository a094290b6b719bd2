"""What `fsck` and `replay` do: check the ledger against itself, judge an attempt again."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from harness import contest as contests
from harness import limits
from harness.cli.arguments import EXIT_OF_OUTCOME, colour, directory
from harness.cli.ledger import opened, tidy
from harness.cli.verb import Outcome
from harness.errors import RatchetError
from harness.ledger import fsck as auditing
from harness.loop import replay as replaying
from harness.records import Attempt, Audit, Key
from harness.render import review
from harness.render.layout import terminal_width
from harness.render.progress import Progress

# Judging takes a minute or two, most of it in processes of its own.
_TIMES_OF_A_REPLAY = 30


def fsck(given: Namespace) -> Outcome:
    folder = directory(given.directory)
    ledger = opened(folder)
    champion = ledger.champion()
    present, why_not = _present_key(folder, champion)
    found = auditing.audit(ledger, present, given.signed_by)
    found = replace(found, notes=(*why_not, *found.notes))
    if given.replay:
        found = _replayed(found, folder, champion, given)
    return Outcome(
        document=found,
        text=lambda: review.audit_text(found, terminal_width(), colour()),
        exit_code=1 if found.findings else 0,
    )


def _present_key(folder: Path, champion: Attempt | None) -> tuple[Key | None, tuple[str, ...]]:
    """The key of evidence taken now, of the champion's source; None and why where prepare.py does not say."""
    if champion is None:
        return None, ()
    try:
        return contests.load(folder, champion.evidence.chip).key(champion.key.source), ()
    except RatchetError as error:
        return None, (f"the champion was not held against the contest as it is: {error}",)


def _replayed(found: Audit, folder: Path, champion: Attempt | None, given: Namespace) -> Audit:
    """The same with what judging the champion again came to."""
    if champion is None:
        return replace(found, notes=(*found.notes, "there is no champion to judge again"))
    limits.allow(_TIMES_OF_A_REPLAY)
    with Progress(quiet=given.quiet or given.json) as progress:
        again = replaying.replay(contests.load(folder), champion.number, progress)
    findings, notes = auditing.replayed(again)
    return replace(found, findings=(*found.findings, *findings), notes=(*found.notes, *notes))


def replay(given: Namespace) -> Outcome:
    contest = contests.load(directory(given.directory))
    with Progress(quiet=given.quiet or given.json) as progress:
        found = replaying.replay(contest, given.number, progress)
    tidy(contest.directory)
    return Outcome(
        document=found,
        text=lambda: review.replay_text(found, terminal_width(), colour()),
        exit_code=EXIT_OF_OUTCOME[found.now.outcome],
    )
