"""State that a call changes in place, such as a cache. All elements are compared, also those that must not change."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from harness.operators.outputs import in_rows
from harness.operators.probes import counted
from harness.operators.problem import Problem, Values
from harness.operators.wrong_parts import wrong_parts
from harness.records import Check, Failure, Mode, Statement


@runtime_checkable
class Stateful(Protocol):
    """A problem with inputs that are state: `Statement.updates` names them."""

    def statement(self) -> Statement:
        """As in a Problem."""

    def new_state(self, inputs: Sequence[Values]) -> tuple[Values, ...]:
        """The exact contents of each state array after a call with these inputs."""


def new_state(problem: object, inputs: Sequence[Values]) -> tuple[Values, ...]:
    """The states after a call, as Stateful.new_state gives them; empty for a problem without state."""
    return problem.new_state(inputs) if isinstance(problem, Stateful) else ()


def check_state(
    problem: Problem, inputs: Sequence[Values], state: Sequence[Values], *, family: str, mode: Mode, seed: int
) -> list[tuple[Check, Failure | None]]:
    """The check of each state array, with a Failure `wrong-state` if any bit differs.

    `state` has the arrays after the call, already of the stated shapes and dtypes.
    """
    statement = problem.statement()
    places = [[array.name for array in statement.inputs].index(name) for name in statement.updates]
    checks = []
    for place, expected, got in zip(places, new_state(problem, inputs), state, strict=True):
        word = np.dtype(f"u{expected.itemsize}")
        differs = in_rows(np.ascontiguousarray(expected).view(word) != np.ascontiguousarray(got).view(word))
        count = int(np.count_nonzero(differs))
        check = counted("state", count, differs.size, expected.shape, family, mode, seed)
        failure = None
        if count:
            first = tuple(int(index) for index in np.unravel_index(int(np.argmax(differs)), expected.shape))
            is_left = expected.view(word)[first] == np.ascontiguousarray(inputs[place]).view(word)[first]
            changed = statement.inputs[place]
            where = wrong_parts((changed,), differs)
            failure = Failure(
                stage="correctness",
                kind="wrong-state",
                message=f"wrong state in {where}: {changed.name}{list(first)} is {float(got[first]):.6g}, expected "
                f"{float(expected[first]):.6g}, the value {'before the call' if is_left else 'that this call writes'} "
                f"(inputs: {family}, seed {seed})",
                detail=(
                    f"{count} of {differs.size} elements differ; look at where each token is written, and whether "
                    "anything else is written"
                ),
            )
        checks.append((check, failure))
    return checks
