"""What `sweep` and `tune` do: they screen settings, all of a grid or some, and judge the best as one attempt."""

import math
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness import contest as contests
from harness.cli.arguments import EXIT_OF_OUTCOME, colour, directory, say
from harness.cli.experiment import attempt_text, expectation, hypothesis_of
from harness.cli.verb import Outcome
from harness.contest import Contest
from harness.errors import UsageError
from harness.loop import expected, ray_cluster, screening, search_space
from harness.loop import sweep as sweeping
from harness.loop import tune as tuning
from harness.loop.bench import Bench
from harness.loop.options import Options
from harness.loop.screening import Places
from harness.loop.search import Search, Study, WholeGrid
from harness.render.layout import terminal_width
from harness.render.progress import Progress
from harness.render.sweep import sweep_text

# Each takes some seconds of two cores; a grid beyond this is a slip of the keyboard, or for a search.
_MOST_SETTINGS = 256


@contextmanager
def places_of(given: Namespace) -> Iterator[Places]:
    """Where settings are screened: in processes of this machine (`--jobs`), else by Ray (`--workers`, `--ray`)."""
    if given.workers is None and given.ray is None:
        yield screening.local(given.jobs)
        return
    if given.jobs is not None:
        raise UsageError("usage", "expected --jobs (processes of this machine), or --workers and --ray, got both")
    with ray_cluster.connected(given.ray, given.workers, say) as places:
        yield places


def sweep(given: Namespace) -> Outcome:
    parameters = search_space.space(given.settings)
    allowed = search_space.allowed(parameters, given.where)
    count = search_space.size(parameters) if allowed is None else len(allowed)
    if count > _MOST_SETTINGS:
        raise UsageError(
            "bad-grid", f"expected at most {_MOST_SETTINGS} settings in a grid, got {count:,}: narrow it, or `tune` it"
        )
    return _searched(given, parameters, lambda contest: WholeGrid(parameters, allowed), count)


def tune(given: Namespace) -> Outcome:
    parameters = search_space.space(given.settings)
    allowed = search_space.allowed(parameters, given.where)
    trials = min(given.trials, search_space.size(parameters))
    deadline = time.monotonic() + 60 * given.minutes if given.minutes is not None else math.inf

    def study(contest: Contest) -> Study:
        return Study(
            parameters,
            method=given.method,
            trials=trials,
            deadline=deadline,
            seed=given.seed,
            path=contest.directory / "profile_data" / "tune.journal",
            name=tuning.study_name(contest, parameters),
            first=tuning.as_it_stands(contest.candidate(), parameters),
            allowed=allowed,
        )

    return _searched(given, parameters, study, trials)


def _searched(
    given: Namespace, parameters: search_space.Grid, begin: Callable[[Contest], Search], count: int
) -> Outcome:
    hypothesis = hypothesis_of(given.message)
    contest = contests.load(directory(given.directory), given.chip)
    options = Options(expected_time_ratio=expectation(given.expect), again=given.again)
    if contest.chip.platform != "tpu" and (given.workers or given.ray):
        raise UsageError(
            "usage",
            f"--workers and --ray screen in the simulator of TPUs; settings for {contest.chip.name} are timed "
            "here, one by one",
        )
    with places_of(given) as places, Progress(quiet=given.quiet or given.json) as progress:
        guess = expected.of_screening(expected.of(contest), count, places.count)
        progress.expect(guess.stages, guess.total_seconds, guess.attempts)
        bench = Bench(contest=contest, progress=progress, on=given.on)
        wanted = sweeping.Screening(parameters=parameters, begin=lambda: begin(contest), places=places)
        found = sweeping.sweep(bench, hypothesis, wanted, options, say)
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
