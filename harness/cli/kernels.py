"""What show, checkout, undo and new do: the kernels of a ledger, shown and moved."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from harness import contest as contests
from harness.advice import report as reporting
from harness.cli.arguments import BASELINE, colour, command, directory
from harness.cli.documents import AttemptDocument, DoneDocument
from harness.cli.ledger import known_candidate, opened, settled, with_packages
from harness.cli.program_name import renamed
from harness.cli.verb import Outcome
from harness.errors import RatchetError
from harness.hardware import chip
from harness.ledger import history, table
from harness.loop import new_contest, search_state
from harness.loop import undo as undoing
from harness.loop.package_kernel import for_kernel
from harness.loop.settings import parse
from harness.loop.suite_member import of_member
from harness.records import Policy
from harness.render import report_text
from harness.render.progress import Progress
from harness.render.results import scaled_words


def show(given: Namespace) -> Outcome:
    ledger = settled(given)
    newest = history.rows(ledger.place, 1)[0]
    if given.number is None and not newest:
        raise RatchetError("no-attempts", f"no attempts yet: {command(BASELINE, given.directory)} makes the first")
    number = newest[-1].number if given.number is None else given.number
    attempt = history.attempt(ledger.place, number)
    document = AttemptDocument(attempt=attempt, row=None)
    if given.member:
        attempt = of_member(attempt, given.member)

    def text() -> str:
        found = reporting.report(attempt.evidence, chip(attempt.evidence.chip))
        candidate = known_candidate(ledger, number)
        known = table.scaled(ledger)
        advice = for_kernel(reporting.advise(attempt.evidence, found), attempt.evidence, candidate)
        # Texts of files, which are printed as they are, stand beside them.
        advice = tuple(replace(hint, suggestion=renamed(hint.suggestion)) for hint in advice)
        return report_text.show_text(
            attempt,
            found,
            advice,
            attempt.diff,
            report_text.View(colour=colour(), files=with_packages(candidate, attempt.evidence)),
            revoked=search_state.revoked_by([one.row for one in known.rows], number),
            scaled=next(
                (
                    scaled_words(one, known.scale)
                    for one in known.rows
                    if (one.row.number, one.row.kernel_sha256) == (number, attempt.kernel_sha256)
                ),
                "",
            ),
        )

    return Outcome(document=document, text=text)


def checkout(given: Namespace) -> Outcome:
    ledger = opened(directory(given.directory))
    return _done(undoing.checkout(ledger, given.number, force=given.force))


def undo(given: Namespace) -> Outcome:
    return _done(undoing.undo(contests.load(directory(given.directory)), Policy()))


def new(given: Namespace) -> Outcome:
    base = given.directory or Path.cwd()
    settings = [*given.settings, *([f"CHIP={given.chip}"] if given.chip else [])]
    constants = tuple(parse(text) for text in settings)
    with Progress(quiet=given.quiet) as progress:
        done = new_contest.new(base / given.folder, given.like, constants, progress, around=given.around)
    return Outcome(text=lambda: "\n".join(done))


def _done(sentences: tuple[str, ...]) -> Outcome:
    sentences = tuple(map(renamed, sentences))
    return Outcome(document=DoneDocument(done=sentences), text=lambda: "\n".join(sentences))
