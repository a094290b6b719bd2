"""The verb `show`: the whole report and the diff of an attempt."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.errors import RatchetError
from harness.records import Attempt, Row
from harness.records.stored import SCHEMA
from harness.shell.arguments import BASELINE, command
from harness.shell.parser import Parser
from harness.shell.program_name import renamed
from harness.shell.verb import Document, Outcome, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDocument:
    """An attempt as the ledger stores it. `row` is always None; readers of schema 20 expect the key."""

    attempt: Attempt
    row: Row | None


class Show(Verb):
    place = "look", 20
    line = "the whole report and the diff of an attempt"
    example = "show 3"
    description = "Prints the whole report and the diff of one attempt."
    is_watched = True
    shows_texts = True
    document = Document(SCHEMA, AttemptDocument)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.attempt("the attempt's number (default: the newest)")
        parser.member()
        # `judge` and attempts have this option, so people type it here too.
        parser.flag("--full", "print the whole report, which is also the default")
        parser.json("the record as JSON")

    def run(self, arguments: Namespace) -> Outcome:
        from harness.advice import report as reporting
        from harness.candidate import Candidate
        from harness.hardware import chip
        from harness.ledger import history, table
        from harness.loop import search_state
        from harness.loop.ledger_advice import advice_here, candidate_of
        from harness.loop.suite_member import of_member
        from harness.render.report_text import show_blocks
        from harness.render.results import scaled_words
        from harness.render.sections import Block
        from harness.verbs.parts.context import recovered_ledger, with_package_files

        ledger = recovered_ledger(arguments)
        newest = history.rows(ledger.place, 1)[0]
        if arguments.number is None and not newest:
            raise RatchetError(
                "no-attempts", f"no attempts yet: {command(BASELINE, arguments.directory)} makes the first"
            )
        number = newest[-1].number if arguments.number is None else arguments.number
        attempt = history.attempt(ledger.place, number)
        document = AttemptDocument(attempt=attempt, row=None)
        if arguments.member:
            attempt = of_member(attempt, arguments.member)

        def blocks() -> Iterator[Block]:
            report = reporting.report(attempt.evidence, chip(attempt.evidence.chip))
            candidate = candidate_of(ledger.place, number) or Candidate(text=b"")
            folder = ledger.place.kernel_path.parent
            scaled = table.scaled(ledger)
            advice = advice_here(reporting.advise(attempt.evidence, report), attempt.evidence, candidate, folder)
            # All other texts of the attempt are printed as recorded.
            advice = tuple(replace(hint, suggestion=renamed(hint.suggestion)) for hint in advice)
            matching = (
                row for row in scaled.rows if (row.row.number, row.row.kernel_sha256) == (number, attempt.kernel_sha256)
            )
            return show_blocks(
                attempt,
                report,
                advice,
                attempt.diff,
                with_package_files(candidate, attempt.evidence),
                revoked=search_state.revoked_by([row.row for row in scaled.rows], number),
                scaled=next((scaled_words(row, scaled.scale) for row in matching), ""),
            )

        return Outcome(document=document, text=blocks)
