"""Walks the table of stages for one candidate: each begins when what it needs is there, until the first failure."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from harness.judge.evaluate.plan import Plan, Progress
from harness.judge.sandbox import confinement
from harness.judge.sandbox import environment as environments
from harness.judge.sandbox.child import Child, Children, Job
from harness.judge.sandbox.messages import (
    ArtifactCheckRequest,
    CheckReply,
    CheckRequest,
    CompileReply,
    CompileRequest,
    Done,
    ExportRequest,
    InterpretRequest,
    MeasureReply,
    MeasureRequest,
    ProbeReply,
    ProbeRequest,
    SimulateRequest,
    TraceReply,
    TraceRequest,
)
from harness.judge.sandbox.reach import left_behind, not_interpreted, not_looked_into, reach
from harness.records import Evidence, Failure, Latency, Policy, Simulation, StageTime, Trace
from harness.records import Stage as FailureStage

_ORDER: tuple[FailureStage, ...] = get_args(FailureStage)

ChildName = Literal["candidate", "checker", "compiler", "simulator", "timer"]
_MODULES: dict[ChildName, str] = {
    "candidate": "harness.judge.evaluate.candidate",
    "checker": "harness.judge.evaluate.correctness",
    "compiler": "harness.judge.evaluate.compile.compilation",
    "simulator": "harness.judge.evaluate.timing.simulation",
    "timer": "harness.judge.evaluate.timing.device_timing",
}
# The task that each request asks for, and the type of what is answered.
_TASKS: dict[type, tuple[str, type]] = {
    TraceRequest: ("trace", TraceReply),
    CompileRequest: ("compile", CompileReply),
    SimulateRequest: ("simulate", Simulation),
    ExportRequest: ("export_cpu", Done),
    InterpretRequest: ("interpret", Done),
    ArtifactCheckRequest: ("check_artifacts", Done),
    CheckRequest: ("check", CheckReply),
    ProbeRequest: ("probe", ProbeReply),
    MeasureRequest: ("measure", MeasureReply),
}
# What a stage waits for. `device` is there when all other stages are done and a device is to time the kernel.
Need = Literal[
    "kernel", "trace", "chip program", "schedule", "full program", "smaller program", "outputs", "device"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Product:
    """Something that a stage gave and others wait for, with what they have to know of it."""

    need: Need
    value: Any


@dataclass(frozen=True, slots=True)
class Stage:
    """One row of the table: `requests` asks the process `child` for something, `take` makes evidence of each answer.

    `name` is what people see; several rows may share one. `failing` is the stage of a Failure where an answer is one,
    `seconds` the limit of each request.
    """

    name: str
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
        self._started: dict[ChildName, Child] = {}
        self._jobs: dict[Job, tuple[Stage, Any]] = {}
        self._open: dict[str, tuple[int, float]] = {}
        self._failures: list[Failure] = []
        self._reply: TraceReply | None = None
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
                confinement.offered(plan.policy.is_confined), variables=environments.recorded(environments.on_cpu())
            ),
        )

    def run(self, stages: tuple[Stage, ...]) -> Evidence:
        """Everything up to the first failure. What `after_trace` raises is passed on."""
        plan = self.plan
        # Importing JAX takes longer than tracing: the compiler's process warms up meanwhile.
        self._child("candidate")
        self._child("compiler")
        self._begin(stages, Product("kernel", None))
        self._work_off(stages)
        if not self._failures and plan.timed and plan.source != "simulated":
            device = "cpu" if plan.source == "measured cpu" else plan.chip.platform
            self._begin(stages, Product("device", device))
            self._work_off(stages)
        self._failures += left_behind(self._children)
        first = min(self._failures, key=lambda failure: _ORDER.index(failure.stage), default=None)
        times = tuple(sorted(self.found.stages, key=lambda stage: stage.start_seconds))
        return replace(self.found, failure=first, stages=times)

    @property
    def reply(self) -> TraceReply:
        """What the trace gave; there where a stage needs what comes of it."""
        assert self._reply is not None
        return self._reply

    def traced(self, reply: TraceReply) -> None:
        """The candidate is traced: whoever wants to know hears it, and the checking process warms up."""
        self._reply = reply
        self._after_trace(reply.trace)
        if self.plan.checked:
            self._child("checker")

    def add(self, **fields: Any) -> None:
        """Puts fields into the evidence."""
        self.found = replace(self.found, **fields)

    def fail(self, failure: Failure) -> None:
        """The candidate has failed: nothing more is asked, and of several the one of the earliest stage counts."""
        self._failures.append(failure)

    def _begin(self, stages: tuple[Stage, ...], product: Product) -> None:
        for stage in stages:
            if stage.needs == product.need:
                for request in stage.requests(self, product.value):
                    self._ask(stage, request)

    def _work_off(self, stages: tuple[Stage, ...]) -> None:
        """Hears every answer and begins what it makes possible, until all are heard or something has failed."""
        while self._jobs and not self._failures:
            for job, reply in (self._children.wait(), *self._children.done_meanwhile()):
                stage, request = self._jobs.pop(job)
                if not isinstance(reply, Failure):
                    for product in stage.take(self, request, reply):
                        self._begin(stages, product)
                elif job.task == "simulate":
                    # The simulator's trouble is not the candidate's: its latency is unknown, and says why.
                    self._unknown_latency(reply)
                else:
                    at_full = job.task == "interpret_full"
                    self.fail(not_interpreted(reply, self.reply.difference) if at_full else reply)
                self._close(job.label)

    def _child(self, name: ChildName) -> Child:
        """The process of that name, started when it is first asked for."""
        if name not in self._started:
            plan = self.plan
            directory = plan.directory_of(name)
            directory.mkdir(parents=True, exist_ok=True)
            own = reach(
                name, problem=plan.pickled_problem, work=plan.work, profiles=plan.contest / "profile_data",
                on_device=plan.source == "measured",
            )  # fmt: skip
            self._started[name] = self._children.start(
                name, _MODULES[name], directory, self._environment(name), confinement=own
            )
        return self._started[name]

    def _environment(self, name: ChildName) -> Mapping[str, str]:
        plan = self.plan
        if name == "compiler":
            return environments.compiling(plan.chip)
        if name == "timer":
            return environments.measuring("cpu" if plan.source == "measured cpu" else plan.chip.platform)
        return environments.on_cpu()

    def _ask(self, stage: Stage, request: Any) -> None:
        task, reply = _TASKS[type(request)]
        if isinstance(request, InterpretRequest) and request.shape == "full":
            # The same by another name, by which its failure is known.
            task = "interpret_full"
        running, start = self._open.get(stage.name, (0, time.monotonic()))
        self._open[stage.name] = (running + 1, start)
        if not running:
            self._progress(stage.name, "start", 0.0)
        limit = stage.seconds(self.plan.policy)
        job = self._children.ask(self._child(stage.child), stage.name, stage.failing, task, request, reply, limit)
        self._jobs[job] = (stage, request)

    def _unknown_latency(self, failure: Failure) -> None:
        reason = f"the simulator gave no result: {failure.kind}: {failure.message}"
        self.add(warnings=(*self.found.warnings, reason))
        if self.plan.source == "simulated":
            unknown = Latency(source="simulated", seconds=None, plus_minus_seconds=None, reasons=(reason,))
            self.add(latency=unknown)

    def _close(self, name: str) -> None:
        """One job of a stage is done; with the last one the stage is, unless its answer asked for more."""
        if name not in self._open:
            # Closed by a failure that was heard in the same turn.
            return
        running, start = self._open[name]
        self._open[name] = (running - 1, start)
        if running > 1 and not self._failures:
            return
        del self._open[name]
        seconds = time.monotonic() - start
        state = self._failures[-1].kind if self._failures else "done"
        self._progress(name, state, seconds)
        done = StageTime(stage=name, start_seconds=start - self._began, seconds=seconds)
        self.add(stages=(*self.found.stages, done))
