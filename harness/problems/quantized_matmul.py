"""Matrix product with weights of eight bits, C = (A Q) * scales: shapes, useful work, exact outputs, their rounding."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.problems import product_probes
from harness.problems.blocks import sampled_rows, shorter, turned
from harness.problems.fields import require_dtype, require_sizes
from harness.problems.matmul import COMPOSITE, Matmul
from harness.problems.probes import Probe
from harness.problems.problem import Exact, Rows, Values
from harness.problems.rounding import DTYPES, product_deviation
from harness.records import Array, ExpectedCount, Statement, Work

# The largest weight; -128 has no opposite, and quantisers leave it out.
_LARGEST = 127
# Multiply-adds that one check may cost on its rows, each four times: two seconds on one core.
_CHECKED = 5 << 30
_A, _Q, _SCALES = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedMatmul:
    """C [m, n] = A [m, k] Q [k, n] * scales [1, n]: A and C in `dtype`, Q int8, one float32 scale for each column.

    The products are added up in float32 and scaled once: a weight of eight bits is exact in bfloat16, a scaled one is
    not. Raises UsageError `bad-problem` for sizes that do not exist.
    """

    m: int
    n: int
    k: int
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        """Refuses what does not exist."""
        require_sizes("quantized_matmul", m=self.m, n=self.n, k=self.k)
        require_dtype("quantized_matmul", self.dtype)

    def work(self) -> Work:
        """The useful work of one call: 2 FLOPs per multiply-add, 1 per element for its scale; each array moved once."""
        floats = (self.m * self.k + self.m * self.n) * DTYPES[self.dtype].itemsize
        return Work(
            matmul_flops=2 * self.m * self.n * self.k,
            vector_flops=self.m * self.n,
            minimum_hbm_bytes=floats + self.k * self.n + 4 * self.n,
        )

    def statement(self) -> Statement:
        """This problem in words and numbers."""
        return Statement(
            operation="quantized_matmul",
            title=f"matmul with int8 weights, {self.m} x {self.n} x {self.k} (m x n x k), {self.dtype}",
            parameters=tuple((field, getattr(self, field)) for field in ("m", "n", "k", "dtype")),
            inputs=(
                Array(name="a", shape=(self.m, self.k), dtype=self.dtype),
                Array(name="q", shape=(self.k, self.n), dtype="int8"),
                Array(name="scales", shape=(1, self.n), dtype="float32"),
            ),
            outputs=(Array(name="c", shape=(self.m, self.n), dtype=self.dtype),),
            work=self.work(),
            expected=(
                ExpectedCount(
                    counter="matmul", low=1, high=1,
                    more="the body is unrolled, or blocks do not fit the MXU and are split",
                    fewer="the product does not run on the MXU",
                ),
                ExpectedCount(counter="exp", low=0, high=0, more="not part of a matmul"),
                ExpectedCount(counter="reduction", low=0, high=0, more="not part of a matmul: the MXU accumulates"),
            ),
        )  # fmt: skip

    def families(self, full: bool) -> tuple[str, ...]:
        """Those of a Matmul."""
        return self._product().families(full)

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """A, Q and scales: the B that a Matmul has in this family, each column rounded to 127 steps of its largest."""
        a, b = self._product().make_inputs(family, seed)
        wide = b.astype(np.float32)
        largest = np.abs(wide).max(axis=0, keepdims=True)
        # Powers of two beside what they are multiplied with would hide a scale that is rounded to bfloat16.
        scales = np.where(largest > 0, largest / np.float32(_LARGEST), np.float32(1 / 3))
        q = np.clip(np.rint(wide / scales), -_LARGEST, _LARGEST).astype(np.int8)
        return a, q, scales.astype(np.float32)

    def _product(self) -> Matmul:
        """The product whose matrices these are, but for the rounding of B."""
        return Matmul(m=self.m, n=self.n, k=self.k, dtype=self.dtype)

    def recipe(self, family: str, seed: int) -> str:
        """The recipe of values that a drawn family has with this seed, or the recipe that it is."""
        return self._product().recipe(family, seed)

    def draw_recipe(self, random: np.random.Generator) -> str:
        """A recipe of any kind."""
        return self._product().draw_recipe(random)

    def mutate_recipe(self, recipe: str, random: np.random.Generator) -> str:
        """A recipe near this one."""
        return self._product().mutate_recipe(recipe, random)

    def recipe_in_words(self, recipe: str) -> str:
        """What stands out of it, for people."""
        return self._product().recipe_in_words(recipe)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Which rows depend on which rows of A, columns on which of Q and of the scales, all on every part of k."""
        drawn = product_probes.Drawn(rows=self.m, columns=self.n, seed=seed)
        if full:
            even = tuple(kind == "normal" for kind in turned(COMPOSITE, seed, self.m))
            # Where columns are far from zero, what a part adds may by chance be lost in the rounding of the whole.
            return (drawn.inner("a", _A, self.k, "composite", kinds=even, columns=self.n - self.n // 8),)
        return (
            drawn.inner("a", _A, self.k),
            drawn.some_rows("a", _A, self.k),
            drawn.some_columns("q", _Q, self.k),
            drawn.some_columns("the scales", _SCALES, 1),
        )

    def reduced(self) -> Iterator["QuantizedMatmul"]:
        """The same product with each length shortened to 256, 512, 1024, ... below this one, the cheapest first."""
        for m, n, k in shorter(self.m, self.n, self.k):
            yield replace(self, m=m, n=n, k=k)

    def second_shape(self, small: "QuantizedMatmul") -> "QuantizedMatmul | None":
        """As that of a Matmul."""
        second = self._product().second_shape(small._product())
        return None if second is None else replace(small, m=second.m, n=second.n, k=second.k)

    def sample_rows(self, seed: int) -> Rows:
        """All rows where that is cheap; else the first, the last, and some of every even stretch, each in full."""
        return sampled_rows(1, self.m, _CHECKED // (self.n * self.k), seed)

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]` float64: the scaled product in float64, from the inputs as they were rounded."""
        return self._of_rows(inputs, rows, np.float64, lambda a, q, scales: (a @ q) * scales)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]` float64: added up in float32, scaled in float32, rounded to dtype once."""
        dtype = DTYPES[self.dtype]
        return self._of_rows(inputs, rows, np.float32, lambda a, q, scales: ((a @ q) * scales).astype(dtype))

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), n]`: standard deviation of the output if every honest rounding were random.

        A scale turns the sum over k and all that was rounded in it alike, so that it is that of a product of A with
        the scaled weights (`product_deviation`); the scaling itself is one more rounding to float32, which is nothing
        beside one to bfloat16, and in float32 costs as much as one to the output.
        """

        def deviation(a: Values, q: Values, scales: Values) -> Values:
            scaled = q * scales
            found = np.square(product_deviation(a, scaled, self.dtype))
            if self.dtype == "float32":
                found += np.square(np.float32(np.finfo(np.float32).eps) * (a @ scaled)) / 12
            return np.asarray(np.sqrt(found))

        return self._of_rows(inputs, rows, np.float32, deviation)

    def _of_rows(
        self,
        inputs: Sequence[Values],
        rows: Rows,
        dtype: Any,
        function: Callable[[Values, Values, Values], Values],
    ) -> Exact:
        a, q, scales = inputs
        return function(a[rows].astype(dtype), q.astype(dtype), scales.astype(dtype)).astype(np.float64)
