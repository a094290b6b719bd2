"""The verb `diagnose`: findings on what to try next, each with its rule and gain."""

from harness.shell.parser import Parser
from harness.shell.tables import TABLES
from harness.shell.verb import Verb


class Diagnose(Verb):
    place = "look", 80
    line = "findings on what to try next, each with its rule and gain"
    example = "diagnose 3"
    description = (
        "Says what to try next: each finding with its numbers, its rule, its gain or an upper bound of the gain, and "
        "one change to try. Advised edits of one constant are compiled and simulated first, and ranked by their gain. "
        "A kernel.py that was not judged is timed only: its results are not checked."
    )
    examples = "ratchet.sh diagnose; ratchet.sh diagnose 3"
    document = TABLES
    effect = "reads"
    not_for_tools = frozenset({"--no-edits"})

    def configure(self, parser: Parser) -> None:
        parser.attempt("the attempt (default: kernel.py as it stands)", type=int)
        parser.chip("time kernel.py as it stands, for this chip")
        parser.member()
        parser.flag("--no-edits", "do not simulate the advised edits of one constant; each simulation takes seconds")
        parser.json("the findings as JSON")
        parser.quiet()
