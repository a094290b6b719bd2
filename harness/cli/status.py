"""What status does: where one stands in a contest."""

from argparse import Namespace

from harness import contest as contests
from harness.cli.arguments import directory
from harness.cli.verb import Outcome
from harness.loop import status as standing
from harness.render.status_text import status_text


def status(given: Namespace) -> Outcome:
    found = standing.status(contests.load(directory(given.directory)), only_reads=given.only_reads)
    return Outcome(document=found, text=lambda: status_text(found))
