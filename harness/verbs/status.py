"""The verb `status`: the state of the contest."""

from argparse import Namespace

from harness.records import Status as Record
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


class Status(Verb):
    place = "loop", 60
    line = "the state of the contest: champion, judge, log"
    description = (
        "Prints the state of the contest: champion, kernel.py, timing key, judge and log. An interrupted attempt is "
        "finished or undone first."
    )
    examples = "ratchet.sh status --json"
    is_watched = True
    document = Document(7, Record)
    effect = "repairs"

    def configure(self, parser: Parser) -> None:
        parser.json("the state as JSON")

    def run(self, arguments: Namespace) -> Outcome:
        from harness.loop.status import status
        from harness.render.status_text import status_blocks
        from harness.verbs.parts.context import contest_of, open_ledger, repaired

        contest = contest_of(arguments)
        state = status(contest, repaired(open_ledger(contest.directory), arguments))
        return Outcome(document=state, text=lambda: status_blocks(state))
