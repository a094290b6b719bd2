"""The verb `bisect`: which change made it slower, spill more or fail."""

import re
from argparse import Namespace

from harness.errors import UsageError
from harness.records.bisection import Bisection
from harness.shell.arguments import colour
from harness.shell.completers import attempts_and_files
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb

# The form of an attempt's number; more digits are a commit's.
_NUMBER = r"[0-9]{1,18}"


class Bisect(Verb):
    place = "look", 40
    line = "which change made it slower, spill more or fail"
    example = "bisect --from 3 --to 12"
    description = (
        "Finds the change that made the kernel worse, by halving: among the champions between two attempts, or, "
        "between two commits, among those that changed kernel.py or its helpers. Every kernel is judged "
        "under the present prepare.py, unless an attempt recorded the answer under the same key; nothing is recorded."
    )
    examples = "ratchet.sh bisect --from 3 --to 12 --metric spills; ratchet.sh bisect --from v1.0 --to HEAD"
    shows_texts = True
    document = Document(1, Bisection)

    def configure(self, parser: Parser) -> None:
        parser.option(
            "--from A",
            "an attempt's number, or a commit, that is good",
            dest="first",
            complete=attempts_and_files,
            required=True,
        )
        parser.option(
            "--to B", "a later attempt or commit that is bad", dest="last", complete=attempts_and_files, required=True
        )
        parser.choice(
            "--metric",
            ["time", "spills", "correctness"],
            "what got worse: simulated time, executed spills, or correctness (time)",
            default="time",
        )
        parser.option("--threshold PERCENT", "how much more than at A counts as worse (1)", type=float, default=1.0)
        parser.flag("--full", "print every figure and line of the change that was found")
        parser.json("the result as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.loop import bisect as searching
        from harness.render.comparison import bisection_text
        from harness.render.layout import terminal_width
        from harness.verbs.parts.context import contest_of, progress_of, recovered_ledger, tidy

        if not 0 <= arguments.threshold < 100:
            raise UsageError("usage", f"expected --threshold in percent, from 0 to 100, got {arguments.threshold:g}")
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
        reused = f"not judged again, recorded under the present key: {', '.join(records.used)}"
        return Outcome(
            document=bisection,
            text=lambda: bisection_text(bisection, terminal_width(), full=arguments.full, colour=colour()),
            messages=(reused,) if records.used else (),
        )
