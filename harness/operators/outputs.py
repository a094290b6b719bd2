"""All outputs of a problem seen as one matrix: row by row, those of several outputs beside each other."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from harness.records import Array, Statement


@runtime_checkable
class Padded(Protocol):
    """A problem whose outputs may have rows that nobody reads, where a batch is shorter than its array."""

    def statement(self) -> Statement:
        """As of a Problem."""

    def unused_rows(self, inputs: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """The rows that may hold anything, NaN too, in a call with these inputs."""


def as_read(
    problem: object, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]
) -> tuple[NDArray[Any], ...]:
    """The outputs with 0 in rows that nobody reads; as they are where they have not the shape that is stated."""
    rows = problem.unused_rows(inputs) if isinstance(problem, Padded) else ()
    if not isinstance(problem, Padded) or not len(rows):
        return tuple(outputs)
    stated = [output.shape for output in problem.statement().outputs]
    if [getattr(array, "shape", None) for array in outputs[: len(stated)]] != stated:
        return tuple(outputs)
    copies = tuple(np.array(array) for array in outputs[: len(stated)])
    for array in copies:
        in_rows(array)[rows] = 0
    # What follows is state.
    return (*copies, *outputs[len(stated) :])


def in_rows(array: NDArray[Any]) -> NDArray[Any]:
    """`[rows, columns]`: one output as it is compared."""
    return array.reshape(-1, array.shape[-1])


def spans(outputs: Sequence[Array]) -> Iterator[tuple[int, Array, slice]]:
    """Each output with its position and its columns of the whole."""
    start = 0
    for position, output in enumerate(outputs):
        stop = start + output.shape[-1]
        yield position, output, slice(start, stop)
        start = stop


def element(output: Array, row: int, column: int) -> str:
    """`o[0, 128, 5]`: the name of an element of one output, by its row and column there."""
    index = [*(int(part) for part in np.unravel_index(row, output.shape[:-1])), column]
    return f"{output.name}{index}"
