"""Matrix products over several chips: A is gathered before the product, or C is summed and scattered after it."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar

from harness.operators.axes import axis
from harness.operators.collectives.over_chips import AXIS, OverChips, Split
from harness.operators.products.matmul import Matmul
from harness.operators.rounding import DTYPES
from harness.records import Statement, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedMatmul(OverChips, Matmul):
    """C [m, n] = A [m, k] B [k, n] on `chips` chips in a mesh with the axis x, products added up in float32.

    Raises UsageError `bad-problem` for sizes that the chips do not divide.
    """

    splits: ClassVar[tuple[Split, Split, Split]]
    what: ClassVar[str]
    m: int = field(metadata=axis(shortest=256))
    n: int = field(metadata=axis(shortest=512))
    k: int = field(metadata=axis(shortest=512))
    chips: int = 4

    @property
    @abstractmethod
    def _incoming_elements(self) -> int:
        """The number of elements that each chip has to receive from others."""

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
        whole = Matmul.statement(self)
        title = f"{self.what}, {self.m} x {self.n} x {self.k} (m x n x k), {self.dtype}"
        return self.over_chips(replace(whole, title=title), self.splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGatherMatmul(ShardedMatmul):
    """Rows of A and columns of B and C are split over the chips: each chip needs all of A."""

    operation = "all_gather_matmul"
    splits = ((AXIS, None), (None, AXIS), (None, AXIS))
    what = "all-gather of A and matmul C = A B"

    @property
    def _incoming_elements(self) -> int:
        return self.m * self.k * (self.chips - 1) // self.chips


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulReduceScatter(ShardedMatmul):
    """Columns of A, rows of B and rows of C are split over the chips: each chip has a part of every sum."""

    operation = "matmul_reduce_scatter"
    splits = ((None, AXIS), (AXIS, None), (AXIS, None))
    what = "matmul C = A B and reduce-scatter of C"

    @property
    def _incoming_elements(self) -> int:
        return self.m * self.n * (self.chips - 1) // self.chips
