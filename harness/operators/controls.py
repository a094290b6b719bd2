"""Answers that are known to be wrong and that a contest must reject: null kernels and controls."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from harness.errors import RatchetError
from harness.operators.blocks import BLOCK, slices
from harness.operators.exact import numpy_dtype
from harness.operators.outputs import in_rows, row_count, spans
from harness.operators.problem import Exact, Problem, Rows, Values
from harness.operators.suite import Member, Suite
from harness.operators.tolerance import Errors, errors
from harness.records import Array

# A function of inputs and rows: the outputs at these rows, side by side, float64 `[rows, columns]`.
Answer = Callable[[Sequence[Values], Rows], Exact]
# Kernels add up at least this many terms before they round a sum.
_ADDED = 64
# With fewer terms, a sum that is rounded after each block errs as little as one that is rounded at the end.
FEWEST_TERMS = 4 * _ADDED
_SEED = 11
# The most rows that are compared; more rows show nothing new.
_MOST_ROWS = 256


@runtime_checkable
class Controlled(Protocol):
    """A problem that states wrong answers, which its checks must reject."""

    def controls(self) -> Mapping[str, Answer]:
        """The exact answers of kernels with a single fault, by the fault's name."""


def require_strong(problem: Problem | Suite) -> None:
    """Raises RatchetError `weak-contest` if a null kernel or a control passes with every family of inputs."""
    members = problem.members if isinstance(problem, Suite) else (Member(name="", problem=problem),)
    for member in members:
        passing = _known_weaknesses(member.problem)  # type: ignore[arg-type]  # a frozen dataclass can be hashed
        refuse_weak(passing, f"{member.name}: " * bool(member.name))


def refuse_weak(passing: Sequence[str], where: str = "") -> None:
    """Raises RatchetError `weak-contest` if `passing`, the result of `weaknesses`, names an answer."""
    if passing:
        raise RatchetError(
            "weak-contest",
            f"{where}expected a contest that rejects wrong answers, but these pass with every family of inputs: "
            f"{'; '.join(passing)}. Change the constants of prepare.py, or its inputs and tolerance, until they fail",
        )


# Cached because a search judges many kernels of one contest; its problem, a frozen dataclass, can be hashed.
@cache
def _known_weaknesses(problem: Any) -> tuple[str, ...]:
    return weaknesses(problem)


def weaknesses(problem: Problem) -> tuple[str, ...]:
    """The names of the wrong answers that pass with every family of inputs; empty if the checks reject all of them.

    Answers are tried at the smallest of the reduced shapes.
    """
    small = next(iter(problem.reduced()), problem)
    left = every_answer(small)
    total = row_count(small.statement().outputs)
    rows = np.sort(np.random.default_rng(_SEED).permutation(total)[:_MOST_ROWS])
    for family in dict.fromkeys((*problem.families(False), *problem.families(True))):
        if not left:
            break
        inputs = small.make_inputs(family, _SEED)
        right = errors(small, inputs, [np.zeros(output.shape) for output in small.statement().outputs], rows)
        left = {name: answer for name, answer in left.items() if passes(small, right, answer, inputs, rows)}
    return tuple(left)


def every_answer(problem: Problem) -> dict[str, Answer]:
    """All null kernels and controls of a problem, by name."""
    return dict(_null_kernels(problem)) | dict(problem.controls() if isinstance(problem, Controlled) else {})


def passes(problem: Problem, right: Sequence[Errors], answer: Answer, inputs: Sequence[Values], rows: Rows) -> bool:
    """True if an answer is within the tolerance of all outputs."""
    with np.errstate(all="ignore"):
        numbers = answer(inputs, rows)
    outputs = spans(problem.statement().outputs)
    return bool(np.isfinite(numbers).all()) and all(
        replace(output_errors, got=rounded(numbers[:, columns], output.dtype)).passed
        for output_errors, (_, output, columns) in zip(right, outputs, strict=True)
    )


def rounded(values: NDArray[Any], dtype: str) -> Exact:
    """The values rounded to this dtype."""
    return values.astype(numpy_dtype(dtype)).astype(np.float64)


def _null_kernels(problem: Problem) -> Iterator[tuple[str, Answer]]:
    """The names and answers of kernels that do not compute the operation."""

    def mean(inputs: Sequence[Values], rows: Rows) -> Exact:
        right = problem.reference(inputs, rows)
        return np.broadcast_to(right.mean(axis=0), right.shape)

    def first_block(inputs: Sequence[Values], rows: Rows) -> Exact:
        right = problem.reference(inputs, rows)
        return np.resize(right[: min(BLOCK, len(right) // 2)], right.shape)

    outputs = problem.statement().outputs
    yield "zeros", lambda inputs, rows: np.zeros_like(problem.reference(inputs, rows))
    if row_count(outputs) > 1:
        yield "the mean of all rows in each", mean
        yield "the first block repeated", first_block
    for place, array in enumerate(problem.statement().inputs):
        # The splits must be equal too: a null kernel cannot return data that only other chips hold.
        if all(_kind(array) == _kind(output) for output in outputs):
            yield f"the input {array.name} passed on", _passed_on(place, len(outputs))


def _kind(array: Array) -> tuple[object, ...]:
    return array.shape, array.dtype, array.split


def _passed_on(place: int, count: int) -> Answer:
    def answer(inputs: Sequence[Values], rows: Rows) -> Exact:
        some = in_rows(inputs[place])[rows].astype(np.float64)
        return np.concatenate([some] * count, axis=1)

    return answer


def added_in_bfloat16(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """The product A B, rounded to bfloat16 after every 64 terms of a sum."""
    sums = np.zeros((len(a), b.shape[1]))
    for part in slices(len(b), _ADDED):
        sums = rounded(sums + a[:, part].astype(np.float64) @ b[part].astype(np.float64), "bfloat16")
    return sums


def without_the_last(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """The product A B without the last 64 terms of each sum; sums of fewer than 128 terms lose their last half."""
    count = max(len(b) - _ADDED, len(b) // 2)
    product: NDArray[Any] = a[:, :count] @ b[:count]
    return product
