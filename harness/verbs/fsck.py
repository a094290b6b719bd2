"""The verb `fsck`: check log, branch and files against each other."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from harness import reading_limits
from harness.errors import RatchetError
from harness.records import Attempt, Audit, Key
from harness.shell.arguments import colour, directory
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb

# Judging takes a minute or two, most of it in processes of its own.
_TIMES_OF_A_REPLAY = 30


class Fsck(Verb):
    place = "machine", 80
    line = "check log, branch and files against each other"
    description = (
        "Checks log, branch and files (experiments/, attempts.jsonl) against each other, and every verdict against the "
        "evidence it was made from; changes nothing."
    )
    is_watched = True
    document = Document(1, Audit)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.flag("--replay", "judge the champion again, and report what differs")
        parser.option(
            "--signed-by SIGNERS",
            "report what these did not sign: a file of allowed signers (SSH), or an OpenPGP key's fingerprint",
        )
        parser.json("the findings as JSON")
        parser.quiet()

    def run(self, given: Namespace) -> Outcome:
        from harness.ledger import fsck as auditing
        from harness.render.layout import terminal_width
        from harness.render.review import audit_text
        from harness.verbs.parts.given import opened

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
            text=lambda: audit_text(found, terminal_width(), colour()),
            exit_code=1 if found.findings else 0,
        )


def _present_key(folder: Path, champion: Attempt | None) -> tuple[Key | None, tuple[str, ...]]:
    """The key of evidence taken now, of the champion's source; None and why where prepare.py does not say."""
    from harness import contest as contests

    if champion is None:
        return None, ()
    try:
        return contests.load(folder, champion.evidence.chip).key(champion.key.source), ()
    except RatchetError as error:
        return None, (f"the champion was not held against the contest as it is: {error}",)


def _replayed(found: Audit, folder: Path, champion: Attempt | None, given: Namespace) -> Audit:
    """The same with what judging the champion again came to."""
    from harness import contest as contests
    from harness.ledger import fsck as auditing
    from harness.loop.replay import replay
    from harness.verbs.parts.given import progress_of

    if champion is None:
        return replace(found, notes=(*found.notes, "there is no champion to judge again"))
    reading_limits.allow(_TIMES_OF_A_REPLAY)
    with progress_of(given) as progress:
        again = replay(contests.load(folder), champion.number, progress)
    findings, notes = auditing.replayed(again)
    return replace(found, findings=(*found.findings, *findings), notes=(*found.notes, *notes))
