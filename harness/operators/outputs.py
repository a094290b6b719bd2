"""All outputs of a problem as one matrix, whose rows hold the rows of several outputs side by side.

The matrix has as many rows as the output with the fewest rows. If an output has n times as many rows, n successive rows
of that output stand side by side in one row of the matrix.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from harness.records import Array, Statement

Output = TypeVar("Output", Array, NDArray[Any])


@runtime_checkable
class Padded(Protocol):
    """A problem whose outputs may have rows that nobody reads, because a batch may be shorter than its array."""

    def statement(self) -> Statement:
        """As in a Problem."""

    def unused_rows(self, inputs: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """The rows that may hold anything, including NaN, in a call with these inputs."""


def as_read(
    problem: object, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]
) -> tuple[NDArray[Any], ...]:
    """The outputs with 0 in rows that nobody reads; unchanged if their shapes are not the stated ones."""
    rows = problem.unused_rows(inputs) if isinstance(problem, Padded) else ()
    if not isinstance(problem, Padded) or not len(rows):
        return tuple(outputs)
    stated = [output.shape for output in problem.statement().outputs]
    if [getattr(array, "shape", None) for array in outputs[: len(stated)]] != stated:
        return tuple(outputs)
    copies = tuple(np.array(array) for array in outputs[: len(stated)])
    count = row_count(copies)
    for array in copies:
        array.reshape(count, -1)[rows] = 0
    # The arrays after the outputs are state.
    return (*copies, *outputs[len(stated) :])


def in_rows(array: NDArray[Any]) -> NDArray[Any]:
    """One output as it is compared: `[rows, columns]`."""
    return array.reshape(-1, array.shape[-1])


def fewest_rows(outputs: Sequence[Output]) -> Output:
    """The output with the fewest rows, the first if there are several; `outputs` are stated or computed outputs."""
    return min(outputs, key=lambda output: prod(output.shape[:-1]))


def row_count(outputs: Sequence[Output]) -> int:
    """The number of rows of all outputs as one matrix."""
    return prod(fewest_rows(outputs).shape[:-1])


def side_by_side(outputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """All outputs side by side: `[rows, columns]`."""
    rows = row_count(outputs)
    return np.concatenate([array.reshape(rows, -1) for array in outputs], axis=1)


def by_itself(output: Array, rows: NDArray[np.int64], *values: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Rows of the matrix as rows of one output, and `values` in that output's own columns.

    Each of `values` is `[rows, the output's columns in the matrix]`.
    """
    count = values[0].shape[1] // output.shape[-1]
    places = (rows[:, None] * count + np.arange(count)).reshape(-1)
    return (places, *(some.reshape(-1, output.shape[-1]) for some in values))


def spans(outputs: Sequence[Array]) -> Iterator[tuple[int, Array, slice]]:
    """Each output with its position and its columns in the matrix of all outputs."""
    start, rows = 0, row_count(outputs)
    for position, output in enumerate(outputs):
        stop = start + prod(output.shape) // rows
        yield position, output, slice(start, stop)
        start = stop


def element(output: Array, row: int, column: int) -> str:
    """The name of an element of one output, such as `o[0, 128, 5]`, by its row and column in that output."""
    index = [*(int(part) for part in np.unravel_index(row, output.shape[:-1])), column]
    return f"{output.name}{index}"
