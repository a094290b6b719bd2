"""The processes of one evaluation, each started when it is first needed, and their open requests."""

from collections.abc import Iterator, Mapping
from typing import Any

from harness.judge.evaluate.reach import reach
from harness.judge.evaluate.request import Plan
from harness.judge.evaluate.state import FULL, REDUCED, Rank, Stage, StageAnswer
from harness.judge.evaluate.tasks import MODULES, TASKS, ChildName
from harness.sandbox import environment as environments
from harness.sandbox.child import Children
from harness.sandbox.jobs import Child, Job

# The niceness of processes whose results are not needed yet.
_NICENESS = 10
# One checker for each of the two CPU reference programs (full and reduced shape), and one for the interpreter's
# outputs. Each checker has separate inputs in memory.
_MOST_CHECKERS = 3


class Workers:
    """The processes that one evaluation has started, and the requests that they have not answered.

    `operations` is the number of operations of the traced program.
    """

    def __init__(self, plan: Plan, children: Children) -> None:
        self._plan = plan
        self._children = children
        self._started: dict[str, Child] = {}
        # The checkers, keyed by the program that each of them has compiled.
        self._checkers: dict[str, Child] = {}
        self._yielding: set[str] = set()
        self._jobs: dict[Job, tuple[Stage, Any, Rank]] = {}
        self._asked: dict[tuple[str, Rank], int] = {}
        self.operations = 0

    @property
    def is_idle(self) -> bool:
        """True if nothing was started yet."""
        return not self._started

    def child(self, name: ChildName, number: int = 1) -> Child:
        """The process with this name and number, started when first needed."""
        place = name if number == 1 else f"{name}-{number}"
        if place not in self._started:
            plan = self._plan
            directory = plan.directory_of(place)
            directory.mkdir(parents=True, exist_ok=True)
            confinement = reach(
                name,
                problem=plan.pickled_problem,
                work=plan.work,
                profiles=plan.request.profile_data,
                on_device=plan.source == "measured",
            )
            self._started[place] = self._children.start(
                name, MODULES[name], directory, self._environment(name), confinement=confinement
            )
        return self._started[place]

    def ask(self, stage: Stage, request: Any) -> None:
        """Sends a stage's request to its process. `answers` yields the reply, whose rank has the request's number."""
        number = self._asked.get((stage.name, stage.rank), 0)
        self._asked[stage.name, stage.rank] = number + 1
        if stage.child == "checker":
            child = self._checker(request.artifact, is_late=stage.rank[0] == FULL)
        else:
            child = self.child(stage.child)
        task, reply = TASKS[type(request)]
        limit = stage.seconds(self._plan.policy)
        job = self._children.ask(child, stage.name, stage.failing, task, request, reply, limit)
        self._jobs[job] = (stage, request, (*stage.rank, number))

    def answers(self) -> Iterator[tuple[Stage, StageAnswer]]:
        """Waits for an answer. Yields all answers that have arrived, each with its stage."""
        self._share_cores()
        for job, reply in (self._children.wait(), *self._children.finished_jobs()):
            # All other jobs belong to another member of a suite, or were dropped.
            if job in self._jobs:
                stage, request, rank = self._jobs.pop(job)
                yield stage, StageAnswer(request, reply, rank)

    def drop(self, last: Rank | None) -> list[str]:
        """Drops requests with a higher rank than `last`, or to ended processes. Returns the names of their stages."""
        dropped = [
            job
            for job, (_, _, rank) in self._jobs.items()
            if (last is not None and rank > last) or (job.child.ended and job not in job.child.queue)
        ]
        self._children.drop(dropped)
        return [self._jobs.pop(job)[0].name for job in dropped]

    @property
    def is_busy(self) -> bool:
        """True while an answer is outstanding."""
        return bool(self._jobs)

    @property
    def is_compiling(self) -> bool:
        """True while the chip's program is compiled or simulated, or its variant with all checks is simulated."""
        return any(job.task in ("compile", "simulate") for job in self._jobs)

    @property
    def is_reduced_open(self) -> bool:
        """True while a request at the reduced shapes, or for the certificate, is under way."""
        return any(rank[0] == REDUCED and stage.child != "compiler" for stage, _, rank in self._jobs.values())

    def _is_late(self, child: Child) -> bool:
        """True if a request at the contest's own shape waits in the queue of this process."""
        return any(job in self._jobs and self._jobs[job][2][0] == FULL for job in child.queue)

    def _checker(self, program: str, *, is_late: bool) -> Child:
        """The process for this check: the process that has compiled the program, else the one with the shortest queue.

        A request at a reduced shape (not `is_late`) avoids processes with requests at the contest's shape.
        """
        if program in self._checkers:
            return self._checkers[program]
        started = [child for child in self._started.values() if child.name == "checker"]
        chosen = min(started, key=lambda child: (not is_late and self._is_late(child), len(child.queue)), default=None)
        if chosen is None or (chosen.queue and len(started) < min(_MOST_CHECKERS, environments.cores())):
            chosen = self.child("checker", len(started) + 1)
        if program:
            self._checkers[program] = chosen
        return chosen

    def _share_cores(self) -> None:
        """Lowers the priority of candidate, certifier and checkers while the chip's program is compiled or simulated.

        Checks at the contest's shape also yield to checks at reduced shapes, which end more evaluations.
        """
        is_compiling, is_reduced_open = self.is_compiling, self.is_reduced_open
        for name, child in self._started.items():
            is_late = child.name == "checker" and is_reduced_open and self._is_late(child)
            yields = is_late or (is_compiling and child.name in ("candidate", "certifier", "checker"))
            if yields != (name in self._yielding):
                self._children.yield_to_others(child, _NICENESS if yields else 0)
                self._yielding ^= {name}

    def _environment(self, name: ChildName) -> Mapping[str, str]:
        plan = self._plan
        if name in ("compiler", "checks compiler"):
            return environments.compiling(plan.chip, with_lines=plan.request.has_lines)
        if name == "timer":
            return environments.measuring("cpu" if plan.source == "measured cpu" else plan.chip.platform)
        if name == "checker":
            return environments.checking(self.operations, plan.chip.devices)
        return environments.interpreting() if name == "candidate" else environments.on_cpu()
