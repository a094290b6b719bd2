"""The verb `replay`: judge an attempt again under the present judge."""

from argparse import Namespace

from harness.records import Replay as Record
from harness.shell.exit_codes import EXIT_OF_OUTCOME
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb


class Replay(Verb):
    place = "machine", 120
    line = "judge an attempt again under the present judge"
    example = "replay 3"
    description = (
        "Judges an attempt again under the present judge; records nothing. The exit code is that of the new verdict, "
        "such as 1 for an attempt that is rejected again."
    )
    document = Document(4, Record)
    effect = "writes"

    def configure(self, parser: Parser) -> None:
        parser.attempt("the attempt's number", nargs=None)
        parser.json("the result as JSON")
        parser.quiet()

    def run(self, arguments: Namespace) -> Outcome:
        from harness.loop.replay import replay
        from harness.render.review import replay_blocks
        from harness.verbs.parts.context import contest_of, progress_of, tidy

        contest = contest_of(arguments)
        with progress_of(arguments) as progress:
            result = replay(contest, arguments.number, progress)
        tidy(contest.directory)
        code = EXIT_OF_OUTCOME[result.now.outcome]
        return Outcome(document=result, text=lambda: replay_blocks(result), exit_code=code)
