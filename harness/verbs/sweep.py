"""The verb `sweep`: screen a grid of settings, judge the best as one attempt."""

from argparse import Namespace

from harness.errors import UsageError
from harness.records.sweep import SweepResult
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb
from harness.verbs.parts.arguments import add_screening

# The most settings in a grid. Each setting takes some seconds on two cores, so a larger grid is a typing error, or a
# task for `tune`.
_MOST_SETTINGS = 256


class Sweep(Verb):
    place = "loop", 20
    line = "screen a grid of settings, judge the best as one attempt"
    example = 'sweep "experiment: ..." --set BQ=512,1024'
    description = (
        "Compiles and times every setting of a grid, then judges the best one as one attempt, whose record names the "
        "grid. A setting that fails stays in the table with its failure."
    )
    examples = 'ratchet.sh sweep "experiment: larger blocks" --set BQ=512,1024,2048 --set BKV=512,1024'
    document = Document(6, SweepResult)
    effect = "writes"

    def configure(self, parser: Parser) -> None:
        add_screening(parser)

    def run(self, arguments: Namespace) -> Outcome:
        from harness.loop import search_space
        from harness.loop.search import WholeGrid
        from harness.verbs.parts.searches import run_search

        parameters = search_space.space(arguments.settings)
        allowed = search_space.allowed(parameters, arguments.where)
        count = search_space.size(parameters) if allowed is None else len(allowed)
        if count > _MOST_SETTINGS:
            raise UsageError(
                "bad-grid",
                f"expected at most {_MOST_SETTINGS} settings in a grid, got {count:,}: narrow the grid, or search "
                "it with `tune`",
            )
        return run_search(arguments, parameters, lambda contest: WholeGrid(parameters, allowed), count)
