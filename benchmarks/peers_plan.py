"""The configurations to try of each contender at each problem, in order, given the outcomes so far."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import peers_problems
from peers_problems import OURS, PROBLEMS, ROOT, Problem
from peers_tasks import Compiler, Outcome, Task

# The second compiler gets this many of a problem's best configurations.
_KEPT_ELSEWHERE = 2

# The outcome of a task; None if it was not tried.
Look = Callable[[Task], Outcome | None]


def ranking(tasks: Sequence[Task], look: Look) -> list[Task]:
    """The tasks that have a time, the fastest first."""
    timed = [
        (outcome.seconds, place) for place, task in enumerate(tasks) if (outcome := look(task)) and outcome.seconds
    ]
    return [tasks[place] for _, place in sorted(timed)]


def wanted(compiler: Compiler, chip: str, problem: Problem, contender: str, keep: int, look: Look) -> list[Task]:
    """The tasks of `contender` at `problem`: all configurations, or the best at the problem that ranks for this one.

    `keep` replaces the problem's own number if that is more than one. The list is empty if our kernel does not exist,
    and incomplete until the ranking is known.
    """
    if contender == OURS and not (ROOT / peers_problems.our_kernel(problem, chip)).exists():
        return []
    chosen = peers_problems.configurations(contender, problem, chip)
    if problem.ranked_by and _shares_ranking(contender, problem, chip):
        first = wanted(compiler, chip, PROBLEMS[problem.ranked_by], contender, keep, look)
        ranked = [task.configuration for task in ranking(first, look)]
        fitting = [configuration for configuration in ranked if peers_problems.fits(configuration, problem)]
        chosen = tuple(fitting[: keep if problem.kept > 1 else problem.kept])
        chosen += peers_problems.additional(contender, problem, chip)
    return [
        Task(compiler=compiler, chip=chip, problem=problem, contender=contender, configuration=configuration)
        for configuration in dict.fromkeys(chosen)
    ]


def _shares_ranking(contender: str, problem: Problem, chip: str) -> bool:
    """True if both problems have the same kernel; ours may have another file for each problem."""
    kernels = {peers_problems.our_kernel(each, chip) for each in (problem, PROBLEMS[problem.ranked_by])}
    return contender != OURS or len(kernels) == 1


def elsewhere(other: Compiler, tasks: Sequence[Task], look: Look) -> list[Task]:
    """The best of the tasks once more, with another compiler."""
    return [dataclasses.replace(task, compiler=other) for task in ranking(tasks, look)[:_KEPT_ELSEWHERE]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The requested comparison; `other` is the second compiler."""

    chips: tuple[str, ...]
    problems: tuple[str, ...]
    contenders: tuple[str, ...]
    compiler: Compiler
    other: Compiler | None
    keep: int

    @property
    def search(self) -> str:
        """Text for the page that says how the best was found."""
        return f"""With one head and no mask, every configuration of a contender is tried on v6e, and 24 on each other
chip, which include the published winners. The best {self.keep} of these, and some more that suit the problem, are tried
with the causal mask and with grouped heads. With 16 heads, which run the same program for each head, the best one is
tried, and the one with a published device time. If a problem has a kernel file of ours of its own, all configurations
of that kernel are tried. The second compiler gets the two best configurations of each problem."""

    def tasks(self, chip: str, problem: str, contender: str, look: Look) -> list[Task]:
        """The tasks of one contender at one problem on one chip."""
        return wanted(self.compiler, chip, PROBLEMS[problem], contender, self.keep, look)

    def stages(self, look: Look) -> Iterator[list[Task]]:
        """The tasks, stage by stage: the tasks of a stage may depend on the outcomes of earlier stages."""
        for chip in self.chips:
            for problem in self.problems:
                yield [task for each in self.contenders for task in self.tasks(chip, problem, each, look)]
            if self.other is not None:
                for problem in self.problems:
                    ours = [self.tasks(chip, problem, each, look) for each in self.contenders]
                    yield [task for tasks in ours for task in elsewhere(self.other, tasks, look)]
