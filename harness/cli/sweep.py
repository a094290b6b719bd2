"""What `sweep` does: it screens a grid of settings and judges the best of them as one attempt."""

import math
from argparse import Namespace

from harness import contest as contests
from harness.cli.arguments import EXIT_OF_OUTCOME, colour, directory, say
from harness.cli.experiment import attempt_text, expectation, hypothesis_of
from harness.cli.verb import Outcome
from harness.judge.sandbox.environment import cores
from harness.loop import expected
from harness.loop import sweep as sweeping
from harness.loop.evaluate import Options
from harness.records import Policy
from harness.render.layout import terminal_width
from harness.render.progress import Progress
from harness.render.sweep import sweep_text

# A compiler takes one to three GB.
_MOST_JOBS = 16


def sweep(given: Namespace) -> Outcome:
    hypothesis = hypothesis_of(given.message)
    parameters = sweeping.grid(given.settings)
    contest = contests.load(directory(given.directory), given.chip)
    options = Options(expected_time_ratio=expectation(given.expect), on=given.on, again=given.again)
    jobs = given.jobs or min(cores(), _MOST_JOBS)
    with Progress(quiet=given.quiet or given.json) as progress:
        guess = expected.of_screening(expected.of(contest), math.prod(len(values) for _, values in parameters), jobs)
        progress.expect(guess.stages, guess.total_seconds, guess.attempts)
        found = sweeping.sweep(contest, hypothesis, parameters, options, Policy(), progress, say, jobs=jobs)
    judged = found.judged

    def text() -> str:
        grid = sweep_text(found.swept, terminal_width(), colour())
        return (
            grid if judged is None else f"{grid}\n\n{attempt_text(contest, judged, given.directory, full=given.full)}"
        )

    return Outcome(
        document=found.swept,
        text=text,
        exit_code=1 if judged is None else EXIT_OF_OUTCOME[judged.attempt.verdict.outcome],
        messages=judged.messages if judged else (),
    )
