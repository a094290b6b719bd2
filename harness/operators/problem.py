"""The methods of every problem: its statement, its inputs, and the correct outputs with their allowed error."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from harness.operators.probes import Probe
from harness.records import Statement

# The element type is Any, because numpy's types do not know ml_dtypes' bfloat16.
Values: TypeAlias = NDArray[Any]
Rows: TypeAlias = NDArray[np.int64]
Exact: TypeAlias = NDArray[np.float64]


@runtime_checkable
class Problem(Protocol):
    """One operation at one shape.

    Outputs are compared row by row; a row is an index into `output.reshape(-1, output.shape[-1])`. Several outputs
    are compared side by side: each is `output.reshape(rows, -1)`, where `rows` is the number of rows of the output that
    has the fewest. The three numerical methods return `[len(rows), columns of all outputs together]` float64.
    """

    def statement(self) -> Statement:
        """The operation and its arrays, as they are recorded."""

    def families(self, full: bool) -> tuple[str, ...]:
        """The input families that a kernel must pass at the contest's full shape, or at a reduced shape."""

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """Inputs in the order of `statement().inputs`; equal seeds give equal inputs.

        Raises ValueError for an unknown family.
        """

    def reduced(self) -> Iterator["Problem"]:
        """The same operation at shapes smaller than this one, in increasing size."""

    def second_shape(self, small: Any) -> "Problem | None":
        """A shape near `small` (a reduced shape) with other proportions; None if no such shape is smaller."""

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Changes of inputs, and the elements that they move, at the contest's full shape or at a reduced shape."""

    def sample_rows(self, seed: int) -> Rows:
        """The rows that are compared, sorted and distinct; all rows if that is cheap."""

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """The right outputs, computed in float64 from the rounded inputs."""

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """The outputs of a plain implementation that rounds where the problem's dtype makes an honest kernel round."""

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """The standard deviation of each element from an honest kernel's roundings; 0 only in exact outputs."""
