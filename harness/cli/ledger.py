"""What results, show, status, checkout, undo and new do: they read the ledger or move its kernels."""

from argparse import Namespace
from pathlib import Path

from harness import contest as contests
from harness.advice import report as reporting
from harness.cli.arguments import BASELINE, colour, command, directory, say
from harness.cli.documents import AttemptDocument, DoneDocument, ResultsDocument
from harness.cli.verb import Outcome
from harness.errors import RatchetError
from harness.hardware import chip
from harness.ledger import Ledger
from harness.loop import new_contest, search_state
from harness.loop import status as standing
from harness.loop import undo as undoing
from harness.loop.expectations import calibration
from harness.loop.settings import parse
from harness.records import Policy
from harness.render import report_text
from harness.render.results import results_table


def results(given: Namespace) -> Outcome:
    ledger = settled(given.directory)
    rows, skipped = ledger.rows(given.limit)
    for sentence in skipped:
        say(sentence)
    champion = ledger.champion()
    number = champion.number if champion else None

    def text() -> str:
        if not rows:
            return f"no attempts yet: {command(BASELINE, given.directory)} makes the first"
        return results_table(rows, number, calibration=calibration(rows))

    return Outcome(document=ResultsDocument(rows=rows, champion=number, skipped=skipped), text=text)


def show(given: Namespace) -> Outcome:
    ledger = settled(given.directory)
    try:
        attempt = ledger.attempt(given.number)
    except RatchetError as error:
        if error.kind != "unknown-attempt":
            raise
        way, verb = ("all of them", "results") if ledger.rows(1)[0] else ("the first is made by", BASELINE)
        raise RatchetError(error.kind, f"{error}; {way}: {command(verb, given.directory)}") from error

    def text() -> str:
        return report_text.show_text(
            attempt,
            reporting.report(attempt.evidence, chip(attempt.evidence.chip)),
            attempt.diff,
            colour(),
            kernel=kernel_text(ledger, given.number),
            revoked=search_state.revoked_by(ledger.rows()[0], given.number),
        )

    return Outcome(document=AttemptDocument(attempt=attempt, row=None), text=text)


def settled(given: Path | None) -> Ledger:
    """The ledger of the contest meant; an attempt that was killed is finished or undone first, and that is said."""
    ledger = Ledger.open(directory(given))
    for sentence in standing.recovered(ledger) if ledger.is_unfinished() else ():
        say(sentence)
    return ledger


def status(given: Namespace) -> Outcome:
    found = standing.status(contests.load(directory(given.directory)))
    return Outcome(document=found, text=lambda: report_text.status_text(found))


def checkout(given: Namespace) -> Outcome:
    return _done(undoing.checkout(directory(given.directory), given.number, force=given.force))


def undo(given: Namespace) -> Outcome:
    return _done(undoing.undo(contests.load(directory(given.directory)), Policy()))


def new(given: Namespace) -> Outcome:
    base = given.directory or Path.cwd()
    settings = [*given.settings, *([f"CHIP={given.chip}"] if given.chip else [])]
    done = new_contest.new(base / given.folder, given.like, tuple(parse(text) for text in settings))
    return Outcome(text=lambda: "\n".join(done))


def _done(sentences: tuple[str, ...]) -> Outcome:
    return Outcome(document=DoneDocument(done=sentences), text=lambda: "\n".join(sentences))


def kernel_text(ledger: Ledger, number: int) -> str:
    """The kernel.py of an attempt, or "" where only its record and diff are known here."""
    try:
        return ledger.kernel(number).decode("utf-8", "replace")
    except RatchetError:
        return ""
