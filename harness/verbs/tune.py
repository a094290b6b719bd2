"""The verb `tune`: search settings with Optuna, judge the best as one attempt."""

import math
import time
from argparse import Namespace

from harness.records.sweep import SweepResult
from harness.shell.arguments import at_least, minutes
from harness.shell.parser import Parser
from harness.shell.verb import Document, Outcome, Verb
from harness.verbs.parts.arguments import add_screening, add_seed


class Tune(Verb):
    place = "loop", 30
    line = "search settings with Optuna, judge the best as one attempt"
    example = 'tune "experiment: ..." --set BQ=128..2048'
    description = (
        "Searches the settings of constants of kernel.py: Optuna proposes settings, which are compiled and timed, and "
        "the best is judged as one attempt, whose record lists the screened settings. If a search was interrupted, the "
        "same command continues it."
    )
    examples = 'ratchet.sh tune "experiment: blocks" --set BQ=128..4096:pow2 --set BKV=128..4096:pow2 --trials 40'
    document = Document(6, SweepResult)
    effect = "writes"

    def configure(self, parser: Parser) -> None:
        parser.option("--trials N", "settings screened at most (40)", type=at_least(1), default=40)
        parser.option("--minutes M", "stop starting new settings after M minutes", type=minutes)
        parser.choice(
            "--method",
            ["tpe", "random"],
            "how settings are chosen: by Optuna's model of the results so far (tpe), or at random",
            default="tpe",
        )
        add_seed(parser)
        add_screening(parser)

    def run(self, arguments: Namespace) -> Outcome:
        from harness.contest import Contest
        from harness.loop import search_space
        from harness.loop.search import Study, as_it_stands, study_name
        from harness.verbs.parts.searches import run_search

        parameters = search_space.space(arguments.settings)
        allowed = search_space.allowed(parameters, arguments.where)
        trials = min(arguments.trials, search_space.size(parameters) if allowed is None else len(allowed))
        longest_seconds = 60 * arguments.minutes if arguments.minutes is not None else math.inf
        deadline = time.monotonic() + longest_seconds

        def study(contest: Contest) -> Study:
            present = as_it_stands(contest.candidate(), parameters)
            return Study(
                parameters,
                method=arguments.method,
                trials=trials,
                deadline=deadline,
                seed=arguments.seed,
                path=contest.directory / "profile_data" / "tune.journal",
                name=study_name(contest, parameters),
                first=() if present is None else (present,),
                allowed=allowed,
            )

        return run_search(arguments, parameters, study, trials, longest_seconds)
