"""The verb `rescale`: recorded kernels timed again under today's key."""

from argparse import Namespace

from harness import contest as contests
from harness.cli.arguments import directory, say
from harness.cli.documents import RescaleDocument
from harness.cli.verb import Outcome
from harness.ledger import Ledger, history
from harness.loop import rescale as rescaling
from harness.render.layout import joined, terminal_width, wrap
from harness.render.progress import Progress
from harness.units import quantity


def rescale(given: Namespace) -> Outcome:
    contest = contests.load(directory(given.directory))
    with Progress(quiet=given.quiet or given.json) as progress:
        found = rescaling.rescale(contest, progress, say, everything=given.all)
    ledger = Ledger.open(contest.directory)
    left = rescaling.pending(ledger, contest, contest.key("simulated"), everything=True)
    rows = [
        row
        for row in history.rows(ledger.place)[0]
        if row.is_title or (given.all and row.outcome in ("reject", "inconclusive"))
    ]
    attempts = quantity(len(rows), "attempt" if given.all else "accepted attempt") if rows else ""
    said = rescaling.sentences(found, left, attempts)
    width = terminal_width()
    return Outcome(
        document=RescaleDocument(key_digest=found.key_digest, notes=found.notes, skipped=found.skipped),
        text=lambda: joined([line for sentence in said for line in wrap(sentence, width)]),
    )
