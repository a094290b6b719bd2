"""The verb `show`: the whole report and the diff of an attempt."""

from argparse import Namespace
from dataclasses import replace

from harness.errors import RatchetError
from harness.records.stored import SCHEMA
from harness.shell.arguments import BASELINE, colour, command
from harness.shell.parser import Parser
from harness.shell.program_name import renamed
from harness.shell.verb import Document, Outcome, Verb
from harness.verbs.experiment import AttemptDocument


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
        parser.json("the record")

    def run(self, given: Namespace) -> Outcome:
        from harness.advice import report as reporting
        from harness.hardware import chip
        from harness.ledger import history, table
        from harness.loop import search_state
        from harness.loop.package_kernel import for_kernel
        from harness.loop.suite_member import of_member
        from harness.render.report_text import View, show_text
        from harness.render.results import scaled_words
        from harness.verbs.parts.given import known_candidate, settled, with_packages

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
            own = (
                one for one in known.rows if (one.row.number, one.row.kernel_sha256) == (number, attempt.kernel_sha256)
            )
            return show_text(
                attempt,
                found,
                advice,
                attempt.diff,
                View(colour=colour(), files=with_packages(candidate, attempt.evidence)),
                revoked=search_state.revoked_by([one.row for one in known.rows], number),
                scaled=next((scaled_words(one, known.scale) for one in own), ""),
            )

        return Outcome(document=document, text=text)
