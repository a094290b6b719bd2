"""What `fsck` and `replay` do: check the ledger against itself, judge an attempt again."""

from argparse import Namespace

from harness import contest as contests
from harness.cli.arguments import EXIT_OF_OUTCOME, colour, directory
from harness.cli.verb import Outcome
from harness.ledger import Ledger
from harness.ledger import fsck as auditing
from harness.loop import replay as replaying
from harness.render import review
from harness.render.layout import terminal_width
from harness.render.progress import Progress


def fsck(given: Namespace) -> Outcome:
    found = auditing.audit(Ledger.open(directory(given.directory)))
    return Outcome(
        document=found,
        text=lambda: review.audit_text(found, terminal_width(), colour()),
        exit_code=1 if found.findings else 0,
    )


def replay(given: Namespace) -> Outcome:
    contest = contests.load(directory(given.directory))
    with Progress(quiet=given.quiet or given.json) as progress:
        found = replaying.replay(contest, given.number, progress)
    return Outcome(
        document=found,
        text=lambda: review.replay_text(found, terminal_width(), colour()),
        exit_code=EXIT_OF_OUTCOME[found.now.outcome],
    )
