"""What `bisect` does: finds the change of a history that made the kernel worse."""

import re
from argparse import Namespace

from harness import contest as contests
from harness.cli.arguments import colour, directory
from harness.cli.ledger import settled, tidy
from harness.cli.verb import Outcome
from harness.errors import UsageError
from harness.loop import bisect as searching
from harness.render.bisection import bisection_text
from harness.render.layout import terminal_width
from harness.render.progress import Progress

# Of an attempt; more digits are a commit's.
_NUMBER = r"[0-9]{1,18}"


def bisect(given: Namespace) -> Outcome:
    if not 0 <= given.threshold < 100:
        raise UsageError("usage", f"expected --threshold in percent, from 0 to 100, got {given.threshold:g}")
    ledger, contest = settled(given), contests.load(directory(given.directory))
    ends = (given.first, given.last)
    if all(re.fullmatch(_NUMBER, end) for end in ends):
        steps = searching.attempts(ledger, *map(int, ends))
    else:
        steps = searching.commits(ledger, *ends)
    records = searching.Records(ledger, contest)
    with Progress(quiet=given.quiet or given.json) as progress:
        found = searching.bisect(contest, steps, given.metric, given.threshold / 100, progress, records)
    tidy(contest.directory)
    known = f"not judged again, recorded under the present key: {', '.join(records.used)}"
    return Outcome(
        document=found,
        text=lambda: bisection_text(found, terminal_width(), full=given.full, colour=colour()),
        messages=(known,) if records.used else (),
    )
