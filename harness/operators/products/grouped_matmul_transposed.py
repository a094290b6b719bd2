"""Grouped matrix product of transposed rows: one matrix for each group, like the gradient of a ragged dot's weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.operators import group_sizes
from harness.operators.blocks import BLOCK, shifted_blocks, spans, turned
from harness.operators.controls import Answer
from harness.operators.probes import Part, Probe, Region, probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.products.grouped_matmul import GroupedMatmul
from harness.operators.products.matmul import COMPOSITE, Matmul
from harness.operators.rounding import DTYPES
from harness.operators.survey import checksum_errors
from harness.records import Array, Statement, Work

_LHS, _RHS = range(2)
# A change of sign keeps every magnitude.
_TURNED = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedMatmulTransposed(GroupedMatmul):
    """OUT [groups, k, n]: for each group A^T B, where A is the group's rows of LHS [m, k], B its rows of RHS [m, n].

    Rows are sorted by group as in a GroupedMatmul. This is the gradient of that product with respect to its weights:
    LHS is the same, and RHS is the gradient of its output. The matrix of a group without rows is zero. Families, sizes
    and reduced shapes are those of a GroupedMatmul.
    """

    def work(self) -> Work:
        """The useful work of one call, for any sizes: 2 FLOPs per multiply-add; each array moved once."""
        elements = self.m * (self.k + self.n) + self.groups * self.k * self.n
        return Work(
            matmul_flops=2 * self.m * self.n * self.k,
            vector_flops=0,
            minimum_hbm_bytes=elements * DTYPES[self.dtype].itemsize + 4 * self.groups,
        )

    def statement(self) -> Statement:
        lhs, rhs, sizes = (
            Array(name="lhs", shape=(self.m, self.k), dtype=self.dtype),
            Array(name="rhs", shape=(self.m, self.n), dtype=self.dtype),
            Array(name="group_sizes", shape=(self.groups,), dtype="int32", low=0, high=self.m),
        )
        return replace(
            GroupedMatmul.statement(self),
            operation="grouped_matmul_transposed",
            title=f"transposed grouped matmul, {self.m} rows in {self.groups} groups, {self.k} x {self.n} (k x n), "
            f"{self.dtype}",
            inputs=(lhs, rhs, sizes),
            outputs=(Array(name="out", shape=(self.groups, self.k, self.n), dtype=self.dtype),),
            work=self.work(),
        )

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """LHS, RHS and the sizes of a family or recipe of a GroupedMatmul. Raises ValueError for any other.

        Values are those of a Matmul that sums over the rows. In the family cancelling there is only one group, so that
        terms cancel within it.
        """
        turned_lhs, rhs = self.lender.make_inputs(self._values(family), seed)
        return np.ascontiguousarray(turned_lhs.T), rhs, self._group_sizes(family, seed)

    def _group_sizes(self, family: str, seed: int) -> group_sizes.Sizes:
        if family == "cancelling":
            return group_sizes.one_group(self.m, self.groups, np.random.default_rng((seed, self.groups)))
        return GroupedMatmul._group_sizes(self, family, seed)

    @property
    def lender(self) -> Matmul:
        """The product of all columns of LHS with all of RHS, summed over all rows."""
        return Matmul(m=self.k, n=self.n, k=self.m, dtype=self.dtype)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: each matrix must depend on every row of LHS and RHS in its group, and on no other rows."""
        families = ("composite",) if full else ("empty-groups", "single-rows")
        return tuple(make(family, seed) for family in families for make in (self._every_row, self._own_rows))

    def _every_row(self, family: str, seed: int) -> Probe:
        """A probe that negates different columns of LHS in each block of rows.

        In the matrices of the block's groups, the rows with the numbers of these columns move.
        """
        random = np.random.default_rng(np.random.SeedSequence((seed, self.m, self.k)))
        parts = shifted_blocks(self.m, max(2, self.k // 8), BLOCK // 2, random)
        # Where a needle outweighs all other terms of a row, a block without a needle moves nothing.
        pattern = turned(COMPOSITE, seed, self.k) if family == "composite" else ("normal",)
        period = len(parts) | 1
        places = [int(place) for place in random.permutation(period)]
        step = period * len(pattern)
        groups = tuple(spans([0, *np.cumsum(self._group_sizes(family, seed)).tolist()]))
        regions, moves, stays = [], [], []
        for place, part in zip(places, parts, strict=False):
            columns = range(place, self.k, period)
            regions.append(Region(array=_LHS, ranges=(part, columns), factor=_TURNED))
            for group, rows in enumerate(groups):
                if range(max(rows.start, part.start), min(rows.stop, part.stop)):
                    # The first column of each kind that weighs all terms equally; the others are `step` apart.
                    evens = [column for column in columns[: len(pattern)] if pattern[column % len(pattern)] == "normal"]
                    moves += [self._part(group, range(column, self.k, step)) for column in evens]
                else:
                    stays.append(self._part(group, columns))
        name = f"columns of lhs, each of {len(parts)} blocks of rows in columns of its own,"
        return probe(name, family, [region for region in regions if region.ranges[1]], moves, stays)

    def _own_rows(self, family: str, seed: int) -> Probe:
        """A probe that negates different columns of RHS for each group: only these columns of the group's OUT move."""
        regions, moves, stays = [], [], []
        for group, rows, columns, others in self._columns_of_groups(family, seed):
            stays += [self._part(group, range(self.k), other) for other in others]
            if rows:
                regions.append(Region(array=_RHS, ranges=(rows, columns), factor=_TURNED))
                moves.append(self._part(group, range(self.k), columns))
            else:
                stays.append(self._part(group, range(self.k), columns))
        return probe("rows of all groups in rhs, each in columns of its own,", family, regions, moves, stays)

    def _part(self, group: int, rows: range, columns: range | None = None) -> Part:
        """These rows of a group's matrix."""
        first = group * self.k
        places = range(first + rows.start, first + rows.stop, rows.step)
        return Part(rows=places, columns=range(self.n) if columns is None else columns)

    def _controls_of_groups(self) -> dict[str, Answer]:
        def whole(inputs: Sequence[Values], rows: Rows) -> Exact:
            lhs, rhs, _ = inputs
            return lhs[:, rows % self.k].T.astype(np.float64) @ rhs.astype(np.float64)

        return {"all rows in every group": whole}

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[groups * k]`: the error of each row in deviations, by a checksum of every 128 columns."""
        lhs, rhs, sizes = inputs
        groups = [slice(rows.start, rows.stop) for rows in spans([0, *np.cumsum(sizes).tolist()])]
        return np.concatenate(
            [
                checksum_errors(lhs[group_rows].T, rhs[group_rows], matrix, self.dtype, seed)
                for group_rows, matrix in zip(groups, outputs[0], strict=True)
            ]
        )

    def _by_group(self, inputs: Sequence[Values], rows: Rows, dtype: Any, function: Callable[..., Values]) -> Exact:
        """These rows of OUT: `function` of the group's rows of LHS, transposed, and of RHS.

        `rounding` follows from this method as in a GroupedMatmul: an element is a sum over the rows of its group, added
        up in float32 and rounded once; masked rows add nothing to it.
        """
        lhs, rhs, sizes = inputs
        group_of, row_of = np.divmod(rows, self.k)
        result = np.empty((len(rows), self.n))
        for group, group_rows in enumerate(spans([0, *np.cumsum(sizes).tolist()])):
            places = np.flatnonzero(group_of == group)
            if len(places):
                some = slice(group_rows.start, group_rows.stop)
                result[places] = function(lhs[some, row_of[places]].T.astype(dtype), rhs[some].astype(dtype))
        return result
