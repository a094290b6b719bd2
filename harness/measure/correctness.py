"""The process that checks answers: it runs the CPU twin and compares with float64; it never sees kernel.py."""

import hashlib
import pickle
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from harness import problems
from harness.measure import arrays
from harness.measure.messages import CheckReply, CheckRequest, Rejected
from harness.problems import Problem


def check(request: CheckRequest) -> CheckReply:
    """The check of one program on one family of inputs, which are drawn here from the seed. Raises Rejected."""
    problem = _problem(request.problem, request.reduced)
    inputs = problem.make_inputs(request.family, request.seed)
    before = digest(inputs)
    if request.artifact:
        outputs = run(request.artifact, inputs)
        if digest(inputs) != before:
            raise Rejected("correctness", "inputs-changed", "the kernel wrote to its inputs; use an output or scratch")
    else:
        outputs = arrays.load(Path(request.outputs), problem.statement().outputs)
    found, failure = problems.check(
        problem, inputs, outputs,
        family=request.family, mode="full" if request.artifact else "interpret", seed=request.seed,
    )  # fmt: skip
    return CheckReply(check=found, failure=failure)


@cache
def _problem(path: str, reduced: int | None) -> Problem:
    problem: Problem = pickle.loads(Path(path).read_bytes())
    return problem if reduced is None else next(islice(problem.reduced(), reduced, None))


@cache
def program(artifact: str) -> Callable[..., Any]:
    """The exported program, compiled on its first call for the device JAX uses."""
    return jax.jit(jax.export.deserialize(bytearray(Path(artifact).read_bytes())).call)  # type: ignore[no-any-return]


def run(artifact: str, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """The outputs of the exported program, as arrays of this process."""
    outputs = jax.block_until_ready(program(artifact)(*inputs))
    return tuple(np.asarray(leaf) for leaf in jax.tree.leaves(outputs))


def digest(inputs: Sequence[NDArray[Any]]) -> str:
    """A hash of the bytes of all arrays."""
    found = hashlib.sha256()
    for array in inputs:
        found.update(np.ascontiguousarray(array).view(np.uint8).data)
    return found.hexdigest()


TASKS = {"check": (CheckRequest, check)}
