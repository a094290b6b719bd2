"""The stages of an evaluation as a table: what each waits for, which process does it, and what comes of it."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.judge.evaluate.compile.seen_programs import Seen
from harness.judge.evaluate.draws import (
    mode_of,
    repeatable,
    seed,
    unforeseen_fill,
    unforeseen_number,
)
from harness.judge.evaluate.pipeline import Evaluation, Stage
from harness.judge.evaluate.steps import COMPILE, DEVICE, FULL, REDUCED, SIMULATE, TRACE, Known, Product
from harness.judge.evaluate.timing import latency
from harness.judge.evaluate.timing.requests import measure_request
from harness.judge.sandbox import handover
from harness.judge.sandbox.messages import (
    ArtifactCheckRequest,
    CheckReply,
    CheckRequest,
    CompileReply,
    CompileRequest,
    ExportRequest,
    InterpretRequest,
    MeasureReply,
    ProbeReply,
    ProbeRequest,
    ShapesReply,
    ShapesRequest,
    SimulateRequest,
    TracedShape,
    TraceReply,
    TraceRequest,
)
from harness.judge.sandbox.reach import work_not_done
from harness.problems.space import DRAWN
from harness.records import Failure, Policy, Simulation
from harness.records import Stage as FailureStage

# The simulator keeps its own deadline; this is for starting its process and for the answer.
_SIMULATE_GRACE_SECONDS = 10.0
# How many times the limit of other checks an interpretation of the contest's own shape may take.
_FULL_INTERPRETATION = 4

Products = Iterator[Product]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A CPU reference program out of the candidate's reach, and the shape that it was traced for."""

    path: Path
    shape: TracedShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What a run in TPU interpret mode wrote: as it was asked for, and of which shape (see CheckRequest)."""

    asked: InterpretRequest
    reduced: int | None
    is_second: bool


def _nothing(evaluation: Evaluation, asked: Any, reply: Any) -> Products:
    yield from ()


def _taken(evaluation: Evaluation, name: str, kept: Path, stage: FailureStage) -> bool:
    """Whether the program `name` is out of the candidate's reach, at `kept`; else that is the candidate's failure."""
    failure = handover.taken(evaluation.plan.written(name), kept, stage)
    if failure is not None:
        evaluation.fail(failure)
    return failure is None


# --- The trace, and the chip's program ---------------------------------------------------------


def _trace(evaluation: Evaluation, _: object) -> Iterator[TraceRequest]:
    plan = evaluation.plan
    artifact = str(plan.written(plan.chip.platform))
    yield TraceRequest(
        problem=str(plan.pickled_problem), chip=plan.chip, artifact=artifact, function=plan.function
    )  # fmt: skip


def _traced(evaluation: Evaluation, asked: TraceRequest, reply: TraceReply) -> Products:
    plan = evaluation.plan
    if not _taken(evaluation, plan.chip.platform, plan.artifact(plan.chip.platform), "static"):
        return
    evaluation.add(trace=reply.trace, claims=reply.claims, warnings=(*evaluation.found.warnings, *reply.warnings))
    evaluation.traced(reply)
    if plan.chip.topology is not None:
        yield Product("chip program", plan.chip.topology)
    if plan.checked:
        yield Product("trace", reply)


def _trace_smaller(evaluation: Evaluation, _: object) -> Iterator[ShapesRequest]:
    yield ShapesRequest()


def _shaped(evaluation: Evaluation, asked: object, reply: ShapesReply) -> Products:
    evaluation.shaped(reply)
    yield Product("shapes", reply)


def _compile(evaluation: Evaluation, topology: str) -> Iterator[CompileRequest | Known]:
    plan = evaluation.plan
    texts = [plan.work / "kernel.hlo.txt"]
    if plan.checked:
        # Several may be screened at a time, and the last one judged is what a person looks for there.
        texts.append(plan.contest / "profile_data" / "kernel.hlo.txt")
    texts[-1].parent.mkdir(parents=True, exist_ok=True)
    request = CompileRequest(
        artifact=str(plan.artifact(plan.chip.platform)), problem=str(plan.pickled_problem), topology=topology,
        hlo_texts=tuple(map(str, texts)), mosaic_directory=str(plan.work / "mosaic"),
    )  # fmt: skip
    if evaluation.reply.exceeds_vmem:
        # libtpu says so as well, after seconds to minutes.
        yield Known(request, Failure(stage="compile", kind="vmem-exceeded", message=evaluation.reply.exceeds_vmem))
        return
    evaluation.seen = _seen(evaluation)
    if evaluation.seen is None:
        yield request
        return
    for text in texts[1:]:
        shutil.copyfile(texts[0], text)
    yield Known(request, evaluation.seen.compiled)


def _seen(evaluation: Evaluation) -> Seen | None:
    """What is known of the exported program, with its files where the compiler writes them."""
    plan = evaluation.plan
    if plan.programs is None:
        return None
    evaluation.program_keys = plan.program_keys()
    for key in evaluation.program_keys:
        if seen := plan.programs.restored(key, plan.work):
            return seen
    return None


def _compiled(evaluation: Evaluation, asked: CompileRequest, reply: CompileReply) -> Products:
    plan = evaluation.plan
    shown = plan.dumps.relative_to(plan.contest) if plan.dumps.is_relative_to(plan.contest) else plan.dumps
    evaluation.add(hlo=reply.hlo, mosaic=reply.mosaic, dump_directory=shown.as_posix())
    yield Product("schedule", plan.dumps)


def _simulate(evaluation: Evaluation, dumps: Path) -> Iterator[SimulateRequest | Known]:
    plan, seen = evaluation.plan, evaluation.seen
    request = SimulateRequest(
        module=plan.simulate.__module__, function=plan.simulate.__qualname__, dump_directory=str(dumps),
        chip=plan.chip, deadline_seconds=plan.policy.simulate_seconds, with_lines=plan.checked,
    )  # fmt: skip
    yield request if seen is None else Known(request, seen.simulation)


def _simulated(evaluation: Evaluation, asked: SimulateRequest, reply: Simulation) -> Products:
    evaluation.add(simulation=reply)
    for failure in work_not_done(reply, evaluation.plan.problem.statement().work.matmul_flops):
        evaluation.fail(failure)
    if evaluation.plan.source == "simulated":
        evaluation.add(latency=latency.simulated(reply))
        evaluation.timed()
    yield from ()


# --- Correctness -------------------------------------------------------------------------------
# Seeds are drawn here, after the trace. The problem, and of a Check its shape, family and seed, make the same inputs
# again: a drawn family's recipe follows from its seed.


def _export_full(evaluation: Evaluation, reply: ShapesReply) -> Iterator[ExportRequest]:
    yield ExportRequest(artifact=str(evaluation.plan.written("cpu")), fill=unforeseen_fill("full"))


def _export_reduced(evaluation: Evaluation, reply: ShapesReply) -> Iterator[ExportRequest]:
    artifact = str(evaluation.plan.written("reduced"))
    yield ExportRequest(artifact=artifact, shape="reduced", fill=unforeseen_fill("reduced"))


def _exported(evaluation: Evaluation, asked: ExportRequest, reply: object) -> Products:
    plan = evaluation.plan
    is_full = asked.shape == "full"
    kept = plan.artifact("cpu") if is_full else plan.scratch / f"{asked.shape}.cpu"
    if _taken(evaluation, "cpu" if is_full else asked.shape, kept, "correctness"):
        program = Program(path=kept, shape=asked.shape)
        yield Product("full program" if is_full else "reduced program", program)


def _check_artifacts(evaluation: Evaluation, program: Program) -> Iterator[ArtifactCheckRequest]:
    plan, trace = evaluation.plan, evaluation.found.trace
    assert trace is not None
    yield ArtifactCheckRequest(chip=str(plan.artifact(plan.chip.platform)), cpu=str(program.path), trace=trace)


def _check_full(evaluation: Evaluation, program: Program) -> Iterator[CheckRequest | ProbeRequest]:
    pickled, artifact = str(evaluation.plan.pickled_problem), str(program.path)
    yield from _repeated(evaluation, program, None)
    for family in _families_at_full(evaluation):
        drawn = seed()
        yield CheckRequest(problem=pickled, reduced=None, family=family, seed=drawn, artifact=artifact)
    # With the seed of the last check, whose outputs are at hand to compare with.
    yield ProbeRequest(problem=pickled, reduced=None, seed=drawn, artifact=artifact, full=True)


def _families_at_full(evaluation: Evaluation) -> tuple[str, ...]:
    """The full shape's families for the CPU reference program: the interpreter takes the first where it runs there."""
    families = evaluation.plan.problem.families(full=True)
    return families[1:] if evaluation.shapes.interpret_full and len(families) > 1 else families


def _check_reduced(evaluation: Evaluation, program: Program) -> Iterator[CheckRequest | ProbeRequest]:
    """Each family with another seed, then what outputs depend on: a wrong value says more than a wrong dependence."""
    plan, pickled, artifact = evaluation.plan, str(evaluation.plan.pickled_problem), str(program.path)
    reduced = evaluation.shapes.reduced
    families = plan.problem.families(full=False)
    has_tables = any(array.is_table for array in plan.problem.statement().inputs)
    if evaluation.shapes.has_second and not evaluation.shapes.difference and not has_tables:
        # The interpreter checks the others, at the second shape, and the composite has all their values. But it has one
        # kind of table only, and at the second shape a kernel may take another path than at the full one.
        families = tuple(filter(_is_drawn, families)) or families
    yield from _repeated(evaluation, program, reduced)
    for family in families:
        yield CheckRequest(problem=pickled, reduced=reduced, family=family, seed=seed(), artifact=artifact)
    yield ProbeRequest(problem=pickled, reduced=reduced, seed=seed(), artifact=artifact, full=False)


def _is_drawn(family: str) -> bool:
    return family.startswith(DRAWN)


def _repeated(evaluation: Evaluation, program: Program, reduced: int | None) -> Iterator[CheckRequest | ProbeRequest]:
    """The same checks once more on inputs of an earlier evaluation, also of those that its interpreter ran here.

    They come before fresh ones: what failed then shows first.
    """
    plan, pickled, artifact = evaluation.plan, str(evaluation.plan.pickled_problem), str(program.path)
    draws = repeatable(plan.draws, plan.problem, mode_of(reduced), reduced=reduced)
    if evaluation.shapes.reduced is not None and (program.shape == "full" or evaluation.shapes.has_second):
        draws += repeatable(plan.draws, plan.problem, "interpret", reduced=reduced)
    for draw in draws:
        if draw.is_probe:
            yield ProbeRequest(
                problem=pickled, reduced=reduced, seed=draw.seed, artifact=artifact, full=program.shape == "full"
            )
        else:
            yield CheckRequest(
                problem=pickled, reduced=reduced, family=draw.family, seed=draw.seed, artifact=artifact
            )  # fmt: skip


def _interpret(evaluation: Evaluation, reply: ShapesReply) -> Iterator[InterpretRequest]:
    plan = evaluation.plan
    shape: TracedShape = "second" if reply.has_second else "reduced"
    # At the full shape the interpreter has a positive number. Without a second shape it has NaN, at the reduced one.
    fill = unforeseen_number(is_negative=True) if reply.has_second else None
    draws = repeatable(plan.draws, plan.problem, "interpret", reduced=reply.reduced, is_second=reply.has_second)
    if reply.has_second:
        # Earlier judges ran a CPU reference program there.
        draws += repeatable(plan.draws, plan.problem, "reduced", reduced=reply.reduced, is_second=True)
    for place, draw in enumerate(draws):
        if not draw.is_probe:
            outputs = str(plan.outputs_of(f"drawn-before-{place}"))
            yield InterpretRequest(family=draw.family, seed=draw.seed, outputs=outputs, shape=shape, fill=fill)
    for family in plan.problem.families(full=False):
        # The CPU reference program computes the same numbers of drawn inputs in a tenth of the time.
        if not _is_drawn(family):
            outputs = str(plan.outputs_of(family))
            yield InterpretRequest(family=family, seed=seed(), outputs=outputs, shape=shape, fill=fill)


def _interpret_full(evaluation: Evaluation, reply: ShapesReply) -> Iterator[InterpretRequest]:
    """Last, because it takes longest: 200 s for 16384 keys on an idle machine.

    One family: what is looked for here does not depend on values. With numbers in memory that nothing wrote: the CPU
    reference program of this shape has NaN there.
    """
    if reply.interpret_full:
        family = evaluation.plan.problem.families(full=True)[0]
        outputs = str(evaluation.plan.outputs_of(f"{family}-full"))
        yield InterpretRequest(family=family, seed=seed(), outputs=outputs, shape="full", fill=unforeseen_number())


def _interpreted(evaluation: Evaluation, asked: InterpretRequest, reply: object) -> Products:
    is_full = asked.shape == "full"
    reduced = None if is_full else evaluation.shapes.reduced
    outputs = Outputs(asked=asked, reduced=reduced, is_second=asked.shape == "second")
    yield Product("full outputs" if is_full else "outputs", outputs)


def _compare(evaluation: Evaluation, outputs: Outputs) -> Iterator[CheckRequest]:
    asked = outputs.asked
    yield CheckRequest(
        problem=str(evaluation.plan.pickled_problem), reduced=outputs.reduced, family=asked.family, seed=asked.seed,
        outputs=asked.outputs, is_second=outputs.is_second,
    )  # fmt: skip


def _checked(evaluation: Evaluation, asked: object, reply: CheckReply | ProbeReply) -> Products:
    checks = reply.checks if isinstance(reply, ProbeReply) else (reply.check,)
    evaluation.checked(checks)
    if reply.failure is not None:
        evaluation.fail(reply.failure)
    yield from ()


# --- A device ----------------------------------------------------------------------------------


def _measure(evaluation: Evaluation, device: str) -> Iterator[Any]:
    plan = evaluation.plan
    yield measure_request(
        (plan.artifact(device),), plan.pickled_problem, plan.policy, plan.contest / "profile_data", plan.work.name,
        deep=plan.deep,
    )  # fmt: skip


def _measured(evaluation: Evaluation, asked: object, reply: MeasureReply) -> Products:
    assert evaluation.plan.source != "simulated"
    samples = reply.samples[0]
    evaluation.add(samples=samples, latency=latency.measured(samples, evaluation.plan.source))
    yield from _checked(evaluation, asked, reply.check)


def _of_checks(policy: Policy) -> float:
    return policy.correctness_seconds


def left_out(evaluation: Evaluation) -> tuple[str, ...]:
    """The checks at the full shape, by the names that their records would have."""
    problem = evaluation.plan.problem
    families = [f"{family} (full)" for family in _families_at_full(evaluation)]
    probes = dict.fromkeys(f"{probe.name} (full)" for probe in problem.probes(True, seed()))
    interpreted = [f"{problem.families(full=True)[0]} (interpret, full)"] if evaluation.shapes.interpret_full else []
    return (*families, *probes, *interpreted)


# In this order where several wait for the same: a process does its tasks in the order in which they were asked. The
# rank says whose failure counts: at reduced shapes the interpreter's first, which names the cause, then wrong results.
STAGES = (
    Stage("trace", rank=(TRACE,), needs="kernel", child="candidate", failing="contract", requests=_trace, take=_traced,
          seconds=lambda policy: policy.trace_seconds),
    Stage("trace", rank=(TRACE, 1), needs="trace", child="candidate", failing="contract", requests=_trace_smaller,
          take=_shaped, seconds=lambda policy: policy.trace_seconds),
    Stage("compile", rank=(COMPILE,), needs="chip program", child="compiler", failing="compile", requests=_compile,
          take=_compiled, seconds=lambda policy: policy.compile_seconds),
    Stage("simulate", rank=(SIMULATE,), needs="schedule", child="simulator", failing="latency", requests=_simulate,
          take=_simulated, seconds=lambda policy: policy.simulate_seconds + _SIMULATE_GRACE_SECONDS),
    Stage("reduced shapes", rank=(REDUCED, 1), needs="shapes", child="candidate", failing="correctness",
          requests=_export_reduced, take=_exported, seconds=_of_checks),
    Stage("correctness", rank=(REDUCED, 2), needs="shapes", child="candidate", failing="correctness",
          requests=_export_full, take=_exported, seconds=_of_checks),
    Stage("interpret", rank=(REDUCED, 0), needs="shapes", child="candidate", failing="correctness", requests=_interpret,
          take=_interpreted, seconds=_of_checks),
    Stage("interpret", rank=(FULL, 0), needs="shapes", child="candidate", failing="correctness",
          requests=_interpret_full, take=_interpreted,
          seconds=lambda policy: _FULL_INTERPRETATION * policy.correctness_seconds),
    # In the compiler's process, which by then has nothing else to do, and never ran kernel.py.
    Stage("artifact check", rank=(REDUCED, 5), needs="full program", child="compiler", failing="correctness",
          requests=_check_artifacts, take=_nothing, seconds=_of_checks),
    Stage("reduced shapes", rank=(REDUCED, 3), needs="reduced program", child="checker", failing="correctness",
          requests=_check_reduced, take=_checked, seconds=_of_checks),
    Stage("interpret", rank=(REDUCED, 4), needs="outputs", child="checker", failing="correctness",
          requests=_compare, take=_checked, seconds=_of_checks),
    Stage("correctness", rank=(FULL, 1), needs="full program", child="checker", failing="correctness",
          requests=_check_full, take=_checked, seconds=_of_checks),
    Stage("interpret", rank=(FULL, 2), needs="full outputs", child="checker", failing="correctness",
          requests=_compare, take=_checked, seconds=_of_checks),
    Stage("measure", rank=(DEVICE,), needs="device", child="timer", failing="latency", requests=_measure,
          take=_measured, seconds=lambda policy: policy.measure_seconds),
)  # fmt: skip
