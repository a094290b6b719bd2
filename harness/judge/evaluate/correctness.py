"""The process that checks results: it runs the CPU reference program, never kernel.py, and checks it against float64.

operators/blocks.py chooses the rows to compare (`sampled_rows`). operators/tolerance.py has the limits on their errors.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from harness.judge.evaluate.draws import at_shape, mode_of
from harness.judge.evaluate.interpret import over_mesh
from harness.judge.evaluate.interpret.as_written import jit_as_written, require_arithmetic_as_written
from harness.judge.evaluate.interpret.conversions import require_conversions
from harness.judge.evaluate.messages import CheckReply, CheckRequest, ProbeReply, ProbeRequest
from harness.judge.evaluate.trace import meshes
from harness.operators import Problem, probes, tolerance
from harness.operators.outputs import as_read
from harness.operators.state import check_state
from harness.operators.timing import differing
from harness.operators.wrong_parts import at_smaller_shape
from harness.records import Check, Failure, Mode
from harness.sandbox import arrays
from harness.sandbox.messages import Rejected


def check(request: CheckRequest) -> CheckReply:
    """Draws inputs of one family from the seed and checks a program's outputs on them. Raises Rejected."""
    problem = _problem(request.problem, request.reduced, request.is_second)
    inputs = _inputs(request.problem, request.reduced, request.is_second, request.family, request.seed)
    if different := differing(problem, request.family, inputs):
        # Otherwise the kernel would be timed with inputs on which it was never checked.
        raise RuntimeError(f"{request.family}: expected {different} to have the contents that timing_inputs() states")
    mode: Mode = "interpret"
    if request.artifact:
        outputs, mode = _run_once(request, inputs), mode_of(request.reduced)
    else:
        outputs = arrays.load(Path(request.outputs), problem.statement().results)
    family_check, failure = tolerance.check(
        problem, inputs, outputs, family=request.family, mode=mode, seed=request.seed
    )
    return CheckReply(check=family_check, failure=_with_shape(failure, problem, request))


def probe(request: ProbeRequest) -> ProbeReply:
    """Changes the inputs of a program and checks which outputs change. Unless `request.full`, also repeats a call.

    Raises Rejected.
    """
    problem = _problem(request.problem, request.reduced)
    outputs = problem.statement().outputs
    mode = mode_of(request.reduced)
    checks: list[Check] = []
    failure: Failure | None = None
    family = ""
    inputs: Sequence[NDArray[Any]] = ()
    for input_probe in problem.probes(request.full, request.seed):
        if family != input_probe.family:
            family = input_probe.family
            inputs = _inputs(request.problem, request.reduced, False, family, request.seed)
        before, _ = _split(problem, inputs, _run_once(request, inputs))
        changed = probes.changed(input_probe, inputs)
        after, state = _split(problem, changed, _run_untouched(request, changed))
        new_check, failure = probes.check_probe(outputs, input_probe, before, after, mode=mode, seed=request.seed)
        if failure is None:
            named = f"{input_probe.name} changed"
            for kept in check_state(problem, changed, state, family=named, mode=mode, seed=request.seed):
                checks.append(kept[0])
                failure = failure or kept[1]
        # Probes of the same name are recorded as one check.
        if checks and checks[-1].family == new_check.family:
            new_check = replace(new_check, elements=checks[-1].elements + new_check.elements)
            checks.pop()
        checks.append(new_check)
        if failure is not None:
            break
    if failure is None and not request.full:
        # Other calls ran between these two calls, so this check also detects effects of values left in memory.
        again, _ = _split(problem, inputs, _run_untouched(request, inputs))
        new_check, failure = probes.check_determinism(
            outputs, input_probe.family, before, again, mode=mode, seed=request.seed
        )
        checks.append(new_check)
    return ProbeReply(checks=tuple(checks), failure=_with_shape(failure, problem, request))


def _with_shape(failure: Failure | None, problem: Problem, request: CheckRequest | ProbeRequest) -> Failure | None:
    """`failure` with a message that begins with the shape, unless it is the contest's shape; None if it is None."""
    if failure is None:
        return None
    where = at_smaller_shape(problem.statement(), _problem(request.problem, None).statement())
    return replace(failure, message=where + failure.message)


def _split(
    problem: Problem, inputs: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]
) -> tuple[Sequence[NDArray[Any]], Sequence[NDArray[Any]]]:
    """The outputs as `as_read` returns them, and the state."""
    count = len(problem.statement().outputs)
    return as_read(problem, inputs, results)[:count], results[count:]


@cache
def _problem(path: str, reduced: int | None, is_second: bool = False) -> Problem:
    problem = at_shape(pickle.loads(Path(path).read_bytes()), reduced, is_second=is_second)
    assert problem is not None, "expected a shape that the kernel was traced for, got none"
    return problem


@lru_cache(maxsize=1)
def _inputs(path: str, reduced: int | None, is_second: bool, family: str, seed: int) -> Sequence[NDArray[Any]]:
    """The inputs of one family; the last result is cached, because probes start from the inputs of the last check."""
    return _problem(path, reduced, is_second).make_inputs(family, seed)


@dataclass(slots=True)
class _ReferenceRun:
    """The last run of a program: its inputs, compared by identity, and its outputs."""

    artifact: str = ""
    inputs: Sequence[NDArray[Any]] = ()
    outputs: tuple[NDArray[Any], ...] = ()


# The last run is kept, because probes compare new outputs with the checked outputs.
_last = _ReferenceRun()


def _run_once(request: CheckRequest | ProbeRequest, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """The result of `_run_untouched`; reused if the last call of `_run_once` had the same program and inputs."""
    global _last
    if _last.artifact != request.artifact or _last.inputs is not inputs:
        # Frees the last run's arrays before this run makes its own.
        _last = _ReferenceRun()
        _last = _ReferenceRun(request.artifact, inputs, _run_untouched(request, inputs))
    return _last.outputs


def _run_untouched(request: CheckRequest | ProbeRequest, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """The outputs of the program; for a program over a mesh, the outputs of `over_mesh.run`.

    Raises Rejected `inputs-changed` if the program wrote to its inputs, and `unsound-cpu` if XLA cannot be trusted.
    """
    require_conversions()
    require_arithmetic_as_written()
    before = [array.copy() for array in inputs]
    if request.over is None:
        outputs = run(request.artifact, inputs)
    else:
        statement = _problem(request.problem, request.reduced).statement()
        splits, results = meshes.splits(statement.inputs), meshes.splits(statement.results)
        outputs = over_mesh.run(request.artifact, inputs, request.over, splits, results)
    if not all(np.array_equal(_bits(kept), _bits(array)) for kept, array in zip(before, inputs, strict=True)):
        raise Rejected("correctness", "inputs-changed", "the kernel wrote to its inputs; use an output or scratch")
    return outputs


@cache
def program(artifact: str) -> Callable[..., Any]:
    """The exported program, compiled for the CPU on its first call."""
    return jit_as_written(jax.export.deserialize(bytearray(Path(artifact).read_bytes())).call)


def run(artifact: str, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """The outputs of the exported program, as numpy arrays."""
    outputs = jax.block_until_ready(program(artifact)(*inputs))
    return tuple(np.asarray(leaf) for leaf in jax.tree.leaves(outputs))


def _bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The array's bytes, in which a NaN equals itself."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


TASKS = {"check": (CheckRequest, check), "probe": (ProbeRequest, probe)}
