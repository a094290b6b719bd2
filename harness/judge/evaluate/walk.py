"""Runs the stages of the table for one candidate, until the outcome is certain. A stage begins once its inputs exist.

Stages run in parallel, but the outcome does not depend on their speed. Every request has a rank. The failure with the
lowest rank counts, once all requests with lower ranks have been answered.
"""

import os
from dataclasses import replace

from harness.judge.evaluate.clock import StageClock
from harness.judge.evaluate.reach import left_behind, not_looked_into
from harness.judge.evaluate.request import Listener, Plan
from harness.judge.evaluate.stages import STAGES, left_out
from harness.judge.evaluate.state import DEVICE, FULL, KnownAnswer, Product, Stage, StageAnswer, State
from harness.judge.evaluate.workers import Workers
from harness.records import Evidence, Failure
from harness.sandbox import confinement
from harness.sandbox import environment as environments
from harness.sandbox.child import Children

# With at least this many cores, checks at the full shape run at once. With fewer cores, they wait until the candidate
# is known to be fast enough. They also wait while checks at reduced shapes run at the same time as the compilation or
# simulation of the chip's program.
_MANY_CORES = 4


class Evaluation:
    """One candidate under evaluation: `state` holds the findings about it so far."""

    def __init__(self, plan: Plan, children: Children, listener: Listener) -> None:
        self.plan = plan
        self.state = State(evidence=_begun(plan))
        self._children = children
        self._listener = listener
        self._workers = Workers(plan, children)
        self._clock = StageClock(listener.progress)
        self._waiting: list[tuple[Stage, Product]] = []
        self._until = DEVICE

    def run(self) -> Evidence:
        """The evidence. Runs all stages, up to the failure that decides, or until the candidate proves too slow.

        Raises the errors that `listener.after_trace` raises.
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
            # Importing JAX takes longer than tracing, so the compiler's process starts to import it now.
            self._workers.child("candidate")
            self._workers.child("compiler")
            self._begin(Product("kernel", None))
        self._work_off()
        if step < FULL:
            # No stage runs until the next call.
            self._clock.end_all("done")

    def stop(self) -> None:
        """Treats the candidate as too slow for the full shape, as if `listener.is_slower` had returned True."""
        self.state = replace(self.state, is_slower=True)

    def ended(self) -> Evidence:
        """The evidence, after all requests."""
        self._clock.end_all("not needed")
        evidence = self.state.ended(left_behind(self._children), lambda: left_out(self.plan, self.state))
        return replace(evidence, stages=self._clock.times)

    def _begin(self, *products: Product) -> None:
        self._waiting += [(stage, product) for product in products for stage in STAGES if stage.needs == product.need]
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        """Sends every request whose inputs exist now."""
        last = self.state.last
        is_early = environments.cores() < _MANY_CORES and (
            (self._workers.is_busy and self._is_time_open)
            or (self._workers.is_compiling and self._workers.is_reduced_open)
        )
        waiting, self._waiting = self._waiting, []
        for stage, product in waiting:
            if last is not None and stage.rank > last:
                continue
            if stage.rank[0] > self._until or (stage.rank[0] == FULL and is_early):
                self._waiting.append((stage, product))
                continue
            for request in stage.requests(self.plan, self.state, product.value):
                if isinstance(request, KnownAnswer):
                    self._take_known(stage, request)
                else:
                    self._clock.begin(stage.name)
                    self._workers.ask(stage, request)

    def _work_off(self) -> None:
        """Takes answers and sends requests that become possible, until no outstanding answer can change the outcome."""
        while True:
            self._begin_waiting()
            for name in self._workers.drop(self.state.last):
                self._close(name, "not needed")
            if not self._workers.is_busy:
                return
            for stage, answer in self._workers.answers():
                if isinstance(answer.reply, Failure):
                    self._fail(stage, answer)
                else:
                    self._begin(*self._take(stage, answer))
                    self._close(stage.name, "done")

    def _take(self, stage: Stage, answer: StageAnswer) -> tuple[Product, ...]:
        """Updates the state after an answer; reports a new trace and a new latency to the listener."""
        before, (self.state, products) = self.state, stage.take(self.plan, self.state, answer)
        for _, failure in self.state.failures[len(before.failures) :]:
            self._clock.fail(stage.name, failure.kind)
        if before.trace is None and self.state.trace is not None:
            self._listener.after_trace(self.state.trace.trace)
            if self.plan.request.checked:
                self._workers.operations = self.state.trace.operations
                self._workers.child("checker")
        if self._listener.is_slower and before.evidence.latency is None and self.state.evidence.latency is not None:
            is_slower = self.plan.source == "simulated" and self._listener.is_slower(self.state.evidence)
            self.state = replace(self.state, is_slower=is_slower)
        return products

    def _take_known(self, stage: Stage, known_answer: KnownAnswer) -> None:
        """Takes an answer that needed no process."""
        self._clock.begin(stage.name)
        answer = StageAnswer(known_answer.request, known_answer.reply, (*stage.rank, 0))
        if isinstance(answer.reply, Failure):
            self._fail(stage, answer)
            return
        products = self._take(stage, answer)
        self._close(stage.name, "seen before")
        self._begin(*products)

    def _fail(self, stage: Stage, answer: StageAnswer) -> None:
        self.state = stage.fail(self.plan, self.state, answer)
        self._clock.fail(stage.name, answer.reply.kind)
        self._close(stage.name, answer.reply.kind)

    def _close(self, name: str, state: str) -> None:
        self._clock.close(name, state, goes_on=any(stage.name == name for stage, _ in self._waiting))

    @property
    def _is_time_open(self) -> bool:
        """True while the candidate may still be found too slow for checks at the full shape."""
        is_asked = self._listener.is_slower is not None and self.plan.source == "simulated"
        return is_asked and self.state.evidence.latency is None


def _begun(plan: Plan) -> Evidence:
    """The evidence before the first result."""
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
            confinement.isolation(is_confined), variables=environments.recorded(environments.interpreting())
        ),
    )
