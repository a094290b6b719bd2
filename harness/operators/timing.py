"""The contents that a problem states for the tables among its inputs in timed calls.

The amount of a kernel's work depends on its tables (group sizes, pages, lengths), so a latency holds only for the
stated contents. These contents are an input family too, so that the timed calls are also checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from harness.errors import RatchetError
from harness.operators.problem import Problem, Values
from harness.records import Array

# The tables of each timing input: by the timing input's name, which also names an input family, then by table name.
Stated = Mapping[str, Mapping[str, Values]]


@runtime_checkable
class Timed(Protocol):
    """A problem with tables among its inputs."""

    def timing_inputs(self) -> Stated:
        """The contents of all tables in each kind of timed call; all kinds have the same weight in the latency."""


def timing_inputs(problem: Problem) -> Stated:
    """The timing inputs of a problem, after a check; empty for a problem without tables.

    Raises RatchetError `no-timing-inputs` if they are missing, `bad-timing-inputs` if they do not match the statement.
    """
    tables = {array.name: array for array in problem.statement().inputs if array.is_table}
    if not tables:
        return {}
    names = ", ".join(tables)
    stated = problem.timing_inputs() if isinstance(problem, Timed) else {}
    if not stated:
        raise RatchetError(
            "no-timing-inputs",
            f"expected timing_inputs() of the problem to state the contents of {names} in timed calls, got nothing: "
            "without them the latency of a kernel that reads them is unknown (docs/OPERATORS.md)",
        )
    families = problem.families(True)
    for name, contents in stated.items():
        if name not in families:
            raise _bad(
                f"expected timing input {name!r} to be an input family of the full shape too, so that the timed inputs "
                f"are also checked, got families {', '.join(families)}"
            )
        if contents.keys() != tables.keys():
            raise _bad(f"{name}: expected contents of {names}, got those of {', '.join(contents) or 'nothing'}")
        for table in tables.values():
            for complaint in complaints(table, contents[table.name]):
                raise _bad(f"{name}: {complaint}")
    return stated


def _bad(complaint: str) -> RatchetError:
    return RatchetError("bad-timing-inputs", f"timing_inputs(): {complaint}")


def complaints(table: Array, values: object) -> Iterator[str]:
    """Sentences about faults in the contents of a table."""
    if not isinstance(values, np.ndarray):
        yield f"expected {table.name} to be an array, got {type(values).__name__}"
    elif values.shape != table.shape:
        yield f"expected {table.name} of shape {list(table.shape)}, got {list(values.shape)}"
    elif values.dtype.name != table.dtype:
        yield f"expected {table.name} of dtype {table.dtype}, got {values.dtype.name}"
    else:
        outside = (table.low is not None and values < table.low) | (table.high is not None and values > table.high)
        if np.any(outside):
            place = tuple(int(index) for index in np.argwhere(outside)[0])
            yield (
                f"expected {table.name} to hold numbers from {table.low} to {table.high}, got {values[place]} in "
                f"{table.name}{list(place)}"
            )


def differing(problem: Problem, family: str, inputs: Sequence[Values]) -> str:
    """The name of a table in which these inputs differ from the timing input named `family`; "" if none differs."""
    stated = problem.timing_inputs().get(family) if isinstance(problem, Timed) else None
    for array, values in zip(problem.statement().inputs, inputs, strict=True):
        if stated is not None and array.is_table and not np.array_equal(stated[array.name], values):
            return array.name
    return ""
