"""Collectives by themselves: all-gather, which is exact, and reduce-scatter and all-reduce, which add up in float32."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from harness.operators import textures
from harness.operators.axes import axis
from harness.operators.blocks import around, drawn_block, turned
from harness.operators.collectives.over_chips import AXIS, OverChips, Split
from harness.operators.controls import Answer, rounded
from harness.operators.exact import ExactAnswers, any_finite
from harness.operators.fields import require_member
from harness.operators.probes import Part, Probe, Region, probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.rounding import DTYPES, deviation, sum_variance
from harness.operators.space import DRAWN, RECIPE, generator
from harness.records import Array, Statement, Work

# Terms of two chips that cancel are this many times as large as the rest: a sum in bfloat16 (8 bits) loses all of the
# rest.
_CANCELLED = 2.0**10
# The kind of each row of the composite, by its position modulo 4, counted from a drawn place.
_COMPOSITE = ("normal", "far-values", "normal", "cancelling")
# The most elements of x that a survey computes at a time.
_PART = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collective(OverChips, textures.Textured):
    """A collective with one input x and one output y [rows, columns], to which all chips contribute."""

    splits: ClassVar[tuple[Split, Split]]
    what: ClassVar[str]
    own_families: ClassVar[tuple[str, ...]] = ("normal", "far-values", "cancelling")
    # The most elements of x that one check reads: all of x in the templates' problems.
    checked = 1 << 24
    rows: int = field(metadata=axis(shortest=256))
    columns: int
    chips: int = 4

    @property
    @abstractmethod
    def dtype(self) -> str:
        """The dtype of both arrays."""

    @property
    @abstractmethod
    def _shape(self) -> tuple[int, ...]:
        """The shape of x."""

    @property
    @abstractmethod
    def _moved(self) -> int:
        """The number of times that an element of y has to be sent to a chip, summed over all chips."""

    @property
    @abstractmethod
    def _operations(self) -> int:
        """The operations for each element of y, summed over all chips."""

    def work(self) -> Work:
        """The useful work of one chip, an even share: its part of x read once and its part of y written once."""
        elements, size = self.rows * self.columns, DTYPES[self.dtype].itemsize
        read = int(np.prod(self._shape)) // self.chips
        written = elements // (self.chips if AXIS in self.splits[1] else 1)
        return Work(
            matmul_flops=0,
            vector_flops=self._operations * elements // self.chips,
            minimum_hbm_bytes=(read + written) * size,
            link_bytes=self._moved * elements // self.chips * size,
        )

    def statement(self) -> Statement:
        whole = Statement(
            operation=self.operation,
            title=f"{self.what}, {self.rows} rows of {self.columns}, {self.dtype}",
            parameters=self.parameters,
            inputs=(Array(name="x", shape=self._shape, dtype=self.dtype),),
            outputs=(Array(name="y", shape=(self.rows, self.columns), dtype=self.dtype),),
            work=self.work(),
        )
        return self.over_chips(whole, self.splits)

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """x of the named family. Raises ValueError for one that does not exist.

        normal: N(0, 1). far-values: N(c, 1) with c near 100 or -100, different in every column. cancelling: N(0, 1); in
        reductions, large numbers are added on the first chip and subtracted on the last. composite: these by row.
        """
        dtype = DTYPES[self.dtype]
        if family.startswith((DRAWN, RECIPE)):
            made, _, _ = self._textured(family, seed)
            return (made[0].astype(dtype),)
        self.require_family(family)
        random = generator(family, seed)
        x = random.standard_normal(self._shape, dtype=np.float32)
        length = self._shape[-2]
        pattern = turned(_COMPOSITE, seed, length) if family == "composite" else (family,)
        kinds = np.array(pattern)[np.arange(length) % len(pattern)]
        x[..., kinds == "far-values", :] += textures.far_offsets(self.columns, random)
        opposed = kinds == "cancelling"
        if x.ndim > 2:
            large = _CANCELLED * random.standard_normal((int(opposed.sum()), self.columns), dtype=np.float32)
            x[0, opposed] += large
            x[-1, opposed] -= large
        return (x.astype(dtype),)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: each row of y must depend on its own row of x, on every chip that has it, and on no other row."""
        random = np.random.default_rng(np.random.SeedSequence((seed, self.rows)))
        family = "composite" if full else "normal"
        every, turned_rows = range(self.columns), drawn_block(self.rows, random)
        if len(self._shape) == 2:
            region = Region(array=0, ranges=(turned_rows, every), factor=-1.0)
            name = f"rows {turned_rows.start} to {turned_rows.stop - 1} of x"
            stays = _parts(around(turned_rows, self.rows), every)
            return (probe(name, family, [region], _parts([turned_rows], every), stays),)
        # Different rows change on each chip, so one run tests all chips. The period is odd, so that rows of every kind
        # change.
        period = (self.chips + 1) | 1
        places = [int(place) for place in random.permutation(period)]
        rows = [range(place, self.rows, period) for place in places]
        moved, left = rows[: self.chips], rows[self.chips :]
        places_of_chips = [(range(chip, chip + 1), some, every) for chip, some in enumerate(moved)]
        regions = [Region(array=0, ranges=ranges, factor=-1.0) for ranges in places_of_chips]
        name = f"rows of x, on each of {self.chips} chips others,"
        return (probe(name, family, regions, _parts(moved, every), _parts(left, every)),)

    @property
    def row_cost(self) -> int:
        """Elements of x for one row of y."""
        return int(np.prod(self._shape)) // self.rows

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[rows]`: the largest error of each row, in deviations."""
        off = np.empty(self.rows)
        size = max(1, _PART // self.row_cost)
        for start in range(0, self.rows, size):
            rows = np.arange(start, min(start + size, self.rows))
            error = np.abs(outputs[0][rows].astype(np.float64) - self.reference(inputs, rows))
            off[rows] = (error / np.maximum(self.rounding(inputs, rows), np.finfo(np.float32).tiny)).max(axis=1)
        return off

    @abstractmethod
    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """As in a Problem."""

    @abstractmethod
    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """As in a Problem."""


def _parts(rows: Sequence[range], columns: range) -> list[Part]:
    return [Part(rows=some, columns=columns) for some in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGather(ExactAnswers, _Collective):
    """y = x on every chip; before the call, each chip has only some rows of x. y is compared exactly."""

    operation = "all_gather"
    splits = ((AXIS, None), (None, None))
    what = "all-gather"
    own_families = ("normal", "far-values", "cancelling", "patterns")
    dtype: str = "bfloat16"

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.rows, self.columns)

    @property
    def _moved(self) -> int:
        return self.chips - 1

    @property
    def _operations(self) -> int:
        # Nothing is computed; one operation counts for each element that is read.
        return 1

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """x as in the other collectives, with one more family.

        patterns: any finite numbers of the dtype, of all magnitudes.
        """
        made = _Collective.make_inputs(self, "normal" if family == "patterns" else family, seed)
        if family != "patterns":
            return made
        return (any_finite(made[0], generator(family, seed)),)

    def exact(self) -> tuple[str, ...]:
        """The name of y, which is copied."""
        return ("y",)

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), columns]` float64: the rows of x."""
        return inputs[0][rows].astype(np.float64)

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: shards in the wrong places, and a missing shard."""
        shard = self.rows // self.chips
        return {
            "each shard in the place of the one before": lambda inputs, rows: self.reference(
                inputs, (rows + shard) % self.rows
            ),
            "the first shard left out": lambda inputs, rows: self.reference(
                inputs, np.where(rows < shard, rows + shard, rows)
            ),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reduction(_Collective):
    """y = the sum of x [chips, rows, columns] over chips, each of which has one term; float32, in any order.

    bfloat16 is refused: the result would depend on how often a partial sum is rounded on its way.
    """

    dtype: str = "float32"

    def require_fields(self) -> None:
        """Raises UsageError `bad-problem` if a size is invalid or not split evenly, or if dtype is not float32."""
        OverChips.require_fields(self)
        require_member(self.operation, "dtype", self.dtype, ["float32"])

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.chips, self.rows, self.columns)

    @property
    def _operations(self) -> int:
        return self.chips - 1

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), columns]` float64: the sums in float64."""
        sums: Exact = inputs[0][:, rows].sum(axis=0, dtype=np.float64)
        return sums

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), columns]` float64: added one chip after the other in float32."""
        sums: Exact = inputs[0][:, rows].sum(axis=0, dtype=np.float32).astype(np.float64)
        return sums

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), columns]`: the standard deviation of a float32 sum of one term per chip, by `sum_variance`."""
        terms = inputs[0][:, rows].astype(np.float64)
        return deviation(sum_variance(np.square(terms).sum(axis=0), terms.sum(axis=0), self.chips))

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: a term that is missing or counted twice, and sums that are not kept in float32."""

        def in_bfloat16(inputs: Sequence[Values], rows: Rows) -> Exact:
            sums = np.zeros((len(rows), self.columns))
            for term in inputs[0]:
                sums = rounded(sums + term[rows], "bfloat16")
            return sums

        return {
            "the last chip's term left out": lambda inputs, rows: self.reference((inputs[0][:-1],), rows),
            "the first chip's term added twice": lambda inputs, rows: self.reference(inputs, rows) + inputs[0][0, rows],
            "sums sent in bfloat16": in_bfloat16,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceScatter(_Reduction):
    """The rows of y are split over the chips: each chip receives every term of its rows once, alone or in a sum."""

    operation = "reduce_scatter"
    splits = ((AXIS, None, None), (AXIS, None))
    what = "reduce-scatter"

    @property
    def _moved(self) -> int:
        return self.chips - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(_Reduction):
    """Each chip gets all of y: an element is sent chips - 1 times to be added up, and as often to reach all chips."""

    operation = "all_reduce"
    splits = ((AXIS, None, None), (None, None))
    what = "all-reduce"

    @property
    def _moved(self) -> int:
        return 2 * (self.chips - 1)
