"""Evaluates a kernel.py: runs every stage in child processes, leaves none of them behind, and returns the evidence."""

import errno
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import harness
from harness.candidate import Candidate
from harness.dumps import timing_tables
from harness.dumps.timing_tables import TimingTables
from harness.errors import RatchetError
from harness.hardware import Chip
from harness.judge.evaluate.messages import CompileReply
from harness.judge.evaluate.request import Listener, Plan, Request, named
from harness.judge.evaluate.state import State
from harness.judge.evaluate.suite import evaluate_suite
from harness.judge.evaluate.timing.device import source
from harness.judge.evaluate.walk import Evaluation
from harness.operators import Member, Problem, Suite
from harness.operators.timing import Stated, timing_inputs
from harness.records import Evidence
from harness.sandbox import confinement, warm
from harness.sandbox.child import Children
from harness.sandbox.environment import environment
from harness.sandbox.strip_paths import strip_paths

__all__ = ["environment", "evaluate", "is_of", "source"]

# The file next to the dumps. It holds the hash of the candidate from which the dumps were made.
_STAMP = "kernel.sha256"
_NOBODY = Listener()


def evaluate(request: Request, listener: Listener = _NOBODY) -> Evidence:
    """The evidence about a candidate. If the evaluation ended early, `failure` is the reason.

    Writes programs, dumps, Mosaic text and HLO text to `request.work`, replacing those of an earlier run. If
    `request.checked`, also writes the HLO text to the contest's `profile_data/kernel.hlo.txt`. On a device, also writes
    a profile to `profile_data`. Each member of a suite is evaluated in the subfolder of `request.work` with its name.
    After any exception, including Ctrl-C, no process is left behind.

    Raises RatchetError `no-libtpu`, `no-device`, `no-space`, `no-timing-inputs` and `bad-timing-inputs` (see
    `operators.timing`), `dtype-not-on-chip`, `suite-not-timed` (a suite on a device);
    UsageError `unknown-device`.
    """
    chip, policy, problem, work = request.chip, request.policy, request.problem, request.work
    if policy.is_confined:
        warm.start()
    where = source(chip, request.on)
    if chip.platform == "tpu" and environment().libtpu is None:
        raise RatchetError(
            "no-libtpu",
            "expected libtpu, the TPU compiler, found none; install it with pip install 'jax[tpu]' (x86-64 Linux only, "
            "where ./ratchet.sh installs it)",
        )
    suite = problem if isinstance(problem, Suite) else None
    if suite is not None and where != "simulated":
        raise RatchetError(
            "suite-not-timed",
            f"expected simulated times for a suite, got {where} times; use --on simulated, or time one member on a "
            "device in its own contest",
        )
    if confinement.isolation(policy.is_confined).landlock is None:
        # Children that are not confined could write to the cache of programs, so the cache is not used.
        request = replace(request, programs=None)
    if not request.checked:
        listener = replace(listener, is_slower=None)
    members = problem.members if isinstance(problem, Suite) else (Member(name="", problem=problem),)
    plans = tuple(
        Plan(
            request=request,
            member=member,
            source=where,
            work=work / member.name,
            others=tuple(other for other in members if other is not member),
        )
        for member in members
    )
    for plan in plans:
        _require_dtypes(plan.problem, chip)
    stated = [timing_inputs(plan.problem) for plan in plans]
    try:
        for plan, timings in zip(plans, stated, strict=True):
            prepare(plan)
            timing_tables.write(plan.dumps, _by_position(plan.problem, timings))
            timing_tables.write_assumption(plan.dumps, request.assumption)
        with Children(policy.child_memory_bytes, are_confined=policy.is_confined) as children:
            if suite is None:
                evaluations = [Evaluation(plans[0], children, listener)]
                evidence = evaluations[0].run()
            else:
                # A search for an attempt's dumps first reads the stamp in the suite's own folder.
                stamp(work, request.candidate)
                evaluations = [
                    Evaluation(plan, children, Listener(progress=named(plan.member.name, listener.progress)))
                    for plan in plans
                ]
                evidence = evaluate_suite(suite, evaluations, listener)
        for evaluation in evaluations:
            _keep(evaluation.plan, evaluation.state)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise RatchetError("no-space", f"no space left while writing to {work}; make room and run again") from error
    finally:
        for plan in plans:
            shutil.rmtree(plan.scratch, ignore_errors=True)
    if evidence.failure is not None and evidence.failure.kind == "no-space":
        raise RatchetError("no-space", f"{evidence.failure.message}; make room and run again")
    return _stripped(evidence, request.directory)


def _stripped(evidence: Evidence, contest: Path) -> Evidence:
    """The evidence without paths of this machine in its failures."""
    return replace(
        evidence,
        failure=strip_paths(evidence.failure, Path(harness.__file__).parents[1], contest),
        members=tuple(_stripped(member, contest) for member in evidence.members),
    )


def _require_dtypes(problem: Problem, chip: Chip) -> None:
    """Raises RatchetError `dtype-not-on-chip` if kernels on the chip cannot load an array of the problem."""
    statement = problem.statement()
    lacking = [array for array in (*statement.inputs, *statement.outputs) if chip.lacks(array.dtype)]
    if lacking:
        named = ", ".join(f"{array.name}: {array.dtype}" for array in lacking)
        raise RatchetError(
            "dtype-not-on-chip",
            f"expected dtypes that a kernel on {chip.name} can load, got {named}; use bfloat16 or float32 for floats "
            "and int32 for integers, or choose another chip",
        )


def _by_position(problem: Problem, timings: Stated) -> tuple[TimingTables, ...]:
    """The timing inputs in the form that the simulator reads from the folder of the dumps."""
    positions = {array.name: position for position, array in enumerate(problem.statement().inputs)}
    return tuple(
        timing_tables.timing_tables(name, {positions[table]: values for table, values in contents.items()})
        for name, contents in timings.items()
    )


def _keep(plan: Plan, state: State) -> None:
    """Caches the results of compiler and simulator, except if a latency is unknown, for example after a timeout."""
    programs, evidence, simulation = plan.request.programs, state.evidence, state.evidence.simulation
    if programs is None or state.seen is not None:
        return
    if evidence.hlo is None or evidence.mosaic is None or simulation is None:
        return
    if None not in (simulation.seconds, *(run.seconds for run in simulation.runs)):
        compiled = CompileReply(hlo=evidence.hlo, mosaic=evidence.mosaic)
        programs.keep(state.program_keys[0], plan.work, compiled, simulation)


def is_of(work: Path, candidate: Candidate) -> bool:
    """True if the files that `evaluate` left in `work` were made from this candidate."""
    try:
        return (work / _STAMP).read_text(encoding="utf-8") == candidate.sha256
    except (OSError, UnicodeDecodeError):
        return False


def stamp(work: Path, candidate: Candidate) -> None:
    """Records in `work` the candidate from which its files are made."""
    (work / _STAMP).write_text(candidate.sha256, encoding="utf-8")


def prepare(plan: Plan) -> None:
    """Makes empty folders for the children, writes the candidate's files to its folder, and pickles the problem."""
    for name in ("dumps", "mosaic", "scratch"):
        shutil.rmtree(plan.work / name, ignore_errors=True)
    for path in (plan.dumps, plan.work / "mosaic", *map(plan.directory_of, ("candidate", "checker", "compiler"))):
        path.mkdir(parents=True)
    for name, data in plan.request.candidate.files.items():
        (plan.directory_of("candidate") / name).write_bytes(data)
    stamp(plan.work, plan.request.candidate)
    plan.pickled_problem.write_bytes(pickle.dumps(plan.problem))
