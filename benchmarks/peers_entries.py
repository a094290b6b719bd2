"""One contender's results of peers.py at one problem on one chip, for the page: its best configuration, error and
title.
"""

import dataclasses
from collections.abc import Mapping

import peers_problems
from peers_errors import Error, Errors
from peers_errors import text as error_text
from peers_plan import Look, Plan, elsewhere, ranking
from peers_problems import OURS, PROBLEMS, Configuration
from peers_tasks import Outcome, Task
from peers_titles import Title

NOT_RUN = "not run"
NAMES = {
    "ours": "ours",
    "flash": "JAX flash attention",
    "splash": "JAX splash attention",
    "tokamax": "tokamax splash attention",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One contender at one problem on one chip: its best configuration with each compiler, None if none has a time.

    `tried` of the `planned` configurations have been tried, and `refusals` say why some have no time. `is_complete`:
    nothing is left to try, neither here nor at the problem that ranks the configurations. `is_complete_there`: the same
    with the other compiler.
    """

    contender: str
    problem: str
    planned: int
    tried: int
    refusals: tuple[str, ...]
    is_complete: bool
    configuration: Configuration | None
    outcome: Outcome | None
    other_configuration: Configuration | None
    other: Outcome | None
    is_complete_there: bool
    # The worst error of the best configuration, in units of the tolerance; None where it was not run.
    error: Error | None = None
    # The reason why a kernel of ours has no figures, although it may have run; empty if it has figures.
    fails: str = ""

    @property
    def seconds(self) -> float | None:
        """The best time, simulated."""
        return self.outcome.seconds if self.outcome else None

    @property
    def other_seconds(self) -> float | None:
        """The best time with the other compiler, simulated."""
        return self.other.seconds if self.other else None


def entry(plan: Plan, chip: str, problem: str, contender: str, look: Look) -> Entry:
    """The entry of a contender at a problem on a chip, from the outcomes so far."""
    tasks = plan.tasks(chip, problem, contender, look)
    outcomes = [task_outcome for task in tasks if (task_outcome := look(task)) is not None]
    first = _first(tasks, look)
    ranked_by = PROBLEMS[problem].ranked_by
    chosen_well = not ranked_by or entry(plan, chip, ranked_by, contender, look).is_complete
    there = elsewhere(plan.other, tasks, look) if plan.other else []
    second = _first(there, look)
    return Entry(
        contender=contender,
        problem=problem,
        planned=len(tasks),
        tried=len(outcomes),
        refusals=tuple(each_outcome.refusal for each_outcome in outcomes if each_outcome.refusal),
        is_complete=chosen_well and 0 < len(tasks) == len(outcomes),
        configuration=first.configuration if first else None,
        outcome=look(first) if first else None,
        other_configuration=second.configuration if second else None,
        other=look(second) if second else None,
        is_complete_there=all(look(task) is not None for task in there),
    )


def _first(tasks: list[Task], look: Look) -> Task | None:
    return next(iter(ranking(tasks, look)), None)


Entries = dict[tuple[str, str], list[Entry]]


def with_error(plan: Plan, chip: str, problem: str, each: Entry, errors: Errors) -> Entry:
    if each.configuration is None:
        return each
    task = Task(
        compiler=plan.compiler,
        chip=chip,
        problem=PROBLEMS[problem],
        contender=each.contender,
        configuration=each.configuration,
    )
    return dataclasses.replace(each, error=errors(task))


def without_failed_figures(each: Entry, chip: str, titles: Mapping[str, Title] | None) -> Entry:
    """The entry; if our kernel fails, without figures and with the reason."""
    if each.contender != OURS:
        return each
    title = (titles or {}).get(peers_problems.our_kernel(PROBLEMS[each.problem], chip))
    fails = failure(each.error)
    if title is not None and (not title.holds or each.outcome is None):
        fails = title.words or ("" if title.holds else "kernel.py is not the champion's")
    if not fails:
        return each
    return dataclasses.replace(
        each, fails=fails, configuration=None, outcome=None, other_configuration=None, other=None
    )


def failure(error: Error | None) -> str:
    """The reason why a kernel with this error has no figures; empty if it has figures."""
    if error is None or error.worst is None or error.worst <= 1:
        return ""
    return f"fails: error {error_text(error, NOT_RUN)} ({error.family}, seed {error.seed})"
