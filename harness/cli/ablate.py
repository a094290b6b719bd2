"""What `ablate` does: says what each accepted change is worth in the champion now."""

from argparse import Namespace

from harness import contest as contests
from harness.cli.arguments import colour, directory
from harness.cli.ledger import settled, tidy
from harness.cli.verb import Outcome
from harness.loop import pieces as changes
from harness.loop.ablate import ablate as judged_without
from harness.render.ablation import ablation_text
from harness.render.progress import Progress


def ablate(given: Namespace) -> Outcome:
    ledger, contest = settled(given), contests.load(directory(given.directory))
    pieces = changes.accepts(ledger) if given.attempt is None else changes.hunks(ledger, given.attempt)
    with Progress(quiet=given.quiet or given.json) as progress:
        found = judged_without(contest, pieces, progress)
    tidy(contest.directory)
    return Outcome(document=found, text=lambda: ablation_text(found, colour=colour()))
