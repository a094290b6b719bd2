"""The k largest elements of each row and their columns, as routers and samplers need them, compared exactly."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from harness.operators import textures
from harness.operators.axes import Operator, axis
from harness.operators.blocks import around, drawn_block, empty_block
from harness.operators.blocks import turned as begun_anywhere
from harness.operators.controls import Answer
from harness.operators.exact import ExactAnswers
from harness.operators.fields import require
from harness.operators.normals import normal
from harness.operators.probes import Part, Probe, Region, probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.rounding import DTYPES
from harness.operators.space import DRAWN, RECIPE, generator
from harness.records import Array, Statement, Work

_FAMILIES = ("normal", "ties", "equal", "falling", "rising", "near", "lanes", "masked", "wide")
# Strides of columns. A kernel may divide the columns into classes, each of the columns that are one stride apart, and
# keep only some elements of each class. The longest stride is the distance of columns in the same lane of the chip's
# vector registers.
_STRIDES = (2, 4, 8, 16, 32, 64, 128)
# Values of masked elements, in addition to those of `_almost_least`. The dtype's least number is below all of them, so
# that a kernel may write it over chosen elements.
_MASKED = (-3e38, -1e30)
# The largest of the whole numbers in rows of ties: a row has each of them many times.
_LEVELS = 4
# The share of rows of neighbouring numbers that have both signs.
_BOTH_SIGNS = 0.25
# The largest exponent of the powers of two that scale rows: the three bfloat16 parts of an element stay normal numbers.
_WIDE = 60
# The fewest rows of a block without positive elements, as log-probabilities are; the smallest blocks in which two rows
# may be equal, and the share of these.
_NEGATIVE_ROWS, _EQUAL_ROWS, _EQUAL_SHARE = 64, 8, 0.75
# Multiplied by this, an element drawn from N(0, 1) exceeds all others of its row.
_LOUD = 2.0**40


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(Operator, ExactAnswers, textures.Textured):
    """The `k` largest elements of each row of x [rows, columns], the largest first, and their columns.

    Outputs: values [rows, k] in `dtype`, indices [rows, k] int32. If elements are equal, the lower column comes
    first. Both outputs are compared exactly. x has no negative zero, which some hardware takes for less than zero, and
    its elements are above the least number of its dtype. Raises UsageError `bad-problem` if k exceeds the columns.
    """

    operation = "top_k"
    own_families = _FAMILIES
    # The most elements that one check sorts.
    checked = 1 << 22
    rows: int = field(metadata=axis(shortest=64, is_uneven=True))
    columns: int
    k: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        self.require_fields()
        require("top_k", self.k <= self.columns, f"expected k of at most {self.columns} columns, got {self.k}")

    def work(self) -> Work:
        """One comparison for each element, the fewest that suffice; x is read and both outputs are written once."""
        elements, chosen, size = self.rows * self.columns, self.rows * self.k, DTYPES[self.dtype].itemsize
        return Work(matmul_flops=0, vector_flops=elements, minimum_hbm_bytes=elements * size + chosen * (size + 4))

    def statement(self) -> Statement:
        x = Array(name="x", shape=(self.rows, self.columns), dtype=self.dtype)
        values = replace(x, name="values", shape=(self.rows, self.k))
        return Statement(
            operation=self.operation,
            title=f"top {self.k} of {self.rows} rows of {self.columns}, {self.dtype}",
            parameters=self.parameters,
            inputs=(x,),
            outputs=(values, replace(values, name="indices", dtype="int32")),
            work=self.work(),
        )

    def exact(self) -> tuple[str, ...]:
        """The name of the output copied from `x`."""
        return ("values",)

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """x of the named family. Raises ValueError for one that does not exist.

        normal: N(0, 1). ties: whole numbers up to 4, so that most elements have equals. equal: rows of one number.
        falling, rising: sorted rows; rising ones are negative. near: neighbouring numbers of dtype, of either sign and
        any size. lanes: the largest elements of a row are in columns that are 2, 4, 8 and so on to 128 apart; each row
        has one such stride, and where possible at least k of these columns. masked: at most k elements of a row remain;
        all others are replaced by one of the least numbers, such as -1e30. wide: each row of N(0, 1) times a power of
        two, from 2^-60 to 2^60; in most blocks of 8 rows, two rows are equal, often the first two. composite: all of
        these, by row, from a drawn place on, with as many equal rows; a block of rows is negative.
        """
        if family.startswith((DRAWN, RECIPE)):
            made, _, _ = self._textured(family, seed)
            return (self._without_negative_zeros(made[0]),)
        self.require_family(family)
        random = generator(family, seed)
        x = normal(random, self.rows, self.columns)
        pattern = begun_anywhere(_FAMILIES, seed, self.rows) if family == "composite" else (family,)
        kinds = np.array(pattern)[np.arange(self.rows) % len(pattern)]
        ties, equal = np.flatnonzero(kinds == "ties"), np.flatnonzero(kinds == "equal")
        x[ties] = random.integers(-_LEVELS, _LEVELS, (len(ties), self.columns), endpoint=True)
        x[equal] = x[equal, :1]
        if family == "rising":
            x = _negative(x)
        for kind, direction in (("falling", -1), ("rising", 1)):
            rows = np.flatnonzero(kinds == kind)
            x[rows] = np.sort(x[rows], axis=1)[:, ::direction]
        near = np.flatnonzero(kinds == "near")
        x[near] = self._neighbours(len(near), random)
        wide = np.flatnonzero(kinds == "wide")
        x[wide] *= np.exp2(random.integers(-_WIDE, _WIDE, (len(wide), 1), endpoint=True)).astype(np.float32)
        lanes = np.flatnonzero(kinds == "lanes")
        strides = begun_anywhere(self._strides, seed, len(lanes))
        for row, stride in zip(lanes, np.resize(strides, len(lanes)).tolist(), strict=True):
            places = np.arange(random.integers(min(stride, self.columns)), self.columns, stride)
            x[row, places] = _LEVELS + np.abs(x[row, places])
        lows = np.array([*_MASKED, *self._almost_least()], np.float32)
        for row in np.flatnonzero(kinds == "masked"):
            seen = random.choice(self.columns, random.integers(self.k, endpoint=True), replace=False)
            masked = np.full(self.columns, random.choice(lows), np.float32)
            masked[seen] = x[row, seen]
            x[row] = masked
        if family == "composite":
            block = empty_block(self.rows, _NEGATIVE_ROWS, random)
            x[block] = _negative(x[block])
        if family in ("wide", "composite"):
            _make_rows_equal(x, random)
        return (self._without_negative_zeros(x),)

    @property
    def _strides(self) -> tuple[int, ...]:
        """The strides whose classes of columns have at least k columns each, or the shortest if none has."""
        return tuple(stride for stride in _STRIDES if stride * self.k <= self.columns) or _STRIDES[:1]

    def _neighbours(self, rows: int, random: np.random.Generator) -> NDArray[np.float32]:
        """Rows of neighbouring numbers of dtype: rounded to fewer bits they are equal. Few rows have both signs."""
        steps = 1 << (23 if self.dtype == "float32" else 7)
        places = random.integers(2 * _LEVELS, size=(rows, self.columns))
        places += random.integers(steps - 2 * _LEVELS, size=(rows, 1), endpoint=True)
        signs = random.choice([-1, 1], (rows, self.columns))
        signs = np.where(random.random((rows, 1)) < _BOTH_SIGNS, signs, signs[:, :1])
        sizes = np.exp2(random.integers(-_WIDE, _WIDE, (rows, 1), endpoint=True))
        return (signs * sizes * (1 + places / steps)).astype(np.float32)

    def _almost_least(self) -> tuple[float, ...]:
        """The number above the least of dtype and, if dtype is float32, the least of bfloat16."""
        least = ml_dtypes.finfo(ml_dtypes.bfloat16).min
        if self.dtype == "float32":
            return float(least), float(np.nextafter(np.finfo(np.float32).min, np.float32(0)))
        return (float(np.nextafter(least, ml_dtypes.bfloat16(0))),)

    def _without_negative_zeros(self, x: Values) -> Values:
        values: Values = x.astype(DTYPES[self.dtype])
        values[values == 0] = 0
        return values

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Two probes of a row's dependence on its own elements alone; the first makes single elements the largest."""
        random = np.random.default_rng(np.random.SeedSequence((seed, self.rows)))
        order = np.resize(random.permutation(self.columns), self.rows)
        x = self.make_inputs("normal", seed)[0].astype(np.float32)
        loud = range(0, self.rows, 2)
        regions = [
            Region(
                array=0,
                ranges=(range(row, row + 1), range(column, column + 1)),
                factor=_LOUD if x[row, column] > 0 else -_LOUD,
            )
            for row, column in zip(loud, order[loud.start :: loud.step].tolist(), strict=True)
            if x[row, column]
        ]
        every = range(2 * self.k)
        moves = [Part(rows=region.ranges[0], columns=range(1)) for region in regions]
        stays = [Part(rows=range(row, row + 1), columns=every) for row in range(1, self.rows, 2)]
        turned = drawn_block(self.rows, random)
        others = [Part(rows=rows, columns=every) for rows in around(turned, self.rows)]
        region = Region(array=0, ranges=(turned, range(self.columns)), factor=-1.0)
        name = f"rows {turned.start} to {turned.stop - 1} of x"
        return (
            probe("elements of every second row of x", "normal", regions, moves, stays),
            probe(name, "normal", [region], [Part(rows=turned, columns=every)], others),
        )

    @property
    def row_cost(self) -> int:
        """The cost of a row, in elements."""
        return self.columns

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), 2 k]` float64: the values, then their columns."""
        return self._chosen(inputs, rows)

    def _chosen(self, inputs: Sequence[Values], rows: Rows, *, last_of_equals: bool = False) -> Exact:
        x = inputs[0][rows].astype(np.float64)
        if last_of_equals:
            order = self.columns - 1 - np.argsort(-x[:, ::-1], axis=1, kind="stable")[:, : self.k]
        else:
            order = np.argsort(-x, axis=1, kind="stable")[:, : self.k]
        return np.concatenate([np.take_along_axis(x, order, axis=1), order.astype(np.float64)], axis=1)

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: ties by another rule, and a choice from half of the columns."""

        def from_half(inputs: Sequence[Values], rows: Rows) -> Exact:
            half = replace(self, columns=max(self.k, self.columns // 2))
            return half.reference((inputs[0][:, : half.columns],), rows)

        return {
            "the last of equal elements": lambda inputs, rows: self._chosen(inputs, rows, last_of_equals=True),
            "the first half of the columns": from_half,
        }


def _negative(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(x == 0, np.float32(-1), -np.abs(x))


def _make_rows_equal(x: NDArray[np.float32], random: np.random.Generator) -> None:
    """Makes two rows of some blocks of 8 equal: the first two, the last two, the first and the last, or any two."""
    last = _EQUAL_ROWS - 1
    for start in range(0, len(x) - last, _EQUAL_ROWS):
        if random.random() < _EQUAL_SHARE:
            any_two = tuple(random.choice(_EQUAL_ROWS, 2, replace=False).tolist())
            row, other = ((0, 1), (0, 1), (0, 1), (last - 1, last), (0, last), any_two)[int(random.integers(6))]
            x[start + other] = x[start + row]
