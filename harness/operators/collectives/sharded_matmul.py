"""Matrix products whose operands are split over chips: gathered before the product, or summed and split after it."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar

from harness.errors import UsageError
from harness.operators.axes import axis
from harness.operators.products.matmul import Matmul
from harness.operators.rounding import DTYPES
from harness.records import Statement, Work

# The only axis of the mesh.
AXIS = "x"
Split = tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedMatmul(Matmul):
    """C [m, n] = A [m, k] B [k, n] on `chips` chips in a mesh with the axis x, products added up in float32.

    Raises UsageError `bad-problem` for sizes that the chips do not divide.
    """

    splits: ClassVar[tuple[Split, Split, Split]]
    what: ClassVar[str]
    m: int = field(metadata=axis(shortest=256))
    n: int = field(metadata=axis(shortest=512))
    k: int = field(metadata=axis(shortest=512))
    chips: int = 4

    def require_fields(self) -> None:
        """Raises UsageError `bad-problem` where a size does not exist, or is not split evenly."""
        Matmul.require_fields(self)
        if self.chips < 2 or any(length % self.chips for length in self._split_lengths):
            raise UsageError(
                "bad-problem",
                f"{self.operation}: expected 2 chips or more, which divide {self.m} x {self.n} x {self.k} (m x n x k) "
                f"where they split it, got {self.chips}",
            )

    @property
    @abstractmethod
    def _split_lengths(self) -> tuple[int, ...]:
        """The lengths that are divided by the number of chips."""

    @property
    @abstractmethod
    def _incoming_elements(self) -> int:
        """How many elements have to come to each chip from others."""

    def work(self) -> Work:
        """The useful work of one chip: its share of the products; its shards read, or written, once."""
        whole = Matmul.work(self)
        return replace(
            whole,
            matmul_flops=whole.matmul_flops // self.chips,
            minimum_hbm_bytes=whole.minimum_hbm_bytes // self.chips,
            link_bytes=self._incoming_elements * DTYPES[self.dtype].itemsize,
        )

    def statement(self) -> Statement:
        """This problem in words and numbers."""
        whole = Matmul.statement(self)
        a, b, c = self.splits
        return replace(
            whole,
            title=f"{self.what}, {self.m} x {self.n} x {self.k} (m x n x k), {self.dtype}, on {self.chips} chips",
            inputs=tuple(replace(array, split=split) for array, split in zip(whole.inputs, (a, b), strict=True)),
            outputs=tuple(replace(array, split=c) for array in whole.outputs),
            mesh=((AXIS, self.chips),),
            work=self.work(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGatherMatmul(ShardedMatmul):
    """Rows of A are split over the chips, and columns of B and of C: each chip needs all of A."""

    operation = "all_gather_matmul"
    splits = ((AXIS, None), (None, AXIS), (None, AXIS))
    what = "all-gather of A and matmul C = A B"

    @property
    def _split_lengths(self) -> tuple[int, ...]:
        return (self.m, self.n)

    @property
    def _incoming_elements(self) -> int:
        return self.m * self.k * (self.chips - 1) // self.chips


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulReduceScatter(ShardedMatmul):
    """Columns of A and rows of B are split over the chips, and rows of C: each chip has a part of every sum."""

    operation = "matmul_reduce_scatter"
    splits = ((None, AXIS), (AXIS, None), (AXIS, None))
    what = "matmul C = A B and reduce-scatter of C"

    @property
    def _split_lengths(self) -> tuple[int, ...]:
        return (self.m, self.k)

    @property
    def _incoming_elements(self) -> int:
        return self.m * self.n * (self.chips - 1) // self.chips
