"""The verb `ablate`: what each accepted change is worth in the champion now."""

from argparse import Namespace

from harness.records.ablation import Ablation
from harness.shell.arguments import attempt_number
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


class Ablate(Verb):
    place = "look", 50
    line = "what each accepted change is worth in the champion now"
    description = (
        "Takes the accepted changes out of the champion one at a time, judges the remaining kernel under the present "
        "prepare.py, and prints what each change is worth now: the simulated time without it minus the time with it. "
        "If a change cannot be taken out alone, as few other changes as possible are taken out with it, and they are "
        "named: later changes of the same lines, or changes that do not work without it. With a number, takes out the "
        "hunks of that attempt's change instead. Nothing is recorded."
    )
    examples = "ratchet.sh ablate; ratchet.sh ablate 9"
    document = Document(1, Ablation)

    def configure(self, parser: Parser) -> None:
        words = "take out the hunks of this accepted attempt, one by one"
        parser.word("attempt", words, type=attempt_number, metavar="N")
        parser.json("the result as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.loop import pieces as changes
        from harness.loop.ablate import ablate
        from harness.render.ablation import ablation_blocks
        from harness.verbs.parts.context import contest_of, progress_of, recovered_ledger, tidy

        ledger, contest = recovered_ledger(arguments), contest_of(arguments)
        pieces = changes.accepts(ledger) if arguments.attempt is None else changes.hunks(ledger, arguments.attempt)
        with progress_of(arguments) as progress:
            ablation = ablate(contest, pieces, progress)
        tidy(contest.directory)
        return Outcome(document=ablation, text=lambda: ablation_blocks(ablation))
