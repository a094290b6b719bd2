"""Matrix product with weights of eight bits, C = (A Q) * scales: shapes, useful work, exact outputs, their rounding."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import ml_dtypes
import numpy as np

from harness.operators.axes import Operator, axis
from harness.operators.blocks import drawn_block, repeated_lines, turned
from harness.operators.controls import FEWEST_TERMS, Answer, added_in_bfloat16
from harness.operators.fields import require_member
from harness.operators.probes import Probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.products import probes as product_probes
from harness.operators.products.matmul import COMPOSITE, Matmul, expected
from harness.operators.rounding import DTYPES, deviation, sum_variance, ulp
from harness.operators.space import DRAWN, RECIPE, Borrowed, generator
from harness.operators.survey import checksum_errors
from harness.records import Array, Statement, Work

# The types of eight bits and their largest numbers; quantizers do not use -128, which has no opposite.
_LARGEST = {"int8": 127, "float8_e4m3fn": 448}
_NARROW = {"int8": np.dtype(np.int8), "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn)}
_A, _Q, _SCALES, _ROW_SCALES = range(4)
# Where scales of columns have all sizes, they are multiplied by powers of two down to 3e-11, below the least scale to
# which quantizers clamp.
_SMALLEST = 36
# The fraction of scales that equal their neighbour, besides those at the first places of blocks.
_REPEATED = 0.1
_BYTES = {name: dtype.itemsize for name, dtype in (_NARROW | DTYPES).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedMatmul(Operator, Borrowed):
    """C [m, n] = A [m, k] Q [k, n] * scales [1, n]: C in `dtype`, one float32 scale for each column.

    `weights` is the type of Q, int8 or float8_e4m3fn. `activations` is the type of A: either `dtype` or the type of Q.
    In the second case, rows of C are also scaled, by float32 `row_scales` [m, 1]. Numbers of int8 are -127 to 127,
    never -128, which has no opposite. Scales have any sign and size, and may be 0. The products are added up in float32
    or int32 and scaled at the end: a weight of eight bits is exact in bfloat16, a scaled weight is not. Scales stay in
    float32, which `factors` and `forbidden` check. Raises UsageError `bad-problem` for invalid sizes and types.
    """

    operation = "quantized_matmul"
    # The most multiply-adds that one check computes for its rows, each up to five times: two seconds on one core.
    checked = 5 << 30
    m: int = field(metadata=axis(is_uneven=True))
    n: int = field(metadata=axis())
    k: int = field(metadata=axis(is_uneven=True))
    dtype: str = "bfloat16"
    activations: str = None  # type: ignore[assignment]  # filled in on construction
    weights: str = "int8"

    def __post_init__(self) -> None:
        """Fills in the type of A. Raises UsageError `bad-problem` for invalid fields."""
        self.require_fields()
        self.fill(activations=self.dtype)
        require_member(self.operation, "weights", self.weights, _NARROW)
        require_member(self.operation, "activations", self.activations, (self.dtype, self.weights))

    @property
    def _has_row_scales(self) -> bool:
        return self.activations == self.weights

    def work(self) -> Work:
        """The useful work of one call: 2 FLOPs per multiply-add, 1 per element and scale; each array is moved once."""
        arrays = (*self._inputs, self._output)
        return Work(
            matmul_flops=2 * self.m * self.n * self.k,
            vector_flops=(2 if self._has_row_scales else 1) * self.m * self.n,
            minimum_hbm_bytes=sum(math.prod(array.shape) * _BYTES[array.dtype] for array in arrays),
            matmul_dtype=self.weights if self._has_row_scales else "bfloat16",
        )

    @property
    def _inputs(self) -> tuple[Array, ...]:
        rows = (Array(name="row_scales", shape=(self.m, 1), dtype="float32"),)
        return (
            Array(name="a", shape=(self.m, self.k), dtype=self.activations),
            Array(name="q", shape=(self.k, self.n), dtype=self.weights),
            Array(name="scales", shape=(1, self.n), dtype="float32"),
            *(rows if self._has_row_scales else ()),
        )

    @property
    def _output(self) -> Array:
        return Array(name="c", shape=(self.m, self.n), dtype=self.dtype)

    def statement(self) -> Statement:
        sizes = f"{self.m} x {self.n} x {self.k} (m x n x k)"
        return Statement(
            operation=self.operation,
            title=f"matmul {self.activations} x {self.weights}, {sizes}, to {self.dtype}",
            parameters=self.parameters,
            inputs=self._inputs,
            outputs=(self._output,),
            work=self.work(),
            expected=expected("matmul"),
        )

    def families(self, full: bool) -> tuple[str, ...]:
        """The families of a Matmul; with narrow activations also far-values at the full shape, for the largest sums."""
        far = ("far-values",) if full and self._has_row_scales else ()
        return (*self.lender.families(full), *far)

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """A Matmul's inputs of this family; each column of B, and each row of a narrow A, is scaled to the narrow type.

        Scales are up to twice as large as the narrow type needs, so that no scale is a round number in any unit. In all
        families except `normal`, half of the scales are negative, many neighbouring scales are equal, and so are all
        scales of one run that begins or ends inside a block. In families that are not drawn, scales of columns
        also have all sizes, and some are 0. In the composite no scale is 0, because its probe must move every column.
        """
        a, b = self.lender.make_inputs(family, seed)
        random = generator(f"sizes of scales of {family}", seed)
        q, scales = _quantized(b, 0, self.weights)
        scales *= random.uniform(1, 2, scales.shape).astype(np.float32)
        rounded, row_scales = _quantized(a, 1, self.weights) if self._has_row_scales else (a, None)
        if row_scales is not None:
            row_scales *= random.uniform(1, 2, row_scales.shape).astype(np.float32)
        if family != "normal":
            random = generator(f"scales of {family}", seed)
            scales *= random.choice(np.array([-1, 1], np.float32), scales.shape)
            if row_scales is not None:
                row_scales *= random.choice(np.array([-1, 1], np.float32), row_scales.shape)
            if not family.startswith((DRAWN, RECIPE)):
                scales *= np.exp2(-random.integers(_SMALLEST, size=scales.shape)).astype(np.float32)
                scales[random.random(scales.shape) < (family != "composite") / 16] = 0
            for some in (scales,) if row_scales is None else (scales, row_scales):
                _repeat(some.reshape(-1), random)
        return (rounded, q, scales) if row_scales is None else (rounded, q, scales, row_scales)

    @property
    def lender(self) -> Matmul:
        """The Matmul that gives A and Q their values before these are rounded to narrow types."""
        return Matmul(m=self.m, n=self.n, k=self.k, dtype=self.dtype)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: an output row must depend on all parts of its row of A, a column on its column of Q and its scale."""
        drawn = product_probes.Drawn(rows=self.m, columns=self.n, seed=seed)
        if full:
            even = tuple(kind == "normal" for kind in turned(COMPOSITE, seed, self.m))
            # In columns far from zero, the rounding of the sum may by chance hide the terms of a part.
            return (drawn.inner("a", _A, self.k, "composite", kinds=even, columns=self.n - self.n // 8),)
        return (
            drawn.inner("a", _A, self.k),
            drawn.some_rows("a", _A, self.k),
            drawn.some_columns("q", _Q, self.k),
            drawn.some_columns("the scales", _SCALES, 1),
            *([drawn.some_rows("the row scales", _ROW_SCALES, 1)] if self._has_row_scales else []),
        )

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]` float64: the scaled product in float64, from the rounded inputs."""
        return self._of_rows(inputs, rows, np.float64, lambda a, q, scales: (a @ q) * scales)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]` float64: added up in float32, scaled in float32, rounded to dtype once."""
        dtype = DTYPES[self.dtype]
        return self._of_rows(inputs, rows, np.float32, lambda a, q, scales: ((a @ q) * scales).astype(dtype))

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]`: standard deviation of the output if every honest rounding were random.

        The variances are:
        - the float32 sum over k:  `sum_variance`, scaled like the sum;
        - one or two roundings to float32 in the scaling:  at most (e32 c)^2 / 12 each;
        - the output itself:  ulp(c)^2 / 12.
        """

        eps32 = np.float32(np.finfo(np.float32).eps)

        def of_product(a: Values, q: Values, factors: Values) -> Values:
            sums = a @ q
            variance = sum_variance(np.square(a) @ np.square(q), sums, self.k) * np.square(factors)
            scaled = sums * factors
            return deviation(variance + (np.square(ulp(scaled, self.dtype)) / 12 + np.square(eps32 * scaled) / 6))

        return self._of_rows(inputs, rows, np.float32, of_product)

    def forbidden(self, inputs: Sequence[Values], rows: Rows) -> dict[str, Exact]:
        """The errors `[len(rows), n]` of rounding sums, sums with one scale, or products of scales to bfloat16.

        Each error is about as large as the error of rounding the output once, so the tolerance alone does not detect
        it. The errors can still be distinguished from the output's rounding, because scales are not powers of two (a
        single scale may be near a power of two, though). Without row scales, only the sums are listed. Empty for
        float32, where each error is hundreds of deviations and exceeds the tolerance.
        """
        if self.dtype == "float32":
            return {}
        sums = self._of_rows(inputs, rows, np.float32, lambda a, q, _: a @ q)
        columns = inputs[_SCALES]
        if not self._has_row_scales:
            return {"the sums": sums * columns * _relative_error(sums)}
        row_scales = inputs[_ROW_SCALES][rows]
        rounded = {
            "the sums": sums,
            "the sums times scales": sums * columns,
            "the sums times row_scales": sums * row_scales,
            "scales * row_scales": columns * row_scales,
        }
        scaled = sums * (columns * row_scales)
        return {name: scaled * _relative_error(values) for name, values in rounded.items()}

    def factors(self) -> dict[str, Literal[0, 1]]:
        """The scales, which multiply whole columns (axis 0), and the row scales, which multiply whole rows (axis 1)."""
        return {"scales": 0, "row_scales": 1} if self._has_row_scales else {"scales": 0}

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: scales left out, one scale for all, fewer bits, and sums in bfloat16."""

        def with_inputs(place: int, change: Callable[[Values], Values]) -> Answer:
            return lambda inputs, rows: self.reference(
                [change(array) if number == place else array for number, array in enumerate(inputs)], rows
            )

        answers: dict[str, Answer] = {
            "columns not scaled": with_inputs(_SCALES, np.ones_like),
            "weights of four bits": with_inputs(_Q, _of_four_bits),
        }
        if self.n > 1:
            answers["one scale for all columns"] = with_inputs(
                _SCALES, lambda scales: np.full_like(scales, scales.mean())
            )
        if self.k >= FEWEST_TERMS:
            answers["sums kept in bfloat16"] = lambda inputs, rows: self._of_rows(
                inputs, rows, np.float64, lambda a, q, scales: added_in_bfloat16(a, q) * scales
            )
        if self._has_row_scales:
            answers["rows not scaled"] = with_inputs(_ROW_SCALES, np.ones_like)
        return answers

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[m]`: the error of each row in deviations, by a checksum of every 128 columns."""
        a, q, *scales = inputs
        both = (scales[0], scales[1] if len(scales) > 1 else np.ones((self.m, 1)))
        return checksum_errors(a, q, outputs[0], self.dtype, seed, both)

    def _of_rows(
        self, inputs: Sequence[Values], rows: Rows, dtype: Any, function: Callable[[Values, Values, Values], Values]
    ) -> Exact:
        a, q, *scales = (array.astype(dtype) for array in inputs)
        # [rows, n]: with narrow activations the products of both scales.
        factors = np.broadcast_to(scales[0], (len(rows), self.n)) * (scales[1][rows] if len(scales) > 1 else dtype(1))
        return function(a[rows], q, factors).astype(np.float64)


def _quantized(values: Values, axis: int, dtype: str) -> tuple[Values, Values]:
    """The values / steps, rounded to `dtype`, and the float32 steps: largest size along the axis / largest of dtype."""
    wide, most = values.astype(np.float32), _LARGEST[dtype]
    largest = np.abs(wide).max(axis=axis, keepdims=True)
    steps = np.where(largest > 0, largest / np.float32(most), np.float32(1 / 3)).astype(np.float32)
    scaled = np.clip(wide / steps, -most, most)
    return (np.rint(scaled) if dtype == "int8" else scaled).astype(_NARROW[dtype]), steps


def _repeat(scales: Values, random: np.random.Generator) -> None:
    """Makes some neighbouring scales equal, in pairs and in one run of about 128."""
    lines = repeated_lines(len(scales), _REPEATED, random)
    scales[lines + 1] = scales[lines]
    run = drawn_block(len(scales), random)
    scales[run.start : run.stop] = scales[int(random.choice(run))]


def _relative_error(values: Values) -> Exact:
    """The error of rounding each float32 number to bfloat16, relative to the number; 0 for numbers of 0."""
    exact = values.astype(np.float64)
    error: Exact = values.astype(DTYPES["bfloat16"]).astype(np.float64) - exact
    return np.divide(error, exact, out=np.zeros_like(exact), where=exact != 0)


def _of_four_bits(q: Values) -> Values:
    """`q` rounded to four bits: -7 to 7 for int8, else float4_e2m1fn."""
    if q.dtype == np.int8:
        return np.clip(np.rint(q / 16), -7, 7) * 16
    step = np.float32(448 / 6)
    return (q.astype(np.float32) / step).astype(ml_dtypes.float4_e2m1fn).astype(np.float32) * step
