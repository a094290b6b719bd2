"""The verb `undo`: revert the last accepted attempt, as a new commit."""

from argparse import Namespace

from harness.shell.parser import Parser
from harness.shell.verb import Outcome, Verb
from harness.verbs.checkout import DONE, done


class Undo(Verb):
    place = "loop", 90
    line = "revert the last accepted attempt, as a new commit"
    description = "Reverts the last accepted attempt, as a new commit."
    document = DONE
    effect = "overwrites"

    def configure(self, parser: Parser) -> None:
        parser.json("what was done, as JSON")

    def run(self, arguments: Namespace) -> Outcome:
        from harness.loop.bench import policy_here
        from harness.loop.undo import undo
        from harness.verbs.parts.context import contest_of

        return done(undo(contest_of(arguments), policy_here()))
