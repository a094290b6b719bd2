"""RMSNorm of a sum with a residual, h = x + r, y = h / sqrt(mean(h^2) + eps) w: shapes, useful work, exact outputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.operators import textures
from harness.operators.axes import Operator, axis
from harness.operators.blocks import BLOCK, slices, turned
from harness.operators.controls import FEWEST_TERMS, Answer, rounded
from harness.operators.fields import require_flag, require_positive
from harness.operators.norm import probes as rmsnorm_probes
from harness.operators.normals import normal
from harness.operators.probes import Probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.rounding import DTYPES, SUM_TERMS, deviation, relative_rounding, ulp
from harness.operators.space import DRAWN, RECIPE, generator
from harness.records import Array, ExpectedCount, Statement, Work

# The kind of each row of the composite, by its position modulo 8, counted from a drawn place.
_COMPOSITE = ("normal", "small", "spikes", "far-values", "normal", "large", "cancelling", "normal")
# The factor of large rows. Squares of such numbers overflow float16, and bfloat16 cannot hold exact sums of them, but
# they are far below float32's maximum.
_LARGE = 2.0**14
# The size of the elements in `_SPIKES` columns, which have nearly all of a row's sum of squares in rows of up to 2^20
# columns. A kernel that leaves out one of these columns, counts it twice or replaces it changes the row's scale by 6 %:
# 20 deviations of a bfloat16 output.
_SPIKE = 2.0**10
_SPIKES = 8
# Residual streams carry values of this size that cancel to exactly 0.
_CANCELLED = 2.0**14
# The size of blocks of weights that are all 1 or all -1, their fraction, and that of other weights that are 1 or -1.
_UNIT, _UNIT_BLOCKS, _UNITS = 8, 0.25, 0.05
# The least divisor of an error, used where the expected element is zero or nearly zero.
_LEAST_ERROR = 1e-30
# Elements computed at a time: their float64 arrays, 512 KiB each, stay in a core's cache.
_PART = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RMSNorm(Operator, textures.Textured):
    """RMSNorm over the last axis, of x [rows, columns], or with `residual` of h = x + r, which is an output as well.

    y = h / sqrt(mean(h^2) + eps) * w with w [columns], all arrays in `dtype`. The mean may be taken of h in float32, or
    of h rounded to dtype, as a later layer reads it. Raises UsageError `bad-problem`.
    """

    operation = "rmsnorm"
    own_families = ("normal", "small", "spikes", "far-values", "large", "cancelling")
    # The most elements that one check computes, about half a second on one core.
    checked = 1 << 22
    # The shortest length has several blocks of the fewest rows that fill a tile. The columns stay: kernels are written
    # for them.
    rows: int = field(metadata=axis(shortest=64, is_uneven=True))
    columns: int
    residual: bool = True
    eps: float = 1e-6
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        self.require_fields()
        require_positive("rmsnorm", "eps", self.eps)
        require_flag("rmsnorm", "residual", self.residual)

    def work(self) -> Work:
        """The useful work of one call.

        4 FLOPs count for each element (square, sum, and two products), 5 with the residual's sum; the few operations
        per row do not count. X, R and W are read once, Y and H written once.
        """
        elements = self.rows * self.columns
        arrays = 4 if self.residual else 2
        return Work(
            matmul_flops=0,
            vector_flops=(5 if self.residual else 4) * elements,
            minimum_hbm_bytes=(arrays * elements + self.columns) * DTYPES[self.dtype].itemsize,
        )

    def statement(self) -> Statement:
        x = Array(name="x", shape=(self.rows, self.columns), dtype=self.dtype)
        w = Array(name="w", shape=(self.columns,), dtype=self.dtype)
        residual = " of a sum with a residual" if self.residual else ""
        return Statement(
            operation=self.operation,
            title=f"rmsnorm{residual}, {self.rows} rows of {self.columns}, {self.dtype}",
            parameters=self.parameters,
            inputs=(x, replace(x, name="r"), w) if self.residual else (x, w),
            outputs=(replace(x, name="y"), replace(x, name="h")) if self.residual else (replace(x, name="y"),),
            work=self.work(),
            expected=(
                ExpectedCount(counter="matmul", low=0, high=0, more="not part of a norm, unless the MXU is to sum"),
                ExpectedCount(counter="exp", low=0, high=0, more="not part of a norm"),
                ExpectedCount(counter="reduction", low=1, high=1, more="the body is unrolled, or sums run in stages"),
            ),
        )

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """x, r and w (x and w without residual) of the named family. Raises ValueError for one that does not exist.

        normal: all N(0, 1), weights N(1, 1/4); in all other families, drawn ones included, some weights and whole
        blocks of 8 are exactly 1 or -1. small: rows of zeros, and rows whose mean square is 10^-10 to a hundred
        times eps. spikes: eight columns of each row, drawn for each row, have nearly all of the sum of squares.
        far-values: rows N(c, 1) with c near 100 or -100; a kernel must not subtract the mean. large: squares near 2^28.
        cancelling: r is nearly -x, so that h is far smaller than either; in some columns both are large and r is
        exactly -x. composite: all of these, by row.
        """
        if family.startswith((DRAWN, RECIPE)):
            return self._drawn_inputs(family, seed)
        self.require_family(family)
        random = generator(family, seed)
        dtype = DTYPES[self.dtype]
        x, r = (normal(random, self.rows, self.columns) for _ in range(2))
        # One number in eight million is zero, and would stay zero when a probe multiplies it.
        x[x == 0] = 1
        w = 1 + random.standard_normal(self.columns, dtype=np.float32) / 2
        kinds = self._kinds(family, seed)
        small = np.flatnonzero(kinds == "small")
        scale = np.float32(self.eps**0.5) * 10 ** random.uniform(-5, 1, (len(small), 1)).astype(np.float32)
        scale[::4] = 0
        x[small] *= scale
        r[small] *= scale
        spikes = np.flatnonzero(kinds == "spikes")
        spiked = x[spikes]
        textures.spike(spiked, _SPIKES, _SPIKE, random)
        x[spikes] = spiked
        far = np.flatnonzero(kinds == "far-values")
        x[far] += textures.far_offsets(len(far), random)[:, None]
        large = np.flatnonzero(kinds == "large")
        x[large] *= np.float32(_LARGE)
        r[large] *= np.float32(_LARGE)
        # x is rounded to dtype first, so that the intended difference is left.
        opposed = np.flatnonzero(kinds == "cancelling")
        r[opposed] = -x[opposed].astype(dtype).astype(np.float32) * np.float32(1 + 2**-5)
        columns = random.choice(self.columns, min(_SPIKES, self.columns // 2), replace=False)
        if self.residual:
            x[np.ix_(opposed, columns)] = _CANCELLED
            r[np.ix_(opposed, columns)] = -_CANCELLED
        if family != "normal":
            _set_units(w, random)
        arrays = (x, r, w) if self.residual else (x, w)
        return tuple(array.astype(dtype) for array in arrays)

    def _kinds(self, family: str, seed: int) -> NDArray[Any]:
        """The kind of input of each row."""
        pattern = turned(_COMPOSITE, seed, self.rows) if family == "composite" else (family,)
        return np.array(pattern)[np.arange(self.rows) % len(pattern)]

    def _drawn_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        made, cancelled, random = self._textured(family, seed)
        dtype = DTYPES[self.dtype]
        made = [array.astype(dtype) for array in made]
        if self.residual and cancelled:
            columns = random.random(self.columns) < cancelled
            opposed = -made[0][:, columns].astype(np.float32) * np.float32(1 + 2**-5)
            made[1][:, columns] = opposed.astype(dtype)
            exact = np.flatnonzero(columns)[:_SPIKES]
            made[0][:, exact] = np.asarray(_CANCELLED, dtype)
            made[1][:, exact] = np.asarray(-_CANCELLED, dtype)
        _set_units(made[-1], random)
        return tuple(made)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: every row must depend on all of its columns, its residual and the weights, and on nothing else."""
        drawn = rmsnorm_probes.Drawn(rows=self.rows, columns=self.columns, residual=self.residual, seed=seed)
        if full:
            # The composite was checked last. Small rows are left out: some are zero, and stay zero whatever the factor.
            family = "composite"
            return tuple(drawn.energy(family, np.flatnonzero(self._kinds(family, seed) != "small"), full=True))
        energy = drawn.energy("normal", np.arange(self.rows), full=False)
        of_residual = [drawn.some_rows("r", 1)] if self.residual else []
        return (*energy, drawn.some_rows("x", 0), drawn.weights(), *of_residual)

    @property
    def row_cost(self) -> int:
        """The cost of a row, in elements."""
        return self.columns

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), columns]` float64: y, and with a residual h next to it, from the rounded inputs."""
        return self._in_parts(self._reference, inputs, rows)

    def _reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        h, w = self._sum(inputs, rows, np.float64)
        return self._with_h(h / np.sqrt(np.square(h).mean(axis=1, keepdims=True) + self.eps) * w, h)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """As `reference`, computed in float32, each output rounded to dtype once."""
        return self._in_parts(self._honest, inputs, rows)

    def _honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        h, w = self._sum(inputs, rows, np.float32)
        scale = 1 / np.sqrt(np.square(h).mean(axis=1, keepdims=True) + np.float32(self.eps))
        dtype = DTYPES[self.dtype]
        return self._with_h((h * scale * w).astype(dtype), h.astype(dtype)).astype(np.float64)

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """The standard deviation of each output if every honest rounding were random.

        First-order propagation of independent roundings. With s = 1 / sqrt(mean(h^2) + eps), n columns, r32 the
        relative deviation of one rounding to float32, and e32 float32's epsilon, the variances of y are:
        - h rounded to dtype before it is squared and scaled:  (s w)^2 ulp(h)^2 / 12, and through the mean  y^2 s^4
          sum_j h_j^2 ulp(h_j)^2 / 12 / n^2;
        - h s rounded to dtype before it is multiplied with w, as in the widely used form:  w^2 ulp(h s)^2 / 12;
        - the output itself:  ulp(y)^2 / 12;
        - in float32, three products, a root right to one ulp, and half the relative error of a sum of n squares:  y^2
          (3 r32^2 + e32^2 / 3 + (r32^2 n + (m e32 / 4)^2) / 4), with m terms added one by one.
        The variance of h is ulp(h)^2 / 12, plus r32^2 h^2 for the sum.
        """
        return self._in_parts(self._rounding, inputs, rows)

    def _rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        relative32, eps32 = relative_rounding("float32"), float(np.finfo(np.float32).eps)
        h, w = self._sum(inputs, rows, np.float64)
        scale = 1 / np.sqrt(np.square(h).mean(axis=1, keepdims=True) + self.eps)
        y = h * scale * w
        of_h = np.square(ulp(h, self.dtype)) / 12
        through = (np.square(h) * of_h).sum(axis=1, keepdims=True) / self.columns**2
        variance = np.square(scale * w) * of_h + np.square(y) * scale**4 * through
        variance += (np.square(w * ulp(h * scale, self.dtype)) + np.square(ulp(y, self.dtype))) / 12
        relative_loss = min(self.columns, SUM_TERMS) * eps32 / 4
        summed = (relative32**2 * self.columns + relative_loss**2) / 4
        variance += np.square(y) * (3 * relative32**2 + eps32**2 / 3 + summed)
        of_h += np.square(relative32 * h)
        return deviation(self._with_h(variance, of_h))

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: rows not normalised or normalised by other sums, and parts of the formula left out."""

        def answer(scale: Callable[[Exact], Exact], weigh: bool = True) -> Answer:
            def computed(inputs: Sequence[Values], rows: Rows) -> Exact:
                h, w = self._sum(inputs, rows, np.float64)
                return self._with_h(h * scale(h) * (w if weigh else 1.0), h)

            return computed

        def by_mean_square(h: Exact) -> Exact:
            reciprocals: Exact = 1 / np.sqrt(np.square(h).mean(axis=1, keepdims=True) + self.eps)
            return reciprocals

        def in_bfloat16(h: Exact) -> Exact:
            sums = np.zeros((len(h), 1))
            for block in slices(self.columns, BLOCK):
                sums = rounded(sums + np.square(h[:, block]).sum(axis=1, keepdims=True), "bfloat16")
            return 1 / np.sqrt(sums / self.columns + self.eps)

        answers = {
            "rows not normalised": answer(lambda h: np.ones((len(h), 1))),
            "the weights left out": answer(by_mean_square, weigh=False),
            "eps left out": answer(lambda h: 1 / np.sqrt(np.square(h).mean(axis=1, keepdims=True))),
            "the variance for the mean square": answer(lambda h: 1 / np.sqrt(h.var(axis=1, keepdims=True) + self.eps)),
        }
        # With fewer columns, rounding the sum changes an output no more than honest rounding does.
        if self.columns >= 16 * FEWEST_TERMS:
            answers["sums kept in bfloat16"] = answer(in_bfloat16)
        if self.residual:
            answers["the residual left out"] = lambda inputs, rows: self.reference(
                (inputs[0], np.zeros_like(inputs[1]), inputs[2]), rows
            )
        return answers

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[rows]`: the largest error in each row, in relative roundings to dtype, by all elements in float32."""
        relative = np.float32(relative_rounding(self.dtype))
        off = np.empty(self.rows)
        for rows in slices(self.rows, max(1, _PART // self.columns)):
            h = inputs[0][rows].astype(np.float32)
            if self.residual:
                h += inputs[1][rows].astype(np.float32)
            scale = 1 / np.sqrt(np.einsum("ij,ij->i", h, h) / np.float32(self.columns) + np.float32(self.eps))
            worst = np.zeros(len(h), np.float32)
            for expected, output in zip((h * scale[:, None] * inputs[-1].astype(np.float32), h), outputs, strict=False):
                error = np.abs(output[rows].astype(np.float32) - expected)
                error /= np.maximum(np.abs(expected) * relative, np.float32(_LEAST_ERROR))
                np.maximum(worst, error.max(axis=1), out=worst)
            off[rows] = worst
        return off

    def _in_parts(self, function: Callable[..., Exact], inputs: Sequence[Values], rows: Rows) -> Exact:
        """`function` of the inputs and these rows, computed for a few rows at a time."""
        parts = slices(max(1, len(rows)), max(1, _PART // self.columns))
        return np.concatenate([function(inputs, rows[part]) for part in parts])

    def _sum(self, inputs: Sequence[Values], rows: Rows, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """h at these rows and w, in `dtype`."""
        h = inputs[0][rows].astype(dtype)
        if self.residual:
            h += inputs[1][rows].astype(dtype)
        return h, inputs[-1].astype(dtype)

    def _with_h(self, y: NDArray[Any], h: NDArray[Any]) -> NDArray[Any]:
        """All outputs side by side, as a row of all outputs holds them."""
        return np.concatenate((y, h), axis=1) if self.residual else y


def _set_units(w: NDArray[Any], random: np.random.Generator) -> None:
    """Makes some weights exactly 1 or -1: whole aligned blocks of 8, often the first, and others at random places."""
    signs = random.choice(np.array([-1, 1], w.dtype), len(w))
    is_unit = random.random(len(w)) < _UNITS
    starts = np.arange(0, len(w), _UNIT)
    for start in starts[(random.random(len(starts)) < _UNIT_BLOCKS) | ((starts == 0) & (random.random() < 0.5))]:
        is_unit[start : start + _UNIT] = True
        signs[start : start + _UNIT] = signs[start]
    w[is_unit] = signs[is_unit]
