"""Walks the table of stages for one candidate: each begins when what it needs is there, until the outcome is certain.

Stages run side by side, and what ends an evaluation does not depend on which of them is faster: every request has a
rank, and of several failures the one of the lowest rank counts, once all requests below it have been answered.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from harness.judge.evaluate.compile.seen_programs import Seen
from harness.judge.evaluate.plan import Plan, Progress
from harness.judge.evaluate.steps import COMPARE, DEVICE, FULL, REDUCED, Known, Need, Product, Rank
from harness.judge.evaluate.tasks import MODULES, TASKS, ChildName
from harness.judge.sandbox import confinement
from harness.judge.sandbox import environment as environments
from harness.judge.sandbox.child import Children
from harness.judge.sandbox.jobs import Child, Job
from harness.judge.sandbox.messages import InterpretRequest, ShapesReply, TraceReply
from harness.judge.sandbox.reach import left_behind, not_interpreted, not_looked_into, reach
from harness.records import Check, Evidence, Failure, Latency, Policy, StageTime, Trace
from harness.records import Stage as FailureStage

_ORDER: tuple[FailureStage, ...] = get_args(FailureStage)

# With fewer cores, the full shape waits while there is a program to compile and simulate, which has one core, and
# reduced shapes to check, which have the rest.
_MANY_CORES = 4
# What is not needed yet leaves the cores to what is.
_NICENESS = 10
# There are two programs to check, and what the interpreter gave. Each process has inputs of its own in memory.
_MOST_CHECKERS = 3


@dataclass(frozen=True, slots=True)
class Stage:
    """One row of the table: `requests` asks the process `child` for something, `take` makes evidence of each answer.

    `name` is what people see; several rows may share one. `rank` is where it comes in the order in which failures
    count. `failing` is the stage of a Failure where an answer is one, `seconds` the limit of each request.
    """

    name: str
    rank: Rank
    needs: Need
    child: ChildName
    failing: FailureStage
    requests: Callable[["Evaluation", Any], Iterable[Any]]
    take: Callable[["Evaluation", Any, Any], Iterable[Product]]
    seconds: Callable[[Policy], float]


class Evaluation:
    """What is under way for one candidate: the plan, its processes, and the evidence so far."""

    def __init__(
        self, plan: Plan, children: Children, progress: Progress, after_trace: Callable[[Trace], None]
    ) -> None:
        self.plan = plan
        self._children = children
        self._progress = progress
        self._after_trace = after_trace
        self._began = time.monotonic()
        self._started: dict[str, Child] = {}
        # By the program that it has compiled.
        self._checkers: dict[str, Child] = {}
        self._jobs: dict[Job, tuple[Stage, Any, Rank]] = {}
        self._asked: dict[tuple[str, Rank], int] = {}
        self._held: list[tuple[Stage, Product]] = []
        self._open: dict[str, tuple[int, float]] = {}
        self._failures: list[tuple[Rank, Failure]] = []
        self._checks: list[tuple[Rank, Check]] = []
        # Of the answer that is being taken.
        self._rank: Rank = ()
        self._is_slower = False
        self._yielding: set[str] = set()
        # The step up to which things are asked for.
        self._until = DEVICE
        self._reply: TraceReply | None = None
        self._shapes: ShapesReply | None = None
        # What is known of this very program from an earlier evaluation.
        self.seen: Seen | None = None
        self.program_keys: tuple[str, ...] = ()
        self.found = Evidence(
            problem=plan.problem.statement(),
            chip=plan.chip.name,
            environment=environments.environment(),
            warnings=(
                *environments.warnings_about(os.environ),
                *confinement.warnings(plan.policy.is_confined),
                *not_looked_into(plan.chip),
            ),
            isolation=replace(
                confinement.offered(plan.policy.is_confined),
                variables=environments.recorded(environments.interpreting()),
            ),
        )

    def run(self, stages: tuple[Stage, ...], left_out: Callable[["Evaluation"], tuple[str, ...]]) -> Evidence:
        """Everything there is to find out, up to the failure that counts, or up to where the candidate is too slow.

        `left_out` names the checks that are not run on a candidate that is too slow. What `after_trace` raises is
        passed on.
        """
        self.until(DEVICE, stages)
        plan = self.plan
        if self._last is None and plan.timed and plan.source != "simulated":
            device = "cpu" if plan.source == "measured cpu" else plan.chip.platform
            self._begin(stages, Product("device", device))
            self._work_off(stages)
        return self.ended(left_out)

    def until(self, step: int, stages: tuple[Stage, ...]) -> None:
        """Everything up to that step; to be asked for in increasing order. Of several evaluations one at a time."""
        is_new, self._until = not self._started, step
        if is_new:
            # Importing JAX takes longer than tracing: the compiler's process warms up meanwhile.
            self._child("candidate")
            self._child("compiler")
            self._begin(stages, Product("kernel", None))
        self._work_off(stages)
        if step < FULL:
            # Until somebody asks for more, nothing of it is under way.
            for name in tuple(self._open):
                self._end(name, "done")

    def stop(self) -> None:
        """Takes the candidate for too slow for the full shape to matter, as `plan.is_slower` would."""
        self._is_slower = True

    def ended(self, left_out: Callable[["Evaluation"], tuple[str, ...]]) -> Evidence:
        """The evidence, once nothing more is to be asked."""
        last = self._last
        for name in tuple(self._open):
            self._end(name, "not needed")
        failures = [failure for rank, failure in self._failures if rank == last]
        first = min(
            (*failures[:1], *left_behind(self._children)),
            key=lambda failure: _ORDER.index(failure.stage),
            default=None,
        )
        checks = tuple(
            check for rank, check in sorted(self._checks, key=lambda one: one[0]) if last is None or rank <= last
        )
        is_slower = last == (COMPARE,) and first is None
        return replace(
            self.found,
            failure=first,
            checks=checks,
            unchecked=left_out(self) if is_slower else (),
            stages=tuple(sorted(self.found.stages, key=lambda stage: stage.start_seconds)),
        )

    @property
    def has_failed(self) -> bool:
        """Whether something that was found so far ends it."""
        return bool(self._failures)

    @property
    def reply(self) -> TraceReply:
        """What the trace gave; there where a stage needs what comes of it."""
        assert self._reply is not None
        return self._reply

    @property
    def shapes(self) -> ShapesReply:
        """The shapes to check; there where a stage needs what is traced for them."""
        assert self._shapes is not None
        return self._shapes

    def traced(self, reply: TraceReply) -> None:
        """The candidate is traced: whoever wants to know hears it, and the checking process warms up."""
        self._reply = reply
        self._after_trace(reply.trace)
        if self.plan.checked:
            self._child("checker")

    def shaped(self, reply: ShapesReply) -> None:
        """The candidate is traced for smaller shapes too."""
        self._shapes = reply
        self.add(warnings=(*self.found.warnings, *reply.warnings))

    def timed(self) -> None:
        """The evidence has its simulated latency: where that is too slow, the full shape is not asked about."""
        is_slower = self.plan.is_slower
        if is_slower is not None and self.plan.source == "simulated":
            self._is_slower = is_slower(self.found)

    def add(self, **fields: Any) -> None:
        """Puts fields into the evidence."""
        self.found = replace(self.found, **fields)

    def checked(self, checks: Iterable[Check]) -> None:
        """Puts checks into the evidence, if nothing that counts before them ends it."""
        self._checks += [(self._rank, check) for check in checks]

    def fail(self, failure: Failure) -> None:
        """The candidate has failed, unless something that counts before this fails too."""
        self._failures.append((self._rank, failure))

    @property
    def _last(self) -> Rank | None:
        """What has this rank, as far as is known, ends the evaluation; None while nothing does."""
        ends = [rank for rank, _ in self._failures]
        if self._is_slower:
            ends.append((COMPARE,))
        return min(ends, default=None)

    @property
    def _is_time_open(self) -> bool:
        """Whether it is not known yet if the candidate is too slow for the full shape to matter."""
        plan = self.plan
        return plan.is_slower is not None and plan.source == "simulated" and self.found.latency is None

    def _begin(self, stages: tuple[Stage, ...], product: Product) -> None:
        for stage in stages:
            if stage.needs == product.need:
                self._held.append((stage, product))
        self._begin_held(stages)

    def _begin_held(self, stages: tuple[Stage, ...]) -> None:
        """Asks for what may be asked for by now."""
        last = self._last
        is_early = environments.cores() < _MANY_CORES and (
            (bool(self._jobs) and self._is_time_open) or (self._is_compiling and self._is_reduced_open)
        )
        held, self._held = self._held, []
        for stage, product in held:
            if last is not None and stage.rank > last:
                continue
            if stage.rank[0] > self._until or (stage.rank[0] == FULL and is_early):
                self._held.append((stage, product))
                continue
            for request in stage.requests(self, product.value):
                if isinstance(request, Known):
                    self._take_known(stages, stage, request)
                else:
                    self._ask(stage, request)

    def _work_off(self, stages: tuple[Stage, ...]) -> None:
        """Hears every answer and begins what it makes possible, until nothing that counts can come any more."""
        while True:
            self._begin_held(stages)
            self._drop()
            if not self._jobs:
                return
            self._share_cores()
            for job, reply in (self._children.wait(), *self._children.done_meanwhile()):
                if job not in self._jobs:
                    continue
                stage, request, self._rank = self._jobs.pop(job)
                if not isinstance(reply, Failure):
                    for product in stage.take(self, request, reply):
                        self._begin(stages, product)
                elif job.task == "simulate":
                    # The simulator's trouble is not the candidate's: its latency is unknown, and says why.
                    self._unknown_latency(reply)
                else:
                    at_full = job.task == "interpret_full"
                    self.fail(not_interpreted(reply, self.shapes.difference) if at_full else reply)
                self._close(job.label, reply.kind if isinstance(reply, Failure) else "done")

    @property
    def _is_compiling(self) -> bool:
        """Whether the chip's program is being compiled or simulated; what else the compiler does keeps nobody."""
        return any(job.task in ("compile", "simulate") for job in self._jobs)

    @property
    def _is_reduced_open(self) -> bool:
        """Whether something is under way at the reduced shapes, beside what waits behind the compiler."""
        return any(rank[0] == REDUCED and stage.child != "compiler" for stage, _, rank in self._jobs.values())

    def _is_at_full(self, job: Job) -> bool:
        return job in self._jobs and self._jobs[job][2][0] == FULL

    def _share_cores(self) -> None:
        """While the chip's program is compiled and simulated, for which all else waits, the others yield to that.

        After that checks of the contest's own shape yield to those of reduced ones, which end more evaluations.
        """
        is_compiling, is_reduced_open = self._is_compiling, self._is_reduced_open
        for name, child in self._started.items():
            is_late = child.name == "checker" and any(map(self._is_at_full, child.queue)) and is_reduced_open
            yields = is_late or (is_compiling and child.name in ("candidate", "checker"))
            if yields != (name in self._yielding):
                self._children.yield_to_others(child, _NICENESS if yields else 0)
                self._yielding ^= {name}

    def _drop(self) -> None:
        """Forgets the requests that cannot change the outcome any more, and those of processes that have ended."""
        last = self._last
        dropped = [
            job
            for job, (_, _, rank) in self._jobs.items()
            if (last is not None and rank > last) or (job.child.ended and job not in job.child.queue)
        ]
        self._children.drop(dropped)
        for job in dropped:
            del self._jobs[job]
            self._close(job.label, "not needed")

    def _child(self, name: ChildName, number: int = 1) -> Child:
        """The process of that name, started when it is first asked for; several may have the same one."""
        place = name if number == 1 else f"{name}-{number}"
        if place not in self._started:
            plan = self.plan
            directory = plan.directory_of(place)
            directory.mkdir(parents=True, exist_ok=True)
            own = reach(
                name, problem=plan.pickled_problem, work=plan.work, profiles=plan.contest / "profile_data",
                on_device=plan.source == "measured",
            )  # fmt: skip
            self._started[place] = self._children.start(
                name, MODULES[name], directory, self._environment(name), confinement=own
            )
        return self._started[place]

    def _checker(self, program: str, rank: Rank) -> Child:
        """The process to check this: a program stays where it is compiled, all else goes where the least waits.

        What is asked about a reduced shape does not wait for the contest's own.
        """
        if program in self._checkers:
            return self._checkers[program]
        started = [child for child in self._started.values() if child.name == "checker"]
        chosen = min(
            started,
            key=lambda child: (rank[0] != FULL and any(map(self._is_at_full, child.queue)), len(child.queue)),
            default=None,
        )
        if chosen is None or (chosen.queue and len(started) < min(_MOST_CHECKERS, environments.cores())):
            chosen = self._child("checker", len(started) + 1)
        if program:
            self._checkers[program] = chosen
        return chosen

    def _environment(self, name: ChildName) -> Mapping[str, str]:
        plan = self.plan
        if name == "compiler":
            return environments.compiling(plan.chip, with_lines=plan.checked)
        if name == "timer":
            return environments.measuring("cpu" if plan.source == "measured cpu" else plan.chip.platform)
        if name == "checker":
            return environments.checking(self.reply.operations)
        return environments.interpreting() if name == "candidate" else environments.on_cpu()

    def _ask(self, stage: Stage, request: Any) -> None:
        task, reply = TASKS[type(request)]
        if isinstance(request, InterpretRequest) and request.shape == "full":
            # The same by another name, by which its failure is known.
            task = "interpret_full"
        running, start = self._open.get(stage.name, (0, time.monotonic()))
        self._open[stage.name] = (running + 1, start)
        if not running:
            self._progress(stage.name, "start", 0.0)
        number = self._asked.get((stage.name, stage.rank), 0)
        self._asked[stage.name, stage.rank] = number + 1
        limit = stage.seconds(self.plan.policy)
        is_check = stage.child == "checker"
        child = self._checker(request.artifact, stage.rank) if is_check else self._child(stage.child)
        job = self._children.ask(child, stage.name, stage.failing, task, request, reply, limit)
        self._jobs[job] = (stage, request, (*stage.rank, number))

    def _take_known(self, stages: tuple[Stage, ...], stage: Stage, known: Known) -> None:
        """Makes evidence of an answer that nobody had to be asked for."""
        self._progress(stage.name, "start", 0.0)
        self._open[stage.name] = (1, time.monotonic())
        self._rank = (*stage.rank, 0)
        products: tuple[Product, ...] = ()
        if isinstance(known.reply, Failure):
            self.fail(known.reply)
        else:
            products = tuple(stage.take(self, known.request, known.reply))
        self._close(stage.name, known.reply.kind if isinstance(known.reply, Failure) else "seen before")
        for product in products:
            self._begin(stages, product)

    def _unknown_latency(self, failure: Failure) -> None:
        reason = f"the simulator gave no result: {failure.kind}: {failure.message}"
        self.add(warnings=(*self.found.warnings, reason))
        if self.plan.source == "simulated":
            unknown = Latency(source="simulated", seconds=None, plus_minus_seconds=None, reasons=(reason,))
            self.add(latency=unknown)

    def _close(self, name: str, state: str) -> None:
        """One job of a stage is done; with the last one the stage is, unless its answer asked for more."""
        running, start = self._open[name]
        self._open[name] = (running - 1, start)
        if running == 1 and not any(stage.name == name for stage, _ in self._held):
            self._end(name, state)

    def _end(self, name: str, state: str) -> None:
        _, start = self._open.pop(name)
        seconds = time.monotonic() - start
        self._progress(name, state, seconds)
        done = StageTime(stage=name, start_seconds=start - self._began, seconds=seconds)
        self.add(stages=(*self.found.stages, done))
