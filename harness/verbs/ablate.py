"""The verb `ablate`: what each accepted change is worth in the champion now."""

from argparse import Namespace

from harness.records.ablation import Ablation
from harness.shell.arguments import attempt_number, colour
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


class Ablate(Verb):
    place = "look", 50
    line = "what each accepted change is worth in the champion now"
    description = (
        "Takes the accepted changes out of the champion one at a time, judges what is left under the present "
        "prepare.py, and says what each is worth now: simulated time without it less the time with it. A change that "
        "cannot go alone goes with the fewest others that it takes, and they are named: later changes of the same "
        "lines, or changes without which the rest is right again. With a number: the hunks of that attempt's change. "
        "Nothing is recorded."
    )
    examples = "ratchet.sh ablate; ratchet.sh ablate 9"
    document = Document(1, Ablation)

    def configure(self, parser: Parser) -> None:
        parser.add_argument(
            "attempt", nargs="?", type=attempt_number, metavar="N", help="take out the hunks of this accepted attempt"
        )
        parser.json("what was found")
        parser.quiet()

    def run(self, given: Namespace) -> Outcome:
        from harness.loop import pieces as changes
        from harness.loop.ablate import ablate
        from harness.render.ablation import ablation_text
        from harness.verbs.parts.given import contest_of, progress_of, settled, tidy

        ledger, contest = settled(given), contest_of(given)
        pieces = changes.accepts(ledger) if given.attempt is None else changes.hunks(ledger, given.attempt)
        with progress_of(given) as progress:
            found = ablate(contest, pieces, progress)
        tidy(contest.directory)
        return Outcome(document=found, text=lambda: ablation_text(found, colour=colour()))
