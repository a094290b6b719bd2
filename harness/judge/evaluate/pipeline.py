"""The order of a candidate's stages: cheap before dear, independent ones side by side, until the first failure."""

import functools
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from harness.judge.evaluate.draws import repeatable
from harness.judge.evaluate.plan import Plan, Progress
from harness.judge.evaluate.timing import latency
from harness.judge.sandbox import confinement, handover
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
    Fill,
    InterpretRequest,
    MeasureReply,
    MeasureRequest,
    ProbeReply,
    ProbeRequest,
    SimulateRequest,
    TracedShape,
    TraceReply,
    TraceRequest,
)
from harness.judge.sandbox.reach import left_behind, not_interpreted, not_looked_into, reach, work_not_done
from harness.problems.space import DRAWN
from harness.records import Evidence, Failure, Latency, Policy, Simulation, Stage, StageTime, Trace
from harness.records.evidence import Mode

_ORDER: tuple[Stage, ...] = get_args(Stage)
# The simulator keeps its own deadline; this is for starting its process and for the answer.
_SIMULATE_GRACE_SECONDS = 10.0
# How many times the limit of other checks an interpretation of the contest's own shape may take.
_FULL_INTERPRETATION = 4
# Times anything, and added to anything, it is wrong by far more than a tolerance; its square is still a float32.
_LEAST_FILL = 1 << 12


def seed() -> int:
    """A seed that nobody can foresee: drawn after the candidate is traced."""
    return secrets.randbits(31)


def unforeseen_fill(shape: TracedShape) -> Fill:
    """What memory that nothing wrote holds at this shape: NaN, a marked NaN, or a number that nobody can foresee.

    NaN shows in nearly every kernel that reads it, a marked one also in those that compare it with something, a
    number in those that replace it.
    """
    return {"full": None, "reduced": "marked", "beside": -_unforeseen_number()}[shape]


def _unforeseen_number() -> float:
    """A large number; as a running maximum it hides all that follows, and its negative hides itself."""
    return float(_LEAST_FILL + secrets.randbelow(_LEAST_FILL))


class Pipeline:
    """What is under way for one candidate, and the evidence so far."""

    def __init__(self, plan: Plan, children: Children, progress: Progress) -> None:
        self._plan = plan
        self._children = children
        self._progress = progress
        self._began = time.monotonic()
        self._then: dict[Job, Callable[[Any], None]] = {}
        self._open_stages: dict[str, tuple[int, float]] = {}
        self._failures: list[Failure] = []
        self._reduced: int | None = None
        self._beside = False
        self._interpret_full, self._difference = False, ""
        self._found = Evidence(
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

    def run(self, after_trace: Callable[[Trace], None]) -> Evidence:
        """Everything up to the first failure. What `after_trace` raises is passed on."""
        plan, platform = self._plan, self._plan.chip.platform
        candidate = self._start("candidate", environments.on_cpu())
        # Importing JAX takes longer than tracing: the compiler's process warms up meanwhile.
        compiler = self._start("compiler", environments.compiling(plan.chip))

        def traced(reply: TraceReply) -> None:
            self._add(trace=reply.trace, claims=reply.claims, warnings=(*self._found.warnings, *reply.warnings))
            self._reduced, self._beside = reply.reduced, reply.beside
            self._interpret_full, self._difference = reply.interpret_full, reply.difference
            after_trace(reply.trace)
            if plan.chip.topology is not None:
                self._compile(compiler, plan.chip.topology)
            if plan.checked:
                self._check_correctness(candidate, compiler)

        self._ask(
            candidate, "trace", "contract", "trace",
            TraceRequest(problem=str(plan.pickled_problem), chip=plan.chip, artifact=str(plan.written(platform))),
            TraceReply, plan.policy.trace_seconds, self._taking(platform, plan.artifact(platform), "static", traced),
        )  # fmt: skip
        self._work_off()
        if not self._failures and plan.timed and plan.source != "simulated":
            self._measure()
            self._work_off()
        self._failures += left_behind(self._children)
        first = min(self._failures, key=lambda failure: _ORDER.index(failure.stage), default=None)
        stages = tuple(sorted(self._found.stages, key=lambda stage: stage.start_seconds))
        return replace(self._found, failure=first, stages=stages)

    def _start(self, name: str, environment: Mapping[str, str]) -> Child:
        modules = {
            "candidate": "harness.judge.evaluate.candidate",
            "checker": "harness.judge.evaluate.correctness",
            "compiler": "harness.judge.evaluate.compile.compilation",
            "simulator": "harness.judge.evaluate.timing.simulation",
            "timer": "harness.judge.evaluate.timing.timing",
        }
        directory = self._plan.directory_of(name)
        directory.mkdir(parents=True, exist_ok=True)
        plan = self._plan
        confinement = reach(
            name, problem=plan.pickled_problem, work=plan.work, profiles=plan.contest / "profile_data",
            on_device=plan.source == "measured",
        )  # fmt: skip
        return self._children.start(name, modules[name], directory, environment, confinement=confinement)

    def _taking(self, name: str, kept: Path, stage: Stage, then: Callable[[Any], None]) -> Callable[[Any], None]:
        """`then`, once the program `name` is out of the candidate's reach, at `kept`; else that is its failure."""

        def take(reply: object) -> None:
            failure = handover.taken(self._plan.written(name), kept, stage)
            if failure is None:
                then(reply)
            else:
                self._failures.append(failure)

        return take

    def _compile(self, compiler: Child, topology: str) -> None:
        plan = self._plan
        texts = [plan.work / "kernel.hlo.txt"]
        if plan.checked:
            # Several may be screened at a time, and the last one judged is what a person looks for there.
            texts.append(plan.contest / "profile_data" / "kernel.hlo.txt")
        texts[-1].parent.mkdir(parents=True, exist_ok=True)

        def compiled(reply: CompileReply) -> None:
            dumps = plan.dumps
            shown = dumps.relative_to(plan.contest) if dumps.is_relative_to(plan.contest) else dumps
            self._add(hlo=reply.hlo, mosaic=reply.mosaic, dump_directory=shown.as_posix())
            self._run_simulator()

        self._ask(
            compiler, "compile", "compile", "compile",
            CompileRequest(
                artifact=str(plan.artifact(plan.chip.platform)), problem=str(plan.pickled_problem), topology=topology,
                hlo_texts=tuple(map(str, texts)), mosaic_directory=str(plan.work / "mosaic"),
            ),
            CompileReply, plan.policy.compile_seconds, compiled,
        )  # fmt: skip

    def _run_simulator(self) -> None:
        plan = self._plan

        def simulated(reply: Simulation) -> None:
            self._add(simulation=reply)
            self._failures += work_not_done(reply, plan.problem.statement().work.matmul_flops)
            if plan.source == "simulated":
                self._add(latency=latency.simulated(reply))

        self._ask(
            self._start("simulator", environments.base()), "simulate", "latency", "simulate",
            SimulateRequest(
                module=plan.simulate.__module__, function=plan.simulate.__qualname__, dump_directory=str(plan.dumps),
                chip=plan.chip, deadline_seconds=plan.policy.simulate_seconds,
            ),
            Simulation, plan.policy.simulate_seconds + _SIMULATE_GRACE_SECONDS, simulated,
        )  # fmt: skip

    def _check_correctness(self, candidate: Child, compiler: Child) -> None:
        """The CPU reference program at all shapes, TPU interpret mode at the reduced ones: each family in both.

        Seeds are drawn here, after the trace. The problem, and of a Check its shape, family and seed, make the same
        inputs again: a drawn family's recipe follows from its seed.

        What the outputs depend on is probed in the CPU reference programs, which cost a tenth of the interpreter.
        """
        plan = self._plan
        limit = plan.policy.correctness_seconds
        checker = self._start("checker", environments.on_cpu())

        pickled = str(plan.pickled_problem)

        whole = str(plan.artifact("cpu"))

        def exported(_: Done) -> None:
            # In the compiler's process, which by then has nothing else to do, and never ran kernel.py.
            trace = self._found.trace
            assert trace is not None
            artifacts = ArtifactCheckRequest(chip=str(plan.artifact(plan.chip.platform)), cpu=whole, trace=trace)
            self._ask(
                compiler, "artifact check", "correctness", "check_artifacts", artifacts, Done, limit, lambda _: None
            )
            for family in plan.problem.families(full=True):
                drawn = seed()
                request = CheckRequest(problem=pickled, reduced=None, family=family, seed=drawn, artifact=whole)
                self._check(checker, "correctness", request)
            # With the seed of the last check, whose outputs are at hand to compare with.
            self._probe(checker, "correctness", ProbeRequest(
                problem=pickled, reduced=None, seed=drawn, artifact=whole, full=True,
            ))  # fmt: skip
            repeat("full", whole, None)

        def repeat(mode: Mode, artifact: str, reduced: int | None, *, beside: bool = False) -> None:
            """The same checks once more on inputs of an earlier evaluation."""
            label = "correctness" if mode == "full" else "reduced shapes"
            for draw in repeatable(plan.draws, plan.problem, mode, reduced=reduced, beside=beside):
                if draw.is_probe:
                    self._probe(checker, label, ProbeRequest(
                        problem=pickled, reduced=reduced, seed=draw.seed, artifact=artifact, full=mode == "full",
                    ))  # fmt: skip
                else:
                    self._check(checker, label, CheckRequest(
                        problem=pickled, reduced=reduced, beside=beside, family=draw.family, seed=draw.seed,
                        artifact=artifact,
                    ))  # fmt: skip

        def reduced_shapes(artifact: str, *, reduced: bool) -> None:
            """Checks at a reduced shape: what outputs depend on there, and each family once more with another seed."""
            if reduced:
                self._probe(checker, "reduced shapes", ProbeRequest(
                    problem=pickled, reduced=self._reduced, seed=seed(), artifact=artifact, full=False,
                ))  # fmt: skip
            families = plan.problem.families(full=False)
            if self._reduced is None or not self._beside:
                wanted = families
            else:
                # Drawn inputs at the smaller of the two, which costs less; the others were there in the interpreter.
                wanted = tuple(family for family in families if family.startswith(DRAWN) == reduced)
            for family in wanted:
                self._check(checker, "reduced shapes", CheckRequest(
                    problem=pickled, reduced=self._reduced, beside=not reduced, family=family, seed=seed(),
                    artifact=artifact,
                ))  # fmt: skip

        def exported_at(kept: Path, shape: TracedShape, _: Done) -> None:
            reduced_shapes(str(kept), reduced=shape == "reduced")
            repeat("twin", str(kept), self._reduced, beside=shape == "beside")

        def interpreted(asked: InterpretRequest, reduced: int | None) -> Callable[[Done], None]:
            given = CheckRequest(
                problem=pickled, reduced=reduced, family=asked.family, seed=asked.seed, outputs=asked.outputs
            )
            return lambda _: self._check(checker, "interpret", given)

        self._ask(
            candidate, "correctness", "correctness", "export_cpu", ExportRequest(artifact=str(plan.written("cpu"))),
            Done, limit, self._taking("cpu", plan.artifact("cpu"), "correctness", exported),
        )  # fmt: skip
        # The reduced shape's is the contest's own where there is no smaller one.
        shapes: dict[TracedShape, bool] = {"reduced": True, "beside": self._beside}
        for shape, is_traced in shapes.items():
            if is_traced:
                written = str(plan.written(shape))
                export = ExportRequest(artifact=written, shape=shape, fill=unforeseen_fill(shape))
                kept = plan.scratch / f"{shape}.cpu"
                then = self._taking(shape, kept, "correctness", functools.partial(exported_at, kept, shape))
                self._ask(candidate, "reduced shapes", "correctness", "export_cpu", export, Done, limit, then)
        for family in plan.problem.families(full=False):
            if family.startswith(DRAWN):
                # The CPU reference program computes the same numbers in a tenth of the time.
                continue
            asked = InterpretRequest(family=family, seed=seed(), outputs=str(plan.outputs_of(family)))
            self._ask(
                candidate, "interpret", "correctness", "interpret", asked, Done, limit,
                interpreted(asked, self._reduced),
            )  # fmt: skip
        if self._interpret_full:
            # Last, because it takes longest: 200 s for 16384 keys on an idle machine. One family: what is looked for
            # here does not depend on values. With numbers in memory that nothing wrote: the CPU reference program of
            # this shape has NaN there.
            family = plan.problem.families(full=True)[0]
            asked = InterpretRequest(
                family=family, seed=seed(), outputs=str(plan.outputs_of(f"{family}-full")), shape="full",
                fill=_unforeseen_number(),
            )  # fmt: skip
            self._ask(
                candidate, "interpret", "correctness", "interpret_full", asked, Done, _FULL_INTERPRETATION * limit,
                interpreted(asked, None),
            )  # fmt: skip

        for place, draw in enumerate(repeatable(plan.draws, plan.problem, "interpret", reduced=self._reduced)):
            if not draw.is_probe:
                asked = InterpretRequest(
                    family=draw.family, seed=draw.seed, outputs=str(plan.outputs_of(f"drawn-before-{place}"))
                )
                self._ask(
                    candidate, "interpret", "correctness", "interpret", asked, Done, limit,
                    interpreted(asked, self._reduced),
                )  # fmt: skip

    def _check(self, checker: Child, label: str, request: CheckRequest) -> None:
        limit = self._plan.policy.correctness_seconds
        self._ask(checker, label, "correctness", "check", request, CheckReply, limit, self._checked)

    def _probe(self, checker: Child, label: str, request: ProbeRequest) -> None:
        limit = self._plan.policy.correctness_seconds
        self._ask(checker, label, "correctness", "probe", request, ProbeReply, limit, self._probed)

    def _probed(self, reply: ProbeReply) -> None:
        self._add(checks=(*self._found.checks, *reply.checks))
        if reply.failure is not None:
            self._failures.append(reply.failure)

    def _checked(self, reply: CheckReply) -> None:
        self._add(checks=(*self._found.checks, reply.check))
        if reply.failure is not None:
            self._failures.append(reply.failure)

    def _measure(self) -> None:
        plan = self._plan
        device = "cpu" if plan.source == "measured cpu" else plan.chip.platform

        def measured(reply: MeasureReply) -> None:
            self._add(samples=reply.samples[0])
            assert plan.source != "simulated"
            self._add(latency=latency.measured(reply.samples[0], plan.source))
            self._checked(reply.check)

        self._ask(
            self._start("timer", environments.measuring(device)), "measure", "latency", "measure",
            measure_request(
                (plan.artifact(device),), plan.pickled_problem, plan.policy, plan.contest / "profile_data",
                plan.work.name, deep=plan.deep,
            ),
            MeasureReply, plan.policy.measure_seconds, measured,
        )  # fmt: skip

    def _add(self, **fields: Any) -> None:
        self._found = replace(self._found, **fields)

    def _ask(
        self,
        child: Child,
        label: str,
        stage: Stage,
        task: str,
        arguments: object,
        reply_type: type,
        limit: float,
        then: Callable[[Any], None],
    ) -> None:
        running, start = self._open_stages.get(label, (0, time.monotonic()))
        self._open_stages[label] = (running + 1, start)
        if not running:
            self._progress(label, "start", 0.0)
        self._then[self._children.ask(child, label, stage, task, arguments, reply_type, limit)] = then

    def _work_off(self) -> None:
        """Hears every answer and does what follows from it, until all are heard or something has failed."""
        while self._then and not self._failures:
            for job, reply in (self._children.wait(), *self._children.done_meanwhile()):
                then = self._then.pop(job)
                if not isinstance(reply, Failure):
                    then(reply)
                elif job.task == "simulate":
                    # The simulator's trouble is not the candidate's: its latency is unknown, and says why.
                    self._unknown_latency(reply)
                else:
                    at_full = job.task == "interpret_full"
                    self._failures.append(not_interpreted(reply, self._difference) if at_full else reply)
                self._close(job.label)

    def _unknown_latency(self, failure: Failure) -> None:
        reason = f"the simulator gave no result: {failure.kind}: {failure.message}"
        self._add(warnings=(*self._found.warnings, reason))
        if self._plan.source == "simulated":
            unknown = Latency(source="simulated", seconds=None, plus_minus_seconds=None, reasons=(reason,))
            self._add(latency=unknown)

    def _close(self, label: str) -> None:
        """One job of a stage is done; with the last one the stage is, unless its answer asked for more."""
        if label not in self._open_stages:
            # Closed by a failure that was heard in the same turn.
            return
        running, start = self._open_stages[label]
        self._open_stages[label] = (running - 1, start)
        if running > 1 and not self._failures:
            return
        del self._open_stages[label]
        seconds = time.monotonic() - start
        state = self._failures[-1].kind if self._failures else "done"
        self._progress(label, state, seconds)
        done = StageTime(stage=label, start_seconds=start - self._began, seconds=seconds)
        self._add(stages=(*self._found.stages, done))


def measure_request(
    artifacts: tuple[Path, ...], pickled_problem: Path, policy: Policy, profiles: Path, session: str, *, deep: bool
) -> MeasureRequest:
    """What to time as the policy says, profiled as a session of its own under `profiles`."""
    profiles.mkdir(parents=True, exist_ok=True)
    return MeasureRequest(
        artifacts=tuple(map(str, artifacts)),
        problem=str(pickled_problem),
        seed=seed(),
        warmup_calls=policy.warmup_calls,
        profiled_calls=policy.profiled_calls,
        rounds=policy.measured_pairs,
        deep=deep,
        profile_directory=str(profiles),
        session=f"{session}-{secrets.token_hex(4)}",
    )
