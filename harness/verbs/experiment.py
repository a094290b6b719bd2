"""The verb `experiment`: test one change of kernel.py, keep it if it is faster."""

from argparse import Namespace
from dataclasses import dataclass, fields

from harness.records import Attempt, Row
from harness.shell.exit_codes import EXIT_OF_OUTCOME
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb
from harness.verbs.parts.arguments import add_evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAttempt(Attempt):
    """An attempt as the ledger stores it, except that `number` is None if it was not recorded."""

    number: int | None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentDocument:
    """An attempt, its row in the table of attempts, and the remarks on it.

    - `recorded`: False if kernel.py is the champion's own text. In this case the champion was judged again, no number
      was used, the ledger has no new attempt, and `row` is None.
    - `noted`: True if the result was kept as a note on the champion.
    - `messages`: the remarks that stderr shows as well.
    """

    recorded: bool
    noted: bool
    attempt: JudgedAttempt
    row: Row | None
    messages: tuple[str, ...]


class Experiment(Verb):
    """The verb of a bare message: users type the message in place of a verb's name."""

    place = "loop", 0
    line = "test one change of kernel.py, keep it if it is faster"
    example = '"experiment: raise BQ" --set BQ=2048'
    description = "Judges kernel.py and keeps it only if it is correct and faster than the champion."
    examples = 'ratchet.sh "experiment: raise BQ to 2048" --set BQ=2048 --expect 30%'
    # Versions up to 20 were those of the stored attempt (records/stored.py).
    document = Document(21, ExperimentDocument)
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
        parser.flag("--record", "if kernel.py is the champion's text, record the result as a note")
        parser.flag("--rebaseline", "make kernel.py the champion if it is correct, without comparing its time")
        parser.flag("--all-checks", "run every check even if the kernel is slower than the champion")

    def run(self, arguments: Namespace) -> Outcome:
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
        settings = tuple(parse(text) for text in arguments.settings)
        expectation = attempts.expectation(arguments.expect)
        attempts.refuse_early(arguments, settings)
        contest = contest_of(arguments, arguments.chip)
        options = Options(
            settings=settings,
            expected_time_ratio=expectation,
            again=arguments.again,
            record=arguments.record,
            rebaseline=arguments.rebaseline,
            all_checks=arguments.all_checks,
        )
        with progress_of(arguments) as progress:
            bench = Bench(contest=contest, progress=progress, on=arguments.on, deep=deep)
            guess = expected.of(contest, None if arguments.rebaseline else contest.key(bench.source), settings)
            progress.expect(guess.stages, guess.total_seconds, guess.source)
            remarks: list[str] = []
            judged = ratchet.attempt(bench, hypothesis, options, attempts.say_and_keep(remarks))
        attempt = judged.attempt
        # In the text of the report, these sentences are among the warnings.
        words = attempts.friendly_words(contest, attempt) if arguments.json else ()
        stored = {field.name: getattr(attempt, field.name) for field in fields(attempt)}
        return Outcome(
            document=ExperimentDocument(
                recorded=judged.recorded,
                noted=judged.noted,
                attempt=JudgedAttempt(**{**stored, "number": attempt.number if judged.recorded else None}),
                row=judged.row,
                messages=(*remarks, *words, *judged.messages),
            ),
            text=lambda: attempts.attempt_blocks(contest, judged, arguments),
            exit_code=EXIT_OF_OUTCOME[attempt.verdict.outcome],
            messages=(*words, *judged.messages),
            afterwards=lambda: attempts.rescaled(contest, judged, arguments),
        )
