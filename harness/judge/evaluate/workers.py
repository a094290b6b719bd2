"""The processes of one evaluation: started when they are first needed, chosen for each request, sharing the cores."""

from collections.abc import Container, Mapping

from harness.judge.evaluate.reach import reach
from harness.judge.evaluate.request import Plan
from harness.judge.evaluate.tasks import MODULES, ChildName
from harness.sandbox import environment as environments
from harness.sandbox.child import Children
from harness.sandbox.jobs import Child, Job

# What is not needed yet leaves the cores to what is.
_NICENESS = 10
# There are two programs to check, and what the interpreter gave. Each process has inputs of its own in memory.
_MOST_CHECKERS = 3


class Workers:
    """The processes that one evaluation has started. `operations` are those of the traced program."""

    def __init__(self, plan: Plan, children: Children) -> None:
        self._plan = plan
        self._children = children
        self._started: dict[str, Child] = {}
        # By the program that it has compiled.
        self._checkers: dict[str, Child] = {}
        self._yielding: set[str] = set()
        self.operations = 0

    @property
    def is_idle(self) -> bool:
        """True if nothing was started yet."""
        return not self._started

    def child(self, name: ChildName, number: int = 1) -> Child:
        """The process of that name, started when it is first asked for; several may have the same one."""
        place = name if number == 1 else f"{name}-{number}"
        if place not in self._started:
            plan = self._plan
            directory = plan.directory_of(place)
            directory.mkdir(parents=True, exist_ok=True)
            own = reach(
                name, problem=plan.pickled_problem, work=plan.work, profiles=plan.request.profile_data,
                on_device=plan.source == "measured",
            )  # fmt: skip
            self._started[place] = self._children.start(
                name, MODULES[name], directory, self._environment(name), confinement=own
            )
        return self._started[place]

    def checker(self, program: str, late: Container[Job], *, is_late: bool) -> Child:
        """The process to check this: a program stays where it is compiled, all else goes where the least waits.

        What is asked about a reduced shape (not `is_late`) does not wait for the contest's own, whose jobs are `late`.
        """
        if program in self._checkers:
            return self._checkers[program]
        started = [child for child in self._started.values() if child.name == "checker"]
        chosen = min(
            started,
            key=lambda child: (not is_late and any(job in late for job in child.queue), len(child.queue)),
            default=None,
        )
        if chosen is None or (chosen.queue and len(started) < min(_MOST_CHECKERS, environments.cores())):
            chosen = self.child("checker", len(started) + 1)
        if program:
            self._checkers[program] = chosen
        return chosen

    def share_cores(self, late: Container[Job], *, is_compiling: bool, is_reduced_open: bool) -> None:
        """While the chip's program is compiled and simulated, for which all else waits, the others yield to that.

        After that checks of the contest's own shape, whose jobs are `late`, yield to those of reduced ones, which end
        more evaluations.
        """
        for name, child in self._started.items():
            is_late = child.name == "checker" and is_reduced_open and any(job in late for job in child.queue)
            yields = is_late or (is_compiling and child.name in ("candidate", "checker"))
            if yields != (name in self._yielding):
                self._children.yield_to_others(child, _NICENESS if yields else 0)
                self._yielding ^= {name}

    def _environment(self, name: ChildName) -> Mapping[str, str]:
        plan = self._plan
        if name == "compiler":
            return environments.compiling(plan.chip, with_lines=plan.request.checked)
        if name == "timer":
            return environments.measuring("cpu" if plan.source == "measured cpu" else plan.chip.platform)
        if name == "checker":
            return environments.checking(self.operations)
        return environments.interpreting() if name == "candidate" else environments.on_cpu()
