"""Matrix product C = A B: shapes, useful work, exact outputs and their rounding errors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.operators import textures
from harness.operators.axes import Operator, axis
from harness.operators.blocks import borders, slices, turned
from harness.operators.controls import FEWEST_TERMS, Answer, added_in_bfloat16, rounded, without_the_last
from harness.operators.normals import normal
from harness.operators.probes import Probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.products import probes as product_probes
from harness.operators.rounding import DTYPES, product_deviation
from harness.operators.space import DRAWN, RECIPE, generator
from harness.operators.survey import checksum_errors
from harness.records import Array, ExpectedCount, Statement, Work

# Terms that cancel are larger than the other terms by the square of this number. An accumulator in bfloat16 (8 bits)
# loses all of the other terms. In float32 (24 bits), the loss is small compared with the rounding of the output.
_CANCELLED = 16.0
# Up to K = 2^16, a needle outweighs all other terms of its row together.
_NEEDLE = 2.0**10
# The kind of each row of the composite, by its position modulo 4, counted from a drawn place.
COMPOSITE = ("normal", "needles", "normal", "cancelling")
# Columns of B converted at a time: 64 MB as float64 at K = 8192.
_COLUMNS = 1024


def expected(what: str) -> tuple[ExpectedCount, ...]:
    """The expected counts of an operation, called `what`, that is one matrix product and nothing else."""
    more = "the body is unrolled, or blocks do not fit the MXU and are split"
    return (
        ExpectedCount(counter="matmul", low=1, high=1, more=more, fewer="the product does not run on the MXU"),
        ExpectedCount(counter="exp", low=0, high=0, more=f"not part of a {what}"),
        ExpectedCount(counter="reduction", low=0, high=0, more=f"not part of a {what}: the MXU accumulates"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul(Operator, textures.Textured):
    """C [m, n] = A [m, k] B [k, n], all in `dtype`, products added up in float32.

    Raises UsageError `bad-problem` for invalid sizes.
    """

    operation = "matmul"
    own_families = ("normal", "far-values", "needles", "cancelling")
    # The most multiply-adds that one check computes for its rows, each four times: two seconds on one core.
    checked = 5 << 30
    m: int = field(metadata=axis(is_uneven=True))
    n: int = field(metadata=axis())
    k: int = field(metadata=axis(is_uneven=True))
    dtype: str = "bfloat16"

    def work(self) -> Work:
        """The useful work of one call: 2 FLOPs for each multiply-add; A and B are read once, C is written once."""
        elements = self.m * self.k + self.k * self.n + self.m * self.n
        return Work(
            matmul_flops=2 * self.m * self.n * self.k,
            vector_flops=0,
            minimum_hbm_bytes=elements * DTYPES[self.dtype].itemsize,
        )

    def statement(self) -> Statement:
        return Statement(
            operation=self.operation,
            title=f"matmul C = A B, {self.m} x {self.n} x {self.k} (m x n x k), {self.dtype}",
            parameters=self.parameters,
            inputs=(
                Array(name="a", shape=(self.m, self.k), dtype=self.dtype),
                Array(name="b", shape=(self.k, self.n), dtype=self.dtype),
            ),
            outputs=(Array(name="c", shape=(self.m, self.n), dtype=self.dtype),),
            work=self.work(),
            expected=expected("matmul"),
        )

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """A and B of the named family or recipe. Raises ValueError for a family that does not exist.

        normal: all N(0, 1). far-values: N(c, 1) with c near 100 or -100 in A's rows and in B's columns, so that
        sums grow evenly and an accumulator that is too narrow stops growing. needles: one term of every row,
        anywhere or next to a border of a block along k, outweighs all others. cancelling: large terms in the first
        quarter of k meet their opposites in the last, so that a narrow accumulator loses the terms in between.
        composite: needles and cancelling by row, far values by column.
        """
        if family.startswith((DRAWN, RECIPE)):
            (a, b), cancelled, random = self._textured(family, seed)
            textures.cancel(a, b, cancelled, random)
            return a.astype(DTYPES[self.dtype]), b.astype(DTYPES[self.dtype])
        self.require_family(family)
        random = generator(family, seed)
        a, b = normal(random, self.m, self.k), normal(random, self.k, self.n)
        pattern = turned(COMPOSITE, seed, self.m) if family == "composite" else (family,)
        kinds = np.array(pattern)[np.arange(self.m) % len(pattern)]
        if family in ("far-values", "composite"):
            columns = self.n if family == "far-values" else self._far_columns
            b[:, self.n - columns :] += textures.far_offsets(columns, random)
        if family == "far-values":
            a += textures.far_offsets(self.m, random)[:, None]
        self._cancel(a, b, np.flatnonzero(kinds == "cancelling"))
        rows = np.flatnonzero(kinds == "needles")
        # Half of the needles are at borders of blocks, half anywhere: a kernel may also leave out less than a block.
        at_borders, positions = rows[::2], borders(self.k)
        a[at_borders, positions[random.integers(len(positions), size=len(at_borders))]] = _NEEDLE
        a[rows[1::2], random.integers(self.k, size=len(rows[1::2]))] = _NEEDLE
        dtype = DTYPES[self.dtype]
        return a.astype(dtype), b.astype(dtype)

    @property
    def _far_columns(self) -> int:
        """The number of last columns of B that are far from zero in the composite."""
        return self.n // 8

    def _cancel(self, a: NDArray[Any], b: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Mirrors the first quarter of k into the last: in B unchanged, in these rows of A with opposite signs."""
        count = self.k // 4
        if not len(rows) or not count:
            return
        b[:count] *= _CANCELLED
        b[self.k - count :] = b[:count][::-1]
        a[rows, :count] *= _CANCELLED
        a[rows, self.k - count :] = -a[rows, :count][:, ::-1]

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: rows must depend on their rows of A, columns on their columns of B, and all on every part of k."""
        drawn = product_probes.Drawn(rows=self.m, columns=self.n, seed=seed)
        if full:
            even = tuple(kind == "normal" for kind in turned(COMPOSITE, seed, self.m))
            # In columns far from zero, the rounding of the sum may by chance hide the terms of a part.
            return (drawn.inner("a", 0, self.k, "composite", kinds=even, columns=self.n - self._far_columns),)
        return (drawn.inner("a", 0, self.k), drawn.some_rows("a", 0, self.k), drawn.some_columns("b", 1, self.k))

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]` float64: the product in float64, from the rounded inputs."""
        return self._by_columns(inputs, rows, np.float64, lambda a, b: a @ b)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]` float64: added up in float32, rounded to dtype once."""
        return self._by_columns(inputs, rows, np.float32, lambda a, b: (a @ b).astype(DTYPES[self.dtype]))

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]`: standard deviation of the output if every honest rounding were random.

        The roundings are that of the output and those of the float32 sum over k (`product_deviation`).
        """
        return self._by_columns(inputs, rows, np.float32, lambda a, b: product_deviation(a, b, self.dtype))

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[m]`: the error of each row in deviations, by a checksum of every 128 columns."""
        return checksum_errors(inputs[0], inputs[1], outputs[0], self.dtype, seed)

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: sums that end early or are not kept in float32; for float32, one pass of bfloat16."""

        def multiplied(product: Callable[[Values, Values], Values]) -> Answer:
            return lambda inputs, rows: self._by_columns(inputs, rows, np.float64, product)

        answers = {"the last part of k left out": multiplied(without_the_last)}
        if self.k >= FEWEST_TERMS:
            answers["sums kept in bfloat16"] = multiplied(added_in_bfloat16)
        if self.dtype == "float32":
            answers["one pass of bfloat16"] = multiplied(lambda a, b: rounded(a, "bfloat16") @ rounded(b, "bfloat16"))
        return answers

    def _by_columns(self, inputs: Sequence[Values], rows: Rows, dtype: Any, function: Any) -> Exact:
        """`function` of these rows of A and all columns of B, some columns at a time."""
        a, b = inputs
        some = a[rows].astype(dtype)
        result = np.empty((len(rows), self.n))
        for columns in slices(self.n, _COLUMNS):
            result[:, columns] = function(some, b[:, columns].astype(dtype))
        return result
