"""The stages of an evaluation as a table: each stage's inputs, its process, and its effect on the state."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from harness.dumps import timing_tables
from harness.hardware import Chip
from harness.judge.evaluate import messages
from harness.judge.evaluate.compile.left_out import CheckedCompileRequest, leaves_out_checks
from harness.judge.evaluate.compile.seen_programs import Seen
from harness.judge.evaluate.draws import mode_of, repeatable, seed, unforeseen_fill, unforeseen_number
from harness.judge.evaluate.reach import not_interpreted, work_not_done
from harness.judge.evaluate.request import Plan
from harness.judge.evaluate.state import (
    COMPILE,
    DEVICE,
    FULL,
    REDUCED,
    SIMULATE,
    TRACE,
    KnownAnswer,
    Need,
    Product,
    Stage,
    StageAnswer,
    State,
    Taken,
)
from harness.judge.evaluate.timing import latency
from harness.judge.evaluate.timing.requests import measure_request
from harness.operators.space import DRAWN
from harness.records import Failure, Latency, Offence, Policy, Simulation
from harness.sandbox import handover

# The file with a small timeline of the simulated run (a Timeline as JSON), in the folder of its schedules.
TIMELINE = "run.timeline"
# Extra time for starting the simulator's process and for its reply; it does not extend the simulator's own deadline.
_SIMULATE_GRACE_SECONDS = 10.0
# The name under which the traced program is stored among the exported programs.
_TRACED = "traced"
# The time limit for interpreting the full shape, as a multiple of the limit of other checks.
_FULL_INTERPRETATION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceProgram:
    """The CPU reference program for one traced shape, in a file to which the candidate cannot write."""

    path: Path
    shape: messages.TracedShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """The outputs that a run in TPU interpret mode wrote, with its request and shape (see CheckRequest)."""

    asked: messages.InterpretRequest
    reduced: int | None
    is_second: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDump:
    """The compiler's schedule in `dumps`; `simulation` is set if the same program was simulated before."""

    dumps: Path
    simulation: Simulation | None


# --- The trace, and the chip's program ---------------------------------------------------------


def _trace(plan: Plan, state: State, _: object) -> Iterator[messages.TraceRequest]:
    artifact = str(plan.written(plan.chip.platform))
    yield messages.TraceRequest(
        problem=str(plan.pickled_problem),
        chip=plan.chip,
        artifact=artifact,
        function=plan.member.function,
        program=str(plan.written(_TRACED)),
        stubs=plan.request.stubs,
    )


def _traced(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    reply: messages.TraceReply = answer.reply
    platform = plan.chip.platform
    for name in (platform, _TRACED):
        failure = handover.take_over(plan.written(name), plan.artifact(name), "static")
        if failure is not None:
            return state.failing(answer.rank, failure), ()
    state = replace(state, trace=reply, program_keys=plan.program_keys())
    state = state.adding(trace=reply.trace, claims=reply.claims).warning(*reply.warnings)
    if reply.exceeds_vmem and plan.chip.topology is not None:
        # libtpu would refuse the program too, but only after seconds to minutes.
        failure = Failure(stage="compile", kind="vmem-exceeded", message=reply.exceeds_vmem)
        return state.failing(answer.rank, failure), ()
    needs: list[Need] = ["chip program"] if plan.chip.topology is not None else []
    if needs and plan.request.checked and leaves_out_checks(plan.artifact(platform)):
        needs.append("unchecked program")
    products = tuple(Product(need, plan.chip) for need in needs)
    return state, (*products, Product("trace", reply)) if plan.request.checked else products


def _trace_smaller(plan: Plan, state: State, _: object) -> Iterator[messages.ShapesRequest]:
    others = tuple(
        messages.OtherMember(name=other.name, function=other.function, inputs=other.problem.statement().inputs)
        for other in plan.others
    )
    yield messages.ShapesRequest(others=others)


def _shaped(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    reply: messages.ShapesReply = answer.reply
    return replace(state, shapes=reply).warning(*reply.warnings), (Product("shapes", reply),)


def _compile(plan: Plan, state: State, chip: Chip) -> Iterator[messages.CompileRequest | KnownAnswer]:
    texts = [plan.work / "kernel.hlo.txt"]
    if plan.request.checked:
        # This file belongs to the last judged candidate. Screening runs several candidates at a time, so it does not
        # write the file.
        texts.append(plan.request.profile_data / "kernel.hlo.txt")
    texts[-1].parent.mkdir(parents=True, exist_ok=True)
    request = messages.CompileRequest(
        artifact=str(plan.artifact(plan.chip.platform)),
        problem=str(plan.pickled_problem),
        chip=chip,
        hlo_texts=tuple(map(str, texts)),
        mosaic_directory=str(plan.work / "mosaic"),
    )
    programs = plan.request.programs
    # `restored` puts the files of the cached program where the compiler would write them.
    restored = (programs.restored(key, plan.work) for key in state.program_keys) if programs is not None else ()
    seen = next(filter(None, restored), None)
    if seen is None:
        yield request
        return
    for text in texts[1:]:
        shutil.copyfile(texts[0], text)
    yield KnownAnswer(request, seen)


def _compiled(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    seen = answer.reply if isinstance(answer.reply, Seen) else None
    reply = answer.reply if seen is None else seen.compiled
    directory = plan.request.directory
    shown = plan.dumps.relative_to(directory) if plan.dumps.is_relative_to(directory) else plan.dumps
    state = replace(state, seen=seen).adding(hlo=reply.hlo, mosaic=reply.mosaic, dump_directory=shown.as_posix())
    return state, (Product("schedule", ScheduleDump(dumps=plan.dumps, simulation=seen.simulation if seen else None)),)


def _simulate(plan: Plan, state: State, schedule: ScheduleDump) -> Iterator[messages.SimulateRequest | KnownAnswer]:
    simulate = plan.request.simulate
    request = messages.SimulateRequest(
        module=simulate.__module__,
        function=simulate.__qualname__,
        dump_directory=str(schedule.dumps),
        chip=plan.chip,
        deadline_seconds=plan.policy.simulate_seconds,
        with_lines=plan.request.has_lines,
        timeline=str(_timeline_of(plan)) if plan.request.checked and schedule.dumps == plan.dumps else None,
    )
    yield request if schedule.simulation is None else KnownAnswer(request, schedule.simulation)


def _timeline_of(plan: Plan) -> Path:
    """The file to which the simulator's process writes the timeline of the run."""
    return plan.directory_of("simulator") / TIMELINE


def _simulated(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    reply: Simulation = answer.reply
    if _timeline_of(plan).exists():
        # In the folder of the schedules, the timeline is cached and restored together with them.
        failure = handover.take_over(_timeline_of(plan), plan.dumps / TIMELINE, "latency")
        state = state.warning(failure.message) if failure else state
    state = _with_offences(state.adding(simulation=reply), state.offences)
    state = state.failing(answer.rank, *work_not_done(reply, plan.problem.statement().work.matmul_flops))
    return state.adding(latency=latency.simulated(reply)) if plan.source == "simulated" else state, ()


def _without_simulation(plan: Plan, state: State, answer: StageAnswer) -> State:
    """The state after a failure of the simulator: the candidate has not failed, but its latency is unknown."""
    failure: Failure = answer.reply
    reason = f"the simulator gave no result: {failure.kind}: {failure.message}"
    state = state.warning(reason)
    if plan.source != "simulated":
        return state
    return state.adding(latency=Latency(source="simulated", seconds=None, plus_minus_seconds=None, reasons=(reason,)))


def _compile_with_checks(plan: Plan, state: State, chip: Chip) -> Iterator[CheckedCompileRequest]:
    dumps, texts = plan.checked / "dumps", plan.checked / "mosaic"
    for folder in (dumps, texts):
        folder.mkdir(parents=True, exist_ok=True)
    timing_tables.write(dumps, timing_tables.read(plan.dumps))
    yield CheckedCompileRequest(
        artifact=str(plan.artifact(plan.chip.platform)),
        problem=str(plan.pickled_problem),
        chip=chip,
        hlo_texts=(),
        mosaic_directory=str(texts),
    )


def _compiled_with_checks(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    return state, (Product("checked schedule", ScheduleDump(dumps=plan.checked / "dumps", simulation=None)),)


def _simulated_with_checks(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    """Adds the offences in the fully checked program to those in the timed program."""
    return _with_offences(state, answer.reply.offences), ()


def _without_checks(plan: Plan, state: State, answer: StageAnswer) -> State:
    failure: Failure = answer.reply
    message = f"the checks that the kernel leaves out could not be run: {failure.kind}: {failure.message}"
    return _with_offences(state, (Offence(kind="check-unknown", op="the program with all checks", what=message),))


def _with_offences(state: State, offences: tuple[Offence, ...]) -> State:
    state = replace(state, offences=offences)
    timed = state.evidence.simulation
    if timed is None:
        return state
    identity = attrgetter("kind", "op", "what", "line")
    timed_keys = set(map(identity, timed.offences))
    more = (offence for offence in offences if identity(offence) not in timed_keys)
    return state.adding(simulation=replace(timed, offences=(*timed.offences, *more)))


# --- Correctness -------------------------------------------------------------------------------
# Seeds are drawn in these stages, after the trace. Within a problem, the shape, family and seed of a Check determine
# its inputs, because the recipe of a drawn family follows from its seed.


def _export_reduced(plan: Plan, state: State, reply: messages.ShapesReply) -> Iterator[messages.ExportRequest]:
    artifact = str(plan.written("reduced"))
    yield messages.ExportRequest(artifact=artifact, shape="reduced", fill=unforeseen_fill("reduced"))


def _exported(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    kept = plan.scratch / "reduced.cpu"
    failure = handover.take_over(plan.written("reduced"), kept, "correctness")
    if failure is not None:
        return state.failing(answer.rank, failure), ()
    return state, (Product("reduced program", ReferenceProgram(path=kept, shape="reduced")),)


def _certify(plan: Plan, state: State, reply: messages.ShapesReply) -> Iterator[messages.CertifyRequest]:
    statement = plan.problem.statement()
    yield messages.CertifyRequest(
        program=str(plan.artifact(_TRACED)),
        for_chip=str(plan.artifact(plan.chip.platform)),
        chip=plan.chip,
        trace=_trace_of(state).trace,
        artifact=str(plan.directory_of("certifier") / "candidate.cpu"),
        fill=unforeseen_fill("full", is_interpreted=reply.interpret_full),
        splits=tuple(array.split for array in (*statement.inputs, *statement.results)),
        # XLA makes no copy of a donated array, so no copy of it can be in VMEM.
        joins_windows=plan.chip.platform == "tpu" and not statement.donated,
    )


def _certified(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    kept = plan.artifact("cpu")
    failure = handover.take_over(Path(answer.request.artifact), kept, "correctness")
    if failure is not None:
        return state.failing(answer.rank, failure), ()
    products = (Product("full program", ReferenceProgram(path=kept, shape="full")),)
    return state.adding(certificate=answer.reply), products


def _check_full(
    plan: Plan, state: State, program: ReferenceProgram
) -> Iterator[messages.CheckRequest | messages.ProbeRequest]:
    yield from _repeated(plan, state, program, None)
    subject = _subject(plan, program, None)
    for family in _families_at_full(plan, state):
        drawn = seed()
        yield messages.CheckRequest(family=family, seed=drawn, **subject)
    # The probe has the seed of the last check, so that it compares with the outputs of that check.
    yield messages.ProbeRequest(seed=drawn, full=True, **subject)


def _subject(plan: Plan, program: ReferenceProgram, reduced: int | None) -> dict[str, Any]:
    """The fields of CheckRequest and ProbeRequest that select the program and the shape to check."""
    # Over a mesh, each check interprets the program, and so needs the chip.
    over = plan.chip if plan.chip.mesh else None
    return {"problem": str(plan.pickled_problem), "reduced": reduced, "artifact": str(program.path), "over": over}


def _families_at_full(plan: Plan, state: State) -> tuple[str, ...]:
    """The families that the CPU reference program runs at the full shape.

    If the first of several families is interpreted at this shape, it is left out.
    """
    families = plan.problem.families(full=True)
    return families[1:] if _shapes_of(state).interpret_full and len(families) > 1 else families


def _check_reduced(
    plan: Plan, state: State, program: ReferenceProgram
) -> Iterator[messages.CheckRequest | messages.ProbeRequest]:
    """Checks of the families, each with another seed, then probes.

    The probes come last, because a wrong value says more about the error than a failed probe.
    """
    shapes = _shapes_of(state)
    families = plan.problem.families(full=False)
    has_tables = any(array.is_table for array in plan.problem.statement().inputs)
    if shapes.has_second and not shapes.difference and not has_tables:
        # Only drawn families are checked here. The interpreter checks the other families at the second shape, and the
        # composite at the full shape contains the values of all families. This is not enough in two cases, in which all
        # families are checked here: with tables, because the composite has only one kind of table; and if the programs
        # differ, because the kernel may take another path at the full shape.
        families = tuple(filter(_is_drawn, families)) or families
    yield from _repeated(plan, state, program, shapes.reduced)
    subject = _subject(plan, program, shapes.reduced)
    for family in families:
        yield messages.CheckRequest(family=family, seed=seed(), **subject)
    yield messages.ProbeRequest(seed=seed(), full=False, **subject)


def _is_drawn(family: str) -> bool:
    return family.startswith(DRAWN)


def _repeated(
    plan: Plan, state: State, program: ReferenceProgram, reduced: int | None
) -> Iterator[messages.CheckRequest | messages.ProbeRequest]:
    """Checks of the same program on the inputs of earlier evaluations, including inputs of interpreted runs.

    These checks precede the checks on fresh inputs, so that an earlier failure shows first.
    """
    shapes, subject = _shapes_of(state), _subject(plan, program, reduced)
    draws = repeatable(plan.request.draws, plan.problem, mode_of(reduced), reduced=reduced)
    if shapes.reduced is not None and (program.shape == "full" or shapes.has_second):
        draws += repeatable(plan.request.draws, plan.problem, "interpret", reduced=reduced)
    for draw in draws:
        if draw.is_probe:
            yield messages.ProbeRequest(seed=draw.seed, full=program.shape == "full", **subject)
        else:
            yield messages.CheckRequest(family=draw.family, seed=draw.seed, **subject)


def _interpret(plan: Plan, state: State, reply: messages.ShapesReply) -> Iterator[messages.InterpretRequest]:
    """The interpreted runs at a smaller shape; none over a mesh, where every check interprets the program."""
    if plan.chip.mesh:
        return
    shape: messages.TracedShape = "second" if reply.has_second else "reduced"
    # Unwritten memory holds a negative number at the second shape, a positive number at the full shape, and NaN at the
    # reduced shape.
    fill = unforeseen_number(is_negative=True) if reply.has_second else None
    draws = repeatable(plan.request.draws, plan.problem, "interpret", reduced=reply.reduced, is_second=reply.has_second)
    if reply.has_second:
        # At the second shape, earlier versions of the judge recorded draws of a CPU reference program.
        draws += repeatable(plan.request.draws, plan.problem, "reduced", reduced=reply.reduced, is_second=True)
    for place, draw in enumerate(draws):
        if not draw.is_probe:
            outputs = str(plan.outputs_of(f"drawn-before-{place}"))
            yield messages.InterpretRequest(family=draw.family, seed=draw.seed, outputs=outputs, shape=shape, fill=fill)
    for family in plan.problem.families(full=False):
        # For drawn inputs, the CPU reference program computes the same numbers in a tenth of the time.
        if not _is_drawn(family):
            outputs = str(plan.outputs_of(family))
            yield messages.InterpretRequest(family=family, seed=seed(), outputs=outputs, shape=shape, fill=fill)


def _interpret_full(plan: Plan, state: State, reply: messages.ShapesReply) -> Iterator[messages.InterpretRequest]:
    """The run at the full shape. It comes last because it takes longest: 200 s for 16384 keys on an idle machine.

    One family is enough, because the findings (races, accesses out of bounds) do not depend on values. Unwritten memory
    holds a number here, and NaN in the CPU reference program of this shape.
    """
    if reply.interpret_full:
        family = plan.problem.families(full=True)[0]
        outputs = str(plan.outputs_of(f"{family}-full"))
        yield messages.InterpretRequest(
            family=family, seed=seed(), outputs=outputs, shape="full", fill=unforeseen_number()
        )


def _interpreted(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    asked: messages.InterpretRequest = answer.request
    is_full = asked.shape == "full"
    reduced = None if is_full else _shapes_of(state).reduced
    outputs = Outputs(asked=asked, reduced=reduced, is_second=asked.shape == "second")
    return state, (Product("full outputs" if is_full else "outputs", outputs),)


def _without_interpretation(plan: Plan, state: State, answer: StageAnswer) -> State:
    return state.failing(answer.rank, not_interpreted(answer.reply, _shapes_of(state).difference))


def _compare(plan: Plan, state: State, outputs: Outputs) -> Iterator[messages.CheckRequest]:
    asked = outputs.asked
    yield messages.CheckRequest(
        problem=str(plan.pickled_problem),
        reduced=outputs.reduced,
        family=asked.family,
        seed=asked.seed,
        outputs=asked.outputs,
        is_second=outputs.is_second,
    )


def _checked(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    return _with_checks(state, answer, answer.reply), ()


def _with_checks(state: State, answer: StageAnswer, reply: messages.CheckReply | messages.ProbeReply) -> State:
    checks = reply.checks if isinstance(reply, messages.ProbeReply) else (reply.check,)
    return state.checked(answer.rank, checks).failing(answer.rank, *filter(None, (reply.failure,)))


# --- A device ----------------------------------------------------------------------------------


def _measure(plan: Plan, state: State, device: str) -> Iterator[Any]:
    yield measure_request(
        (plan.artifact(device),),
        plan.pickled_problem,
        plan.policy,
        plan.request.profile_data,
        plan.work.name,
        deep=plan.request.deep,
    )


def _measured(plan: Plan, state: State, answer: StageAnswer) -> Taken:
    assert plan.source != "simulated"
    reply: messages.MeasureReply = answer.reply
    samples = reply.samples[0]
    state = state.adding(samples=samples, latency=latency.measured(samples, plan.source))
    return _with_checks(state, answer, reply.check), ()


def _trace_of(state: State) -> messages.TraceReply:
    assert state.trace is not None, "expected a stage after the trace"
    return state.trace


def _shapes_of(state: State) -> messages.ShapesReply:
    assert state.shapes is not None, "expected a stage after the trace for smaller shapes"
    return state.shapes


def _of_checks(policy: Policy) -> float:
    return policy.correctness_seconds


def left_out(plan: Plan, state: State) -> tuple[str, ...]:
    """The names, as records show them, of the full-shape checks that a candidate that is too slow does not get."""
    problem = plan.problem
    families = [f"{family} (full)" for family in _families_at_full(plan, state)]
    probes = dict.fromkeys(f"{probe.name} (full)" for probe in problem.probes(True, seed()))
    interpreted = [f"{problem.families(full=True)[0]} (interpret, full)"] if _shapes_of(state).interpret_full else []
    checks = ["checks left out"] if leaves_out_checks(plan.artifact(plan.chip.platform)) else []
    return (*families, *probes, *interpreted, *checks)


# Stages that need the same product send their requests in the order of this table, and a process answers requests in
# the order in which they were sent. Of several failures, the one with the lowest rank counts. At reduced shapes, a
# failure in the interpreter has a lower rank than a wrong result, because the failure names the cause.
STAGES = (
    Stage("trace", rank=(TRACE,), needs="kernel", child="candidate", failing="contract", requests=_trace, take=_traced,
          seconds=lambda policy: policy.trace_seconds),
    Stage("trace", rank=(TRACE, 1), needs="trace", child="candidate", failing="contract", requests=_trace_smaller,
          take=_shaped, seconds=lambda policy: policy.trace_seconds),
    Stage("compile", rank=(COMPILE,), needs="chip program", child="compiler", failing="compile", requests=_compile,
          take=_compiled, seconds=lambda policy: policy.compile_seconds),
    Stage("simulate", rank=(SIMULATE,), needs="schedule", child="simulator", failing="latency", requests=_simulate,
          take=_simulated, seconds=lambda policy: policy.simulate_seconds + _SIMULATE_GRACE_SECONDS,
          fail=_without_simulation),
    Stage("reduced shapes", rank=(REDUCED, 1), needs="shapes", child="candidate", failing="correctness",
          requests=_export_reduced, take=_exported, seconds=_of_checks),
    # The certificate is made in a process that runs neither kernel.py nor a program made from it.
    Stage("certificate", rank=(REDUCED, 2), needs="shapes", child="certifier", failing="correctness",
          requests=_certify, take=_certified, seconds=_of_checks),
    Stage("interpret", rank=(REDUCED, 0), needs="shapes", child="candidate", failing="correctness", requests=_interpret,
          take=_interpreted, seconds=_of_checks),
    Stage("interpret", rank=(FULL, 0), needs="shapes", child="candidate", failing="correctness",
          requests=_interpret_full, take=_interpreted,
          seconds=lambda policy: _FULL_INTERPRETATION * policy.correctness_seconds, fail=_without_interpretation),
    Stage("reduced shapes", rank=(REDUCED, 3), needs="reduced program", child="checker", failing="correctness",
          requests=_check_reduced, take=_checked, seconds=_of_checks),
    Stage("interpret", rank=(REDUCED, 4), needs="outputs", child="checker", failing="correctness",
          requests=_compare, take=_checked, seconds=_of_checks),
    Stage("correctness", rank=(FULL, 1), needs="full program", child="checker", failing="correctness",
          requests=_check_full, take=_checked, seconds=_of_checks),
    Stage("interpret", rank=(FULL, 2), needs="full outputs", child="checker", failing="correctness",
          requests=_compare, take=_checked, seconds=_of_checks),
    # The program is compiled and simulated again, with the checks that its options leave out.
    Stage("checks left out", rank=(FULL, 3), needs="unchecked program", child="checks compiler", failing="compile",
          requests=_compile_with_checks, take=_compiled_with_checks, seconds=lambda policy: policy.compile_seconds),
    Stage("checks left out", rank=(FULL, 4), needs="checked schedule", child="simulator", failing="latency",
          requests=_simulate, take=_simulated_with_checks, fail=_without_checks,
          seconds=lambda policy: policy.simulate_seconds + _SIMULATE_GRACE_SECONDS),
    Stage("measure", rank=(DEVICE,), needs="device", child="timer", failing="latency", requests=_measure,
          take=_measured, seconds=lambda policy: policy.measure_seconds),
)  # fmt: skip
