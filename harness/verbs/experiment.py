"""The verb `experiment`: test one change of kernel.py, keep it if it is faster."""

from argparse import Namespace
from dataclasses import dataclass

from harness.records import Attempt, Row
from harness.records.stored import SCHEMA
from harness.shell.arguments import say
from harness.shell.parser import Parser
from harness.shell.verb import EXIT_OF_OUTCOME, Document, Outcome, Verb
from harness.verbs.parts.arguments import add_evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDocument:
    """An attempt as the ledger stores it; `row` is its row in the table of attempts, None in the answer of `show`."""

    attempt: Attempt
    row: Row | None


class Experiment(Verb):
    """The verb of a bare message: users type the message in place of a verb's name."""

    place = "loop", 0
    line = "test one change of kernel.py, keep it if it is faster"
    example = '"experiment: raise BQ" --set BQ=2048'
    description = "Judges kernel.py and keeps it only if it is correct and faster than the champion."
    examples = 'ratchet.sh "experiment: raise BQ to 2048" --set BQ=2048 --expect 30%'
    document = Document(SCHEMA, AttemptDocument)
    effect = "writes"
    tool = "run_experiment"

    def configure(self, parser: Parser) -> None:
        parser.add_argument("message", help="the hypothesis; begins with `experiment:`")
        add_evaluation(parser)
        parser.settings("NAME=VALUE", "rewrite this constant of kernel.py")
        parser.option(
            "--expect 5%", "how much less time you expect, as 5%% or x0.95 (for more time -5%% or x1.05); recorded"
        )
        parser.flag("--again", "judge an already judged program again")
        parser.flag("--record", "if the kernel is the champion's, keep the result as a note")
        parser.flag("--rebaseline", "make kernel.py the champion if it is correct, without comparing its time")
        parser.flag("--all-checks", "run every check even if the kernel is slower than the champion")

    def run(self, arguments: Namespace) -> Outcome:
        from dataclasses import replace

        from harness.advice import report as reporting
        from harness.judge.key import key_digest
        from harness.loop import attempt as ratchet
        from harness.loop import expected
        from harness.loop.bench import Bench
        from harness.loop.options import Options
        from harness.loop.settings import parse
        from harness.verbs.parts import attempts
        from harness.verbs.parts.context import contest_of, progress_of

        message, deep = arguments.message, arguments.deep
        if message.split()[-1:] == ["--deep"]:
            message, deep = message.rstrip().removesuffix("--deep"), True
        hypothesis = attempts.hypothesis_of(message)
        contest = contest_of(arguments, arguments.chip)
        options = Options(
            settings=tuple(parse(text) for text in arguments.settings),
            expected_time_ratio=attempts.expectation(arguments.expect),
            again=arguments.again,
            record=arguments.record,
            rebaseline=arguments.rebaseline,
            all_checks=arguments.all_checks,
        )
        with progress_of(arguments) as progress:
            guess = expected.of(contest, wholly=arguments.all_checks)
            progress.expect(guess.stages, guess.total_seconds, guess.attempts)
            bench = Bench(contest=contest, progress=progress, on=arguments.on, deep=deep)
            judged = ratchet.attempt(bench, hypothesis, options, say)
        attempt = judged.attempt
        # The text of the report has these sentences among its warnings.
        words = attempts.friendly_words(contest, attempt) if arguments.json else ()
        row = replace(reporting.row(attempt, judged.report, key_digest(attempt.key)), commit="")
        return Outcome(
            document=AttemptDocument(attempt=attempt, row=row),
            text=lambda: attempts.attempt_blocks(contest, judged, arguments),
            exit_code=EXIT_OF_OUTCOME[attempt.verdict.outcome],
            messages=(*words, *judged.messages),
            afterwards=lambda: attempts.rescaled(contest, judged, arguments),
        )
