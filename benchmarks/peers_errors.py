"""The worst error of each contender over drawn inputs, in units of the judge's tolerance: a part of peers.py.

For each contender and configuration, a child runs the program that the judge checks: the traced program on the CPU,
its Pallas calls interpreted with the chip's roundings.
"""

import dataclasses
import functools
import hashlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import peers_problems
from peers_problems import OURS, ROOT, Configuration, Problem
from peers_tasks import Task

from harness.sandbox import asked_device

# 8192 is the longest that still runs in seconds; a configuration with larger blocks gets one block.
_SEQUENCES = (4096, 8192)
_GROUP = 4
_LIMIT_SECONDS = 900.0
_JUDGE = ("operators", "records", "judge")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """The largest error of `inputs` draws, in units of the tolerance, and its draw. If the error is unknown, `worst` is
    None and `unknown` has the reason.

    The worst error is not finite if an output was not.
    """

    worst: float | None = None
    family: str = ""
    seed: int = 0
    inputs: int = 0
    unknown: str = ""


# Maps a contender's configuration to its error, or to None if it was not run.
Errors = Callable[[Task], Error | None]


def reduced(problem: Problem, configuration: Configuration) -> Problem:
    """The problem at a length that takes seconds: at least two blocks of the configuration, 4096 or 8192.

    It has one head, or one group of queries; the rest is as in the problem.
    """
    blocks = [int(value) for _, value in configuration if value.isdigit()]
    wanted = 2 * max((block for block in blocks if block <= problem.sequence), default=0)
    sequence = min(problem.sequence, next((each for each in _SEQUENCES if each >= wanted), _SEQUENCES[-1]))
    is_grouped = problem.heads != problem.kv_heads
    return dataclasses.replace(
        problem, sequence=sequence, kv_heads=1, heads=problem.heads // problem.kv_heads if is_grouped else 1
    )


def cached_error(task: Task, inputs: int, cache: Path) -> Error | None:
    """The error of a task, from the cache; None if the task was not run with this judge on so many inputs."""
    path = _path(task, inputs, cache)
    return Error(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def error(task: Task, inputs: int, cache: Path) -> Error:
    """The error of a task, from the cache or from a run in a child; a task whose error is unknown runs again."""
    task_error = cached_error(task, inputs, cache)
    if task_error is None or task_error.unknown:
        task_error = _run(task, inputs)
        path = _path(task, inputs, cache)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(task_error), indent=1), encoding="utf-8")
    return task_error


def _run(task: Task, inputs: int) -> Error:
    small = dataclasses.replace(task, problem=reduced(task.problem, task.configuration))
    _, chip, contender, *words = small.words
    kernel = []
    if contender == OURS:
        # The reduced problem has no kernel of its own.
        kernel = [f"kernel={ROOT / peers_problems.our_kernel(task.problem, task.chip)}"]
        words = [word for word in words if not word.startswith("kernel=")]
    command = [sys.executable, __file__, str(inputs), chip, contender, *words, *kernel]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    try:
        child = subprocess.run(command, env=paths, timeout=_LIMIT_SECONDS, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return Error(unknown=f"not run within {_LIMIT_SECONDS:.0f} s")
    if child.returncode:
        lines = [line.strip() for line in child.stderr.splitlines() if line.strip()]
        return Error(unknown=(lines[-1] if lines else f"exit code {child.returncode}")[:200])
    return Error(**json.loads(child.stdout.splitlines()[-1]))


@functools.cache
def _judge() -> str:
    """A hash of the code that decides on inputs, errors and tolerances."""
    digest = hashlib.sha256()
    for folder in _JUDGE:
        for path in sorted((ROOT / "harness" / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    for name in ("peers_errors.py", "peers_compile.py"):
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()[:12]


def place(task: Task) -> Path:
    """The task's path in the cache. Tasks of one program share it: a task with 16 heads has the path of the task with
    one head.
    """
    problem = peers_problems.PROBLEMS[task.problem.name.removesuffix("16")]
    task_place = dataclasses.replace(task, problem=problem).place
    return task_place.with_name(task_place.name + ".json")


def newest(task: Task, inputs: int, cache: Path) -> Error | None:
    """The error on the most inputs, or on `inputs` if that is not 0; None if the task was not run with this judge."""
    counts = [int(path.name) for path in (cache / "errors" / _judge()).glob("*") if path.name.isdigit()]
    input_counts = [inputs] if inputs else sorted(counts, reverse=True)
    return next(
        (task_error for count in input_counts if (task_error := cached_error(task, count, cache)) is not None), None
    )


def _path(task: Task, inputs: int, cache: Path) -> Path:
    return cache / "errors" / _judge() / f"{inputs}" / place(task)


def text(task_error: Error | None, not_run: str) -> str:
    """The error for the page's table."""
    if task_error is None:
        return not_run
    if task_error.worst is None:
        return f"unknown: {task_error.unknown}"
    return f"{task_error.worst:.2f}" if math.isfinite(task_error.worst) else "not finite"


# --- in the child ------------------------------------------------------------------------------


def worst_error(chip_name: str, contender: str, options: Mapping[str, str], inputs: int) -> Error:
    """Traces the contender, runs it on `inputs` draws of the problem's space and returns the worst of its errors."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from peers_compile import CONTENDERS, HEAD_DIM

    from harness import operators
    from harness.hardware import chip as chip_named
    from harness.judge.evaluate.interpret import interpretation

    chip = chip_named(chip_name)
    heads, kv_heads, sequence = (int(options[name]) for name in ("heads", "kv_heads", "sequence"))
    problem = operators.Attention(
        heads=heads, kv_heads=kv_heads, sequence=sequence, head_dim=HEAD_DIM, causal=options["causal"] == "1"
    )
    counts = (heads, kv_heads, kv_heads)
    shapes = tuple(jax.ShapeDtypeStruct((count, sequence, HEAD_DIM), jnp.bfloat16) for count in counts)
    with asked_device.aiming_at(chip):
        closed = jax.make_jaxpr(CONTENDERS[contender](dict(options)))(*shapes)
        exported = interpretation.export(closed, shapes, "cpu", chip)
    program = jax.jit(exported.call)
    family = problem.families(full=True)[0]
    largest_error = Error(worst=0.0, inputs=inputs)
    for seed in range(inputs):
        arrays = problem.make_inputs(family, seed)
        operands = [array.reshape(shape.shape) for array, shape in zip(arrays, shapes, strict=True)]
        (out,) = jax.tree.leaves(jax.block_until_ready(program(*operands)))
        out = np.asarray(out).reshape(problem.statement().outputs[0].shape)
        check, _ = operators.check(problem, arrays, out, family=family, mode="full", seed=seed)
        part = math.inf if check.error is None or not check.tolerance else check.error / check.tolerance
        assert largest_error.worst is not None
        if part > largest_error.worst:
            largest_error = dataclasses.replace(largest_error, worst=part, family=family, seed=seed)
    return largest_error


def main(inputs: str, chip: str, contender: str, *words: str) -> int:
    """Prints the worst error as JSON. A contender that cannot be interpreted raises its own exception."""
    options = dict(word.split("=", 1) for word in words)
    print(json.dumps(dataclasses.asdict(worst_error(chip, contender, options, int(inputs)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
