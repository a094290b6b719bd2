"""The problem as the judge states it."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

# Default name of the judged function in kernel.py; a suite may name another function.
KERNEL = "kernel_fn"
Parameter = str | int | float | bool
_TABLES = ("int16", "uint16", "int32", "uint32", "int64", "uint64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """Name, shape and dtype (numpy/ml_dtypes name, such as `bfloat16`) of one input or output.

    `low` and `high` are the least and the largest value that a table (see `is_table`) may hold; None for other arrays.
    `split` names for each dimension the axis of the mesh that it is split over; () for one chip.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: int | None = None
    high: int | None = None
    split: tuple[str | None, ...] = ()

    @property
    def is_table(self) -> bool:
        """True if a kernel may branch on its values: integers of 16 bits and more. Narrower integers are data."""
        return self.dtype in _TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Useful work of one call on one chip, as the judge counts it: a causal kernel gets credit for unmasked pairs only.

    `exponentials` counts the exponentials without which the outputs cannot be computed. `matmul_dtype` is the dtype of
    the matmuls' operands (numpy/ml_dtypes name): utilisation and roofline refer to the chip's peak for it. `link_bytes`
    are the bytes that each chip must receive from other chips.
    """

    matmul_flops: int
    vector_flops: int
    minimum_hbm_bytes: int
    exponentials: int = 0
    matmul_dtype: str = "bfloat16"
    link_bytes: int = 0

    @property
    def flops(self) -> int:
        """All useful FLOPs, the number behind `tflops`, `util` and `score`."""
        return self.matmul_flops + self.vector_flops


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCount:
    """The number of operations of a kind in an honest kernel's body: from `low` to `high`.

    `counter` is a counter of the Mosaic level. `more` and `fewer` say what a larger or smaller count means. A body that
    is unrolled n times has n times as many operations.
    """

    counter: Literal["matmul", "exp", "reduction"]
    low: int
    high: int
    more: str
    fewer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A problem as it is recorded: the computation, in the words and numbers of the judge.

    - `updates`: the names of inputs that are state, which a call changes in place. A kernel returns each of these, in
      its shape and dtype, after the outputs.
    - `overwrites`: the names of inputs whose memory a caller donates for the last outputs, which have the same shapes
      and dtypes.
    - `mesh`: the axes, with their sizes, of the chips on which one call runs. Arrays span all chips together; `work` is
      for one chip.
    - `members`: the problems of a suite. `may_lose` is the fraction by which each member's time may increase. The suite
      itself has no inputs and outputs, and its work is the weighted geometric mean of its members' work.

    A row is an index into `output.reshape(-1, output.shape[-1])`. The number of rows of each output is a multiple of
    the smallest number of rows.
    """

    operation: str
    title: str
    parameters: tuple[tuple[str, Parameter], ...]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    work: Work
    expected: tuple[ExpectedCount, ...] = ()
    members: "tuple[SuiteMember, ...] | None" = None
    may_lose: float | None = None
    updates: tuple[str, ...] = ()
    mesh: tuple[tuple[str, int], ...] = ()
    overwrites: tuple[str, ...] = ()

    def shard(self, array: Array) -> tuple[int, ...]:
        """The per-device shape of one of the problem's arrays."""
        sizes = dict(self.mesh)
        split = array.split or (None,) * len(array.shape)
        return tuple(length // sizes.get(axis or "", 1) for length, axis in zip(array.shape, split, strict=True))

    @property
    def results(self) -> tuple[Array, ...]:
        """All that a kernel returns: the outputs, then the state."""
        inputs = {array.name: array for array in self.inputs}
        return (*self.outputs, *(inputs[name] for name in self.updates))

    @property
    def donated(self) -> tuple[int, ...]:
        """The positions of the inputs whose memory a caller donates, in the order of the last results."""
        names = [array.name for array in self.inputs]
        return tuple(names.index(name) for name in (*self.overwrites, *self.updates))

    def mean(self, values: Iterable[float]) -> float:
        """The geometric mean of `values`, one for each member of the suite, weighted as in the suite's score."""
        return weighted_geometric_mean(values, [member.weight for member in self.members or ()])


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteMember:
    """A problem of a suite: its name in reports, share of the score (the shares sum to 1), function in kernel.py."""

    name: str
    weight: float
    function: str
    statement: Statement


def weighted_geometric_mean(values: Iterable[float], weights: Iterable[float]) -> float:
    """The weighted geometric mean; 0 if one of the values is 0 or less."""
    numbers = [*values]
    return 0.0 if min(numbers) <= 0 else math.exp(statistics.fmean(map(math.log, numbers), [*weights]))
