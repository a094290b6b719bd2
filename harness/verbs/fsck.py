"""The verb `fsck`: check log, branch and files against each other."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from harness import reading_limits
from harness.errors import RatchetError
from harness.records import Attempt, Audit, Key
from harness.shell.arguments import directory
from harness.shell.exit_codes import EXIT_OF_FSCK
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb

# The factor on the time limit of a verb that only reads: a replay takes a minute or two, mostly in child processes.
_TIMES_OF_A_REPLAY = 30


class Fsck(Verb):
    place = "machine", 80
    line = "check log, branch and files against each other"
    description = (
        "Checks log, branch and files (experiments/, attempts.jsonl) against each other, and every verdict against its "
        "evidence; changes nothing."
    )
    is_watched = True
    document = Document(1, Audit)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.flag("--replay", "judge the champion again, and report what differs")
        parser.option(
            "--signed-by SIGNERS",
            "also report log commits and accepts without a good signature by SIGNERS, and records outside them; "
            "SIGNERS is a file of allowed signers (SSH) or the fingerprint of an OpenPGP key",
        )
        parser.json("the findings as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.ledger import fsck as auditing
        from harness.render.review import audit_blocks
        from harness.verbs.parts.context import open_ledger

        folder = directory(arguments.directory)
        ledger = open_ledger(folder)
        champion = ledger.champion()
        present, why_not = _present_key(folder, champion)
        audit = auditing.audit(ledger, present, arguments.signed_by)
        audit = replace(audit, notes=(*why_not, *audit.notes))
        if arguments.replay:
            audit = _replayed(audit, folder, champion, arguments)
        exit_code = EXIT_OF_FSCK[bool(audit.findings)]
        return Outcome(document=audit, text=lambda: audit_blocks(audit), exit_code=exit_code)


def _present_key(folder: Path, champion: Attempt | None) -> tuple[Key | None, tuple[str, ...]]:
    """The key that the champion would get now, and notes. The key is None without a champion and on an error."""
    from harness import contest as contests

    if champion is None:
        return None, ()
    try:
        return contests.load(folder, champion.evidence.chip).key(champion.key.source), ()
    except RatchetError as error:
        return None, (f"the champion was not compared with the present contest: {error}",)


def _replayed(audit: Audit, folder: Path, champion: Attempt | None, arguments: Namespace) -> Audit:
    """The audit, with the result of judging the champion again."""
    from harness import contest as contests
    from harness.ledger import fsck as auditing
    from harness.loop.replay import replay
    from harness.verbs.parts.context import progress_of

    if champion is None:
        return replace(audit, notes=(*audit.notes, "there is no champion to judge again"))
    reading_limits.allow(_TIMES_OF_A_REPLAY)
    with progress_of(arguments) as progress:
        again = replay(contests.load(folder), champion.number, progress)
    findings, notes = auditing.replayed(again)
    return replace(audit, findings=(*audit.findings, *findings), notes=(*audit.notes, *notes))
