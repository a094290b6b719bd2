"""Walks the table of stages for one candidate: each begins when what it needs is there, until the outcome is certain.

Stages run side by side, and what ends an evaluation does not depend on which of them is faster: every request has a
rank, and of several failures the one of the lowest rank counts, once all requests below it have been answered.
"""

import os
from dataclasses import replace
from typing import Any

from harness.judge.evaluate.clock import StageClock
from harness.judge.evaluate.reach import left_behind, not_looked_into
from harness.judge.evaluate.request import Listener, Plan
from harness.judge.evaluate.stages import STAGES, left_out
from harness.judge.evaluate.state import DEVICE, FULL, REDUCED, Answer, Known, Product, Rank, Stage, State
from harness.judge.evaluate.tasks import TASKS
from harness.judge.evaluate.workers import Workers
from harness.records import Evidence, Failure
from harness.sandbox import confinement
from harness.sandbox import environment as environments
from harness.sandbox.child import Children
from harness.sandbox.jobs import Job

# With fewer cores, the full shape waits while there is a program to compile and simulate, which has one core, and
# reduced shapes to check, which have the rest.
_MANY_CORES = 4


class Evaluation:
    """One candidate under evaluation: `state` is what is known of it so far."""

    def __init__(self, plan: Plan, children: Children, listener: Listener) -> None:
        self.plan = plan
        self.state = State(evidence=_begun(plan))
        self._children = children
        self._listener = listener
        self._workers = Workers(plan, children)
        self._clock = StageClock(listener.progress)
        self._jobs: dict[Job, tuple[Stage, Any, Rank]] = {}
        self._asked: dict[tuple[str, Rank], int] = {}
        self._held: list[tuple[Stage, Product]] = []
        self._until = DEVICE

    def run(self) -> Evidence:
        """The evidence: runs all stages, up to the failure that counts or to where the candidate is too slow.

        Raises what `listener.after_trace` raises.
        """
        self.until(DEVICE)
        plan = self.plan
        if self.state.last is None and plan.request.timed and plan.source != "simulated":
            device = "cpu" if plan.source == "measured cpu" else plan.chip.platform
            self._begin(Product("device", device))
            self._work_off()
        return self.ended()

    def until(self, step: int) -> None:
        """Runs all stages up to `step`. Call with increasing steps. Not re-entrant."""
        self._until = step
        if self._workers.is_idle:
            # Importing JAX takes longer than tracing: the compiler's process warms up meanwhile.
            self._workers.child("candidate")
            self._workers.child("compiler")
            self._begin(Product("kernel", None))
        self._work_off()
        if step < FULL:
            # Until somebody asks for more, nothing of it is under way.
            self._clock.end_all("done")

    def stop(self) -> None:
        """Takes the candidate for too slow for the full shape to matter, as if `listener.is_slower` had said so."""
        self.state = replace(self.state, is_slower=True)

    def ended(self) -> Evidence:
        """The evidence, once nothing more is asked."""
        self._clock.end_all("not needed")
        evidence = self.state.ended(left_behind(self._children), lambda: left_out(self.plan, self.state))
        return replace(evidence, stages=self._clock.times)

    def _begin(self, *products: Product) -> None:
        self._held += [(stage, product) for product in products for stage in STAGES if stage.needs == product.need]
        self._begin_held()

    def _begin_held(self) -> None:
        """Asks for what may be asked for by now."""
        last = self.state.last
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
            for request in stage.requests(self.plan, self.state, product.value):
                if isinstance(request, Known):
                    self._take_known(stage, request)
                else:
                    self._ask(stage, request)

    def _work_off(self) -> None:
        """Hears every answer and begins what it makes possible, until nothing that counts can come any more."""
        while True:
            self._begin_held()
            self._drop()
            if not self._jobs:
                return
            self._workers.share_cores(
                self._late, is_compiling=self._is_compiling, is_reduced_open=self._is_reduced_open
            )
            for job, reply in (self._children.wait(), *self._children.done_meanwhile()):
                if job not in self._jobs:
                    continue
                stage, request, rank = self._jobs.pop(job)
                answer = Answer(request, reply, rank)
                if isinstance(reply, Failure):
                    self.state = stage.fail(self.plan, self.state, answer)
                    self._close(stage.name, reply.kind)
                else:
                    self._begin(*self._take(stage, answer))
                    self._close(stage.name, "done")

    def _ask(self, stage: Stage, request: Any) -> None:
        task, reply = TASKS[type(request)]
        self._clock.begin(stage.name)
        number = self._asked.get((stage.name, stage.rank), 0)
        self._asked[stage.name, stage.rank] = number + 1
        if stage.child == "checker":
            child = self._workers.checker(request.artifact, self._late, is_late=stage.rank[0] == FULL)
        else:
            child = self._workers.child(stage.child)
        limit = stage.seconds(self.plan.policy)
        job = self._children.ask(child, stage.name, stage.failing, task, request, reply, limit)
        self._jobs[job] = (stage, request, (*stage.rank, number))

    def _take(self, stage: Stage, answer: Answer) -> tuple[Product, ...]:
        """Replaces the state by what follows from an answer; whoever listens hears of a trace and of a latency."""
        before, (self.state, products) = self.state, stage.take(self.plan, self.state, answer)
        if before.trace is None and self.state.trace is not None:
            self._listener.after_trace(self.state.trace.trace)
            if self.plan.request.checked:
                self._workers.operations = self.state.trace.operations
                self._workers.child("checker")
        if self._listener.is_slower and before.evidence.latency is None and self.state.evidence.latency is not None:
            is_slower = self.plan.source == "simulated" and self._listener.is_slower(self.state.evidence)
            self.state = replace(self.state, is_slower=is_slower)
        return products

    def _take_known(self, stage: Stage, known: Known) -> None:
        """Takes an answer that nobody had to be asked for."""
        self._clock.begin(stage.name)
        answer = Answer(known.request, known.reply, (*stage.rank, 0))
        if isinstance(known.reply, Failure):
            self.state = stage.fail(self.plan, self.state, answer)
            self._close(stage.name, known.reply.kind)
            return
        products = self._take(stage, answer)
        self._close(stage.name, "seen before")
        self._begin(*products)

    def _drop(self) -> None:
        """Forgets the requests that cannot change the outcome any more, and those of processes that have ended."""
        last = self.state.last
        dropped = [
            job
            for job, (_, _, rank) in self._jobs.items()
            if (last is not None and rank > last) or (job.child.ended and job not in job.child.queue)
        ]
        self._children.drop(dropped)
        for job in dropped:
            del self._jobs[job]
            self._close(job.label, "not needed")

    def _close(self, name: str, state: str) -> None:
        self._clock.close(name, state, goes_on=any(stage.name == name for stage, _ in self._held))

    @property
    def _late(self) -> set[Job]:
        """The jobs at the contest's own shape."""
        return {job for job, (_, _, rank) in self._jobs.items() if rank[0] == FULL}

    @property
    def _is_time_open(self) -> bool:
        """True if it is not known yet whether the candidate is too slow for the full shape to matter."""
        is_asked = self._listener.is_slower is not None and self.plan.source == "simulated"
        return is_asked and self.state.evidence.latency is None

    @property
    def _is_compiling(self) -> bool:
        """True while the chip's program is compiled or simulated; what else the compiler does keeps nobody."""
        return any(job.task in ("compile", "simulate") for job in self._jobs)

    @property
    def _is_reduced_open(self) -> bool:
        """True while something is under way at the reduced shapes, beside what waits behind the compiler."""
        return any(rank[0] == REDUCED and stage.child != "compiler" for stage, _, rank in self._jobs.values())


def _begun(plan: Plan) -> Evidence:
    """The evidence before anything is known of the candidate."""
    is_confined = plan.policy.is_confined
    return Evidence(
        problem=plan.problem.statement(),
        chip=plan.chip.name,
        environment=environments.environment(),
        warnings=(
            *environments.warnings_about(os.environ),
            *confinement.warnings(is_confined),
            *not_looked_into(plan.chip),
        ),
        isolation=replace(
            confinement.offered(is_confined), variables=environments.recorded(environments.interpreting())
        ),
    )
