"""Screens the settings of a grid or of a search, and judges the best setting as one attempt."""

import math
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from harness.contest import Contest
from harness.errors import UsageError
from harness.loop import expected, ray_cluster, screening, search_space
from harness.loop import sweep as sweeping
from harness.loop.bench import Bench
from harness.loop.options import Options
from harness.loop.screening import Places
from harness.loop.search import Search
from harness.render.sections import GAP, Block
from harness.render.sweep import sweep_blocks
from harness.shell.arguments import say
from harness.shell.exit_codes import EXIT_OF_OUTCOME
from harness.shell.verb import Outcome
from harness.verbs.parts.attempts import attempt_blocks, expectation, hypothesis_of, refuse_early, say_and_keep
from harness.verbs.parts.context import contest_of, progress_of


@contextmanager
def places_of(arguments: Namespace) -> Iterator[Places]:
    """Yields the places where settings are screened: processes here (`--jobs`), or Ray (`--workers`, `--ray`).

    Raises UsageError `usage` if both are asked for.
    """
    if arguments.workers is None and arguments.ray is None:
        yield screening.local(arguments.jobs)
        return
    if arguments.jobs is not None:
        raise UsageError("usage", "expected --jobs (processes of this machine) or --workers and --ray (Ray), got both")
    with ray_cluster.connected(arguments.ray, arguments.workers, say) as places:
        yield places


def run_search(
    arguments: Namespace,
    parameters: search_space.Grid,
    begin: Callable[[Contest], Search],
    count: int,
    longest_seconds: float = math.inf,
) -> Outcome:
    """Screens `count` settings of the search that `begin` makes, and judges the best as one attempt.

    The search begins no setting after `longest_seconds`. Raises UsageError `usage` for Ray without a simulator, and the
    errors of `sweep`.
    """
    hypothesis = hypothesis_of(arguments.message)
    options = Options(expected_time_ratio=expectation(arguments.expect), again=arguments.again)
    refuse_early(arguments, tuple((name, values[0]) for name, values in parameters))
    contest = contest_of(arguments, arguments.chip)
    if contest.chip.platform != "tpu" and (arguments.workers or arguments.ray):
        raise UsageError(
            "usage",
            f"--workers and --ray need the simulator, which simulates TPUs; settings for {contest.chip.name} are timed "
            "here, one by one",
        )
    with places_of(arguments) as places, progress_of(arguments) as progress:
        # A device times one setting at a time.
        at_a_time = places.count if contest.chip.platform == "tpu" else 1
        measured = expected.screening_seconds(contest, at_a_time)
        bench = Bench(contest=contest, progress=progress, on=arguments.on)
        attempt = expected.of(contest, contest.key(bench.source))
        guess = expected.of_screening(attempt, count, at_a_time, longest_seconds, measured)
        progress.expect(guess.stages, guess.total_seconds, guess.source)
        wanted = sweeping.Screening(parameters=parameters, begin=lambda: begin(contest), places=places)
        remarks: list[str] = []
        result = sweeping.sweep(bench, hypothesis, wanted, options, say_and_keep(remarks))
    judged = result.judged
    messages = judged.messages if judged else ()

    def blocks() -> Iterator[Block]:
        yield from sweep_blocks(result.swept)
        if judged is not None:
            yield from (GAP, *attempt_blocks(contest, judged, arguments))

    return Outcome(
        document=replace(result.swept, messages=(*remarks, *messages)),
        text=blocks,
        exit_code=1 if judged is None else EXIT_OF_OUTCOME[judged.attempt.verdict.outcome],
        messages=messages,
    )
