"""Grouped matrix product (ragged dot): rows of each group times that group's matrix; shapes, work, exact outputs."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.operators import group_sizes, space
from harness.operators.axes import Operator, axis
from harness.operators.blocks import around, spans, turned
from harness.operators.controls import FEWEST_TERMS, Answer, added_in_bfloat16, without_the_last
from harness.operators.probes import Part, Probe, Region, probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.products import probes as product_probes
from harness.operators.products.matmul import COMPOSITE, Matmul, expected
from harness.operators.rounding import DTYPES, product_deviation
from harness.operators.space import DRAWN
from harness.operators.survey import checksum_errors
from harness.operators.timing import Stated
from harness.records import Array, Statement, Work

# Kinds of group sizes, used with values N(0, 1), and kinds of values with the groups that they are used with.
_OF_SIZES = ("equal", "empty-groups", "one-group", "single-rows", "aligned", "whole-tiles", "crowded")
_OF_VALUES = {"needles": group_sizes.pairs, "far-values": group_sizes.all_but_one, "cancelling": group_sizes.unaligned}
_LHS, _RHS = range(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedMatmul(Operator, space.Borrowed):
    """OUT [m, n]: each row of LHS [m, k] times the matrix of its group in RHS [groups, k, n], all in `dtype`.

    The rows are sorted by group: the first group_sizes[0] of them belong to group 0, the next group_sizes[1] to
    group 1, and so on. Sizes are 0 or more, and sum to m. Products are added up in float32. The problem is timed with
    balanced and with skewed sizes (see `group_sizes`), and the latency is the mean of both. Raises UsageError
    `bad-problem` for invalid sizes.
    """

    operation = "grouped_matmul"
    # The most multiply-adds that one check computes for its rows, each four times: two seconds on one core.
    checked = 5 << 30
    m: int = field(metadata=axis(is_uneven=True))
    # Enough groups for an empty one, the first, the last, and one in between.
    groups: int = field(metadata=axis(few=4, fewer=3))
    k: int = field(metadata=axis(is_uneven=True))
    n: int = field(metadata=axis())
    dtype: str = "bfloat16"

    def work(self) -> Work:
        """The useful work of one call, for any sizes: 2 FLOPs per multiply-add.

        LHS and the sizes are read once, OUT is written once, and the matrices of groups that have rows are read once;
        the number of these matrices is the mean over the timed calls.
        """
        filled = np.mean([np.count_nonzero(make(self.m, self.groups)) for make in group_sizes.TIMED.values()])
        elements = self.m * (self.k + self.n) + math.floor(filled * self.k * self.n)
        return Work(
            matmul_flops=2 * self.m * self.n * self.k,
            vector_flops=0,
            minimum_hbm_bytes=elements * DTYPES[self.dtype].itemsize + 4 * self.groups,
        )

    def statement(self) -> Statement:
        return Statement(
            operation=self.operation,
            title=f"grouped matmul, {self.m} rows in {self.groups} groups, {self.k} x {self.n} (k x n), {self.dtype}",
            parameters=self.parameters,
            inputs=(
                Array(name="lhs", shape=(self.m, self.k), dtype=self.dtype),
                Array(name="rhs", shape=(self.groups, self.k, self.n), dtype=self.dtype),
                Array(name="group_sizes", shape=(self.groups,), dtype="int32", low=0, high=self.m),
            ),
            outputs=(Array(name="out", shape=(self.m, self.n), dtype=self.dtype),),
            work=self.work(),
            expected=expected("product"),
        )

    def timing_inputs(self) -> Stated:
        """The sizes of the groups in the calls that are timed."""
        return {name: {"group_sizes": make(self.m, self.groups)} for name, make in group_sizes.TIMED.items()}

    def families(self, full: bool) -> tuple[str, ...]:
        """The families: at the full shape a draw, timed and extreme sizes, a composite; else each kind, and draws."""
        if full:
            return (self._drawn_at_full, *group_sizes.TIMED, *group_sizes.AT_FULL_SHAPE, "composite")
        drawn = tuple(family for family in self.lender.families(False) if family.startswith(DRAWN))
        return (*group_sizes.TIMED, *_OF_SIZES, *_OF_VALUES, *drawn)

    @property
    def _drawn_at_full(self) -> str:
        """The drawn family of the full shape."""
        return self.lender.families(True)[0]

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """LHS, RHS and the sizes of the named family or recipe. Raises ValueError for a family that does not exist.

        balanced, skewed: sizes as timed, values N(0, 1). equal, empty-groups, one-group, single-rows, aligned,
        whole-tiles, crowded: sizes of this kind (see `group_sizes`), values N(0, 1). needles, far-values, cancelling:
        values as in a Matmul, groups that end anywhere; neighbouring pairs of groups (needles), or all groups but one
        (far-values), have equal sizes. Drawn families: values as in a Matmul, sizes of any of these
        kinds; whole-tiles sizes in the drawn family of the full shape. composite: values as in a Matmul, and crowded
        sizes, because no reduced shape has so many groups.
        """
        lhs, columns = self.lender.make_inputs(self._values(family), seed)
        # Every group gets some of the columns of each kind.
        rhs = np.ascontiguousarray(columns.reshape(self.k, self.n, self.groups).transpose(2, 0, 1))
        return lhs, rhs, self._group_sizes(family, seed)

    def _values(self, family: str) -> str:
        """The family of a Matmul from which the values are taken."""
        return "normal" if family in (*group_sizes.TIMED, *_OF_SIZES) else family

    def _group_sizes(self, family: str, seed: int) -> group_sizes.Sizes:
        if family in group_sizes.TIMED:
            return group_sizes.TIMED[family](self.m, self.groups)
        draws = {**_OF_VALUES, **{kind: group_sizes.DRAWN[kind] for kind in _OF_SIZES}}
        draws |= {"composite": group_sizes.crowded, self._drawn_at_full: group_sizes.whole_tiles}
        draw = draws.get(family, group_sizes.any_kind)
        return draw(self.m, self.groups, space.recipe_generator(f"sizes of {family}", seed))

    @property
    def lender(self) -> Matmul:
        """The product of all rows with the matrices of all groups; values are drawn from its space."""
        return Matmul(m=self.m, n=self.n * self.groups, k=self.k, dtype=self.dtype)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: each row must depend on its row of LHS, on all parts of k, and on its group's matrix and no other."""
        drawn = product_probes.Drawn(rows=self.m, columns=self.n, seed=seed)
        if full:
            even = tuple(kind == "normal" for kind in turned(COMPOSITE, seed, self.m))
            # In columns far from zero, the rounding of the sum may by chance hide the terms of a part.
            inner = drawn.inner("lhs", _LHS, self.k, "composite", kinds=even, columns=self.n - self.n // 8)
            return (inner, self._own_matrix("composite", seed))
        return (
            drawn.inner("lhs", _LHS, self.k, "empty-groups"),
            replace(drawn.some_rows("lhs", _LHS, self.k), family="empty-groups"),
            self._own_matrix("empty-groups", seed),
            self._own_matrix("single-rows", seed),
        )

    def _own_matrix(self, family: str, seed: int) -> Probe:
        """A probe that negates different columns of each group's matrix: its rows of OUT move in these columns only."""
        regions, moves, stays = [], [], []
        for group, rows, columns, others in self._columns_of_groups(family, seed):
            ranges = (range(group, group + 1), range(self.k), columns)
            regions.append(Region(array=_RHS, ranges=ranges, factor=-1.0))
            moves.append(Part(rows=rows, columns=columns))
            stays += [Part(rows=rows, columns=other) for other in others]
        return probe("matrices of all groups, each in columns of its own,", family, regions, moves, stays)

    def _columns_of_groups(self, family: str, seed: int) -> Iterator[tuple[int, range, range, tuple[range, range]]]:
        """Yields each group, its rows, some columns of OUT for the group, and all other columns."""
        count = min(self.groups, self.n)
        blocks = tuple(spans([part * self.n // count for part in range(count + 1)]))
        # Neighbouring groups have different columns, in an order that a kernel cannot foresee.
        order = np.random.default_rng((seed, count)).permutation(count)
        for group, rows in enumerate(spans([0, *np.cumsum(self._group_sizes(family, seed)).tolist()])):
            columns = blocks[order[group % count]]
            yield group, rows, columns, around(columns, self.n)

    def border_rows(self, inputs: Sequence[Values]) -> Rows:
        """The first and last row of each group that has rows."""
        ends = np.cumsum(inputs[2], dtype=np.int64)
        filled = inputs[2] > 0
        return np.union1d(ends[filled] - 1, (ends - inputs[2])[filled])

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]` float64: the products in float64, from the rounded inputs."""
        return self._by_group(inputs, rows, np.float64, lambda a, b: a @ b)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]` float64: added up in float32, rounded to dtype once."""
        return self._by_group(inputs, rows, np.float32, lambda a, b: (a @ b).astype(DTYPES[self.dtype]))

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]`: standard deviation of the output if every honest rounding were random.

        An element is a sum over k as in a Matmul, for any group: rows of other groups in its tile add nothing, because
        their terms are masked. So its variance is ulp(out)^2 / 12, from the output's rounding, plus the variance of the
        float32 sum over k (`product_deviation`).
        """
        return self._by_group(inputs, rows, np.float32, lambda a, b: product_deviation(a, b, self.dtype))

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: rows with another matrix than their group's, sums cut short or not kept in float32."""

        def multiplied(product: Callable[[Values, Values], Values]) -> Answer:
            return lambda inputs, rows: self._by_group(inputs, rows, np.float64, product)

        answers = {"the last part of a sum left out": multiplied(without_the_last)}
        if self.lender.k >= FEWEST_TERMS:
            answers["sums kept in bfloat16"] = multiplied(added_in_bfloat16)
        if self.groups > 1:
            answers["groups of equal size"] = lambda inputs, rows: self.reference(
                (*inputs[:2], group_sizes.equal(self.m, self.groups)), rows
            )
            answers |= self._controls_of_groups()
        return answers

    def _controls_of_groups(self) -> dict[str, Answer]:
        def first(inputs: Sequence[Values], rows: Rows) -> Exact:
            lhs, rhs, sizes = inputs
            return self.reference((lhs, np.broadcast_to(rhs[:1], rhs.shape), sizes), rows)

        return {"the first group's matrix for all": first}

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[m]`: the error of each row in deviations, by a checksum of every 128 columns."""
        lhs, rhs, sizes = inputs
        off = np.zeros(self.m)
        for group, rows in enumerate(spans([0, *np.cumsum(sizes).tolist()])):
            if rows:
                group_rows = slice(rows.start, rows.stop)
                off[group_rows] = checksum_errors(lhs[group_rows], rhs[group], outputs[0][group_rows], self.dtype, seed)
        return off

    def _by_group(self, inputs: Sequence[Values], rows: Rows, dtype: Any, function: Callable[..., Values]) -> Exact:
        """`function` of the rows of LHS in each group and of the group's matrix, at these rows of the output."""
        lhs, rhs, sizes = inputs
        group_of = np.repeat(np.arange(self.groups), sizes)[rows]
        result = np.empty((len(rows), self.n))
        for group in np.unique(group_of):
            places = np.flatnonzero(group_of == group)
            result[places] = function(lhs[rows[places]].astype(dtype), rhs[group].astype(dtype))
        return result
