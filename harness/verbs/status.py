"""The verb `status`: where you stand."""

from argparse import Namespace

from harness.records import Status as Standing
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


class Status(Verb):
    place = "loop", 60
    line = "where you stand"
    description = "Says where you stand."
    examples = "ratchet.sh status --json"
    is_watched = True
    document = Document(7, Standing)
    effect = "reads"

    def configure(self, parser: Parser) -> None:
        parser.json("where you stand as JSON")

    def run(self, given: Namespace) -> Outcome:
        from harness.loop.status import status
        from harness.render.status_text import status_text
        from harness.verbs.parts.given import contest_of

        found = status(contest_of(given), only_reads=given.only_reads)
        return Outcome(document=found, text=lambda: status_text(found))
