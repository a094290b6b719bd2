"""The verb `bisect`: find the change that made kernel.py worse."""

import re
from argparse import Namespace

from harness.errors import UsageError
from harness.records.bisection import Bisection
from harness.shell.completers import attempts_and_files
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb

# The form of an attempt's number; a longer string of digits is the hash of a commit.
_NUMBER = r"[0-9]{1,18}"


class Bisect(Verb):
    place = "look", 40
    line = "find the change that made kernel.py worse"
    example = "bisect --from 3 --to 12"
    description = (
        "Finds the change that made the kernel worse, by bisection. Between two attempts, the champions are searched; "
        "between two commits, the commits that changed kernel.py or its helpers. A kernel is judged under the present "
        "prepare.py, unless its result is already recorded under the present key. Nothing is recorded."
    )
    examples = "ratchet.sh bisect --from 3 --to 12 --metric spills; ratchet.sh bisect --from v1.0 --to HEAD"
    shows_texts = True
    document = Document(1, Bisection)

    def configure(self, parser: Parser) -> None:
        ends = {"complete": attempts_and_files, "required": True}
        parser.option("--from A", "the number of a good attempt, or a good commit", dest="first", **ends)
        parser.option("--to B", "the number of a bad attempt after A, or a bad commit", dest="last", **ends)
        parser.choice(
            "--metric",
            ["time", "spills", "correctness"],
            "what got worse: simulated time, executed spills, or correctness (time)",
            default="time",
        )
        parser.option(
            "--threshold PERCENT",
            "a kernel is worse if its time or spills exceed those at A by more than this many per cent (1)",
            type=float,
            default=1.0,
        )
        parser.flag("--full", "print every figure and line of the change that was found")
        parser.json("the result as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.loop import bisect as searching
        from harness.render.comparison import bisection_blocks
        from harness.verbs.parts.context import contest_of, progress_of, recovered_ledger, tidy

        if not 0 <= arguments.threshold < 100:
            raise UsageError(
                "usage", f"expected --threshold in percent, from 0 to below 100, got {arguments.threshold:g}"
            )
        ledger, contest = recovered_ledger(arguments), contest_of(arguments)
        ends = (arguments.first, arguments.last)
        if all(re.fullmatch(_NUMBER, end) for end in ends):
            steps = searching.attempts(ledger, *map(int, ends))
        else:
            steps = searching.commits(ledger, *ends)
        records = searching.Records(ledger, contest)
        with progress_of(arguments) as progress:
            bisection = searching.bisect(contest, steps, arguments.metric, arguments.threshold / 100, progress, records)
        tidy(contest.directory)
        names = ", ".join(records.used)
        reused = f"recorded under the present key, so not judged again: {names}"
        return Outcome(
            document=bisection,
            text=lambda: bisection_blocks(bisection, full=arguments.full),
            messages=(reused,) if records.used else (),
        )
