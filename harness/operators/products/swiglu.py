"""Gated linear unit with SiLU, Y = silu(X Wg) * (X Wu), optionally times Wd: shapes, useful work, exact outputs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.operators import textures
from harness.operators.axes import Operator, axis
from harness.operators.blocks import BLOCK, slices, turned
from harness.operators.controls import Answer
from harness.operators.fields import require_flag
from harness.operators.normals import normal
from harness.operators.probes import Probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.products import probes as product_probes
from harness.operators.rounding import DTYPES, deviation, relative_rounding, sum_variance, ulp
from harness.operators.space import DRAWN, RECIPE, generator
from harness.operators.survey import block_sums, drawn_columns, random_signs, root_mean_square
from harness.records import Array, ExpectedCount, Statement, Work

# The factor and the offset of a row of X in the composite, by its position modulo 5, counted from a drawn place.
_EVEN, _FAR = (1.0, 0.0), (1.0, 1.0)
_COMPOSITE = (_EVEN, (10.0, 0.0), _EVEN, (50.0, 0.0), _FAR)
# The most multiply-adds of a survey without Wd, each up to four times: a second on one core.
_SURVEYED = 8 << 30
# The number of hidden columns that are computed at a time.
_COLUMNS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SwiGLU(Operator, textures.Textured):
    """Y [tokens, hidden] = silu(X Wg) * (X Wu), or with `down` Y [tokens, model] = (silu(X Wg) * (X Wu)) Wd.

    X [tokens, model], Wg, Wu [model, hidden], Wd [hidden, model]; silu(g) = g / (1 + exp(-g)).
    Products are added up in float32, and gate and up values stay in float32 until they are multiplied: the purpose of
    the fusion is that they are not rounded, which `forbidden` checks. Raises UsageError `bad-problem`.
    """

    operation = "swiglu"
    own_families = ("normal", "gates-x10", "gates-x50", "far-values")
    # The most multiply-adds that one check computes for its rows, each up to six times: two seconds on one core.
    checked = 3 << 30
    tokens: int = field(metadata=axis(is_uneven=True))
    model: int = field(metadata=axis(is_uneven=True))
    hidden: int = field(metadata=axis())
    down: bool = False
    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        self.require_fields()
        require_flag("swiglu", "down", self.down)

    @property
    def columns(self) -> int:
        """The number of columns of the output."""
        return self.model if self.down else self.hidden

    def work(self) -> Work:
        """The useful work of one call.

        2 FLOPs count for each multiply-add of two products (three with `down`), and 5 for each hidden value
        (exponential, sum, division, and two products), one of them an exponential. X and the weights are read once and
        Y is written once, because hidden values need not leave the chip.
        """
        values = self.tokens * self.hidden
        weights = (3 if self.down else 2) * self.model * self.hidden
        elements = self.tokens * (self.model + self.columns) + weights
        return Work(
            matmul_flops=2 * self.tokens * weights,
            vector_flops=5 * values,
            minimum_hbm_bytes=elements * DTYPES[self.dtype].itemsize,
            exponentials=values,
        )

    def statement(self) -> Statement:
        products = 3 if self.down else 2
        words = "(silu(X Wg) * (X Wu)) Wd" if self.down else "silu(X Wg) * (X Wu)"
        more, fewer = "blocks do not fit the MXU and are split", "a product does not run on the MXU"
        more = f"the body is unrolled, or {more}"
        weight = Array(name="w_gate", shape=(self.model, self.hidden), dtype=self.dtype)
        inputs = (
            Array(name="x", shape=(self.tokens, self.model), dtype=self.dtype),
            weight,
            replace(weight, name="w_up"),
            Array(name="w_down", shape=(self.hidden, self.model), dtype=self.dtype),
        )
        return Statement(
            operation=self.operation,
            title=f"swiglu {words}, {self.tokens} tokens, model {self.model}, hidden {self.hidden}, {self.dtype}",
            parameters=self.parameters,
            inputs=inputs[: products + 1],
            outputs=(Array(name="y", shape=(self.tokens, self.columns), dtype=self.dtype),),
            work=self.work(),
            expected=(
                ExpectedCount(counter="matmul", low=products, high=products, more=more, fewer=fewer),
                ExpectedCount(counter="exp", low=1, high=1, more="the body is unrolled, or gates are computed again"),
                ExpectedCount(counter="reduction", low=0, high=0, more="not part of a product: the MXU accumulates"),
            ),
        )

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """X and the weights of the named family. Raises ValueError for a family that does not exist.

        normal: all values and gates about N(0, 1). gates-x10, gates-x50: X 10 or 50 times as large, so that
        exponentials of both signs overflow where they can. far-values: X is around 1 and Wu far from zero, so that sums
        grow evenly and an accumulator that is too narrow stops growing. composite: all of these, by row and column.
        """
        if family.startswith((DRAWN, RECIPE)):
            made, cancelled, drawing = self._textured(family, seed)
            textures.cancel(made[0], made[1], cancelled, drawing)
            # Weights are scaled by their number of terms; otherwise no gate would be near zero.
            made[1:] = [weight * np.float32(len(weight) ** -0.5) for weight in made[1:]]
            return tuple(array.astype(DTYPES[self.dtype]) for array in made)
        self.require_family(family)
        random = generator(family, seed)
        shapes = [array.shape for array in self.statement().inputs]
        x, *weights = (normal(random, *shape) for shape in shapes)
        for weight in weights:
            weight *= np.float32(len(weight) ** -0.5)
        if family in ("gates-x10", "gates-x50"):
            x *= 10 if family == "gates-x10" else 50
        elif family == "composite":
            pattern = np.array(turned(_COMPOSITE, seed, self.tokens), dtype=np.float32)
            factors, offsets = np.resize(pattern, (self.tokens, 2)).T[:, :, None]
            x = x * factors + offsets
        if family in ("far-values", "composite"):
            self._move_away(weights[1], random, all_columns=family == "far-values")
        if family == "far-values":
            x += np.float32(1)
        return tuple(array.astype(DTYPES[self.dtype]) for array in (x, *weights))

    def _move_away(self, up: NDArray[Any], random: np.random.Generator, *, all_columns: bool) -> None:
        """Adds numbers near 100 or -100, scaled like the weights, to all columns of Wu or to its last eighth."""
        count = self.hidden if all_columns else self.hidden // 8
        offsets = textures.far_offsets(count, random)
        up[:, self.hidden - count :] += offsets * np.float32(self.model**-0.5)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: an output row must depend on all parts of its row of X, a column on its columns of the weights."""
        drawn = product_probes.Drawn(rows=self.tokens, columns=self.columns, seed=seed)
        if full:
            even = tuple(kind == _EVEN for kind in turned(_COMPOSITE, seed, self.tokens))
            return (drawn.inner("x", 0, self.model, "composite", kinds=even),)
        drawn_probes = [drawn.inner("x", 0, self.model), drawn.some_rows("x", 0, self.model)]
        if self.down:
            return (*drawn_probes, drawn.parts("w_down", 3, self.hidden), drawn.some_columns("w_down", 3, self.hidden))
        return (*drawn_probes, drawn.some_columns("w_gate", 1, self.model), drawn.some_columns("w_up", 2, self.model))

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), columns]` float64: the formula in float64, from the rounded inputs."""
        return self._computed(inputs, rows, np.float64, lambda gate, up: gate * _sigmoid(gate) * up)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), columns]` float64: all in float32, hidden values before Wd and the output rounded to dtype."""
        dtype = DTYPES[self.dtype]
        outputs = self._computed(
            inputs, rows, np.float32, lambda gate, up: (gate * _sigmoid(gate) * up).astype(dtype).astype(np.float32)
        )
        return outputs.astype(dtype).astype(np.float64)

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), columns]`: standard deviation of the output if every honest rounding were random.

        First-order propagation of independent roundings. A hidden value is h = g s u with gate g, up value u and
        s = 1 / (1 + exp(-g)). Its variances are:
        - g and u, which are float32 sums (`sum_variance`):  their variances times (u s (1 + g (1 - s)))^2 and (g s)^2;
        - the exponential, right to one ulp, from an argument rounded once more (log2(e) may be in it), and two products
          and a quotient, rounded to float32:  h^2 ((1 - s)^2 (e32^2 / 3 + r32^2 g^2) + 3 r32^2);
        - s, where exp(-g) exceeds float32's largest number or s is below its smallest normal number t:  (g u t)^2;
        - h, which is rounded to dtype if there is a Wd:  r^2 h^2.
        With Wd, these variances are multiplied by the squares of Wd and added up, and the variance of the float32 sum
        over hidden is added. The output itself has the variance ulp(y)^2 / 12.
        """
        relative, relative32 = relative_rounding(self.dtype), relative_rounding("float32")
        eps32, tiny = float(np.finfo(np.float32).eps), float(np.finfo(np.float32).tiny)
        x = inputs[0][rows].astype(np.float32)
        squares = np.square(x)
        variance, sums, products = (np.zeros((len(rows), self.columns)) for _ in range(3))
        for columns in slices(self.hidden, _COLUMNS):
            gate_weight, up_weight = (weight[:, columns].astype(np.float32) for weight in inputs[1:3])
            # In float64 from here on: squares of tiny numbers underflow float32.
            gate, up = ((x @ weight).astype(np.float64) for weight in (gate_weight, up_weight))
            of_gate, of_up = (
                sum_variance(squares @ np.square(weight), values, self.model)
                for weight, values in ((gate_weight, gate), (up_weight, up))
            )
            share = _sigmoid(gate)
            hidden = gate * share * up
            hidden_variance = np.square(up * share * (1 + gate * (1 - share))) * of_gate
            hidden_variance += np.square(gate * share) * of_up
            argument = eps32**2 / 3 + relative32**2 * np.square(gate)
            hidden_variance += np.square(hidden) * (np.square(1 - share) * argument + 3 * relative32**2)
            hidden_variance += np.square(gate * up * tiny)
            if not self.down:
                variance[:, columns] = hidden_variance + np.square(ulp(hidden, self.dtype)) / 12
                continue
            down = inputs[3][columns].astype(np.float32)
            variance += (hidden_variance + np.square(relative * hidden)) @ np.square(down)
            sums += hidden @ down
            products += np.square(hidden) @ np.square(down)
        if self.down:
            variance += sum_variance(products, sums, self.hidden) + np.square(ulp(sums, self.dtype)) / 12
        return deviation(variance)

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: a product or the sigmoid left out, or another activation."""
        hidden: dict[str, Any] = {
            "the gate left out": lambda gate, up: up,
            "the up value left out": lambda gate, up: gate * _sigmoid(gate),
            "the sigmoid left out": lambda gate, up: gate * up,
            "the sigmoid alone as the gate": lambda gate, up: _sigmoid(gate) * up,
            "a rectifier for the sigmoid": lambda gate, up: np.maximum(gate, 0) * up,
        }

        def answer(change: Any) -> Answer:
            return lambda inputs, rows: self._computed(inputs, rows, np.float64, change)

        return {name: answer(change) for name, change in hidden.items()}

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[tokens]`: the error of each row in deviations, by some columns of every 128; with Wd, by checksums.

        Without Wd an output needs only its own column of the weights. All columns are computed if that takes at most
        `_SURVEYED` multiply-adds; otherwise as many of every 128 as this limit allows, and at least one. With Wd every
        output needs all hidden values, which are computed as in `honest`.
        """
        rows = np.arange(self.tokens)
        if not self.down:
            one_of_each = 2 * self.tokens * self.model * -(-self.hidden // BLOCK)
            some = drawn_columns(self.hidden, seed, max(1, min(BLOCK, _SURVEYED // one_of_each)))
            few = replace(self, hidden=len(some))
            part = (inputs[0], *(np.ascontiguousarray(weight[:, some]) for weight in inputs[1:]))
            error = outputs[0][:, some].astype(np.float64) - few.honest(part, rows)
            return root_mean_square(error / few.rounding(part, rows))
        whole = replace(self, down=False)
        signs, relative = random_signs(self.model, seed), relative_rounding(self.dtype)
        down = inputs[3].astype(np.float64)
        checks = block_sums(down * signs, BLOCK)
        squares = block_sums(np.square(down), BLOCK)
        off = np.empty(self.tokens)
        for part_of_rows in slices(self.tokens, _COLUMNS):
            chunk = rows[part_of_rows]
            hidden, got = whole.honest(inputs[:3], chunk), outputs[0][chunk].astype(np.float64)
            variance = np.square(hidden) @ squares + block_sums(np.square(got), BLOCK)
            error = block_sums(got * signs, BLOCK) - hidden @ checks
            off[chunk] = root_mean_square(error / np.maximum(relative * np.sqrt(variance), np.finfo(np.float32).tiny))
        return off

    def forbidden(self, inputs: Sequence[Values], rows: Rows) -> dict[str, Exact]:
        """The error `[len(rows), columns]` of each rounding to dtype that the statement forbids, by the rounded value.

        To first order, it is the rounding error of the value times its factor in the output. Each error is about as
        large as that of rounding the output once, so no bound on the size of errors can distinguish the roundings.
        """
        dtype = DTYPES[self.dtype]

        def rounding_error(values: NDArray[Any]) -> NDArray[Any]:
            difference: NDArray[Any] = values.astype(dtype).astype(np.float64) - values
            return difference

        effects = {
            "the up value": lambda gate, up, share: gate * share * rounding_error(up),
            "the gate that is multiplied": lambda gate, up, share: rounding_error(gate) * share * up,
            "the sigmoid": lambda gate, up, share: gate * rounding_error(share) * up,
            "silu(gate)": lambda gate, up, share: rounding_error(gate * share) * up,
        }
        if self.dtype == "float32":
            return {}

        def error(effect: Any) -> Exact:
            return self._computed(inputs, rows, np.float64, lambda gate, up: effect(gate, up, _sigmoid(gate)))

        return {name: error(effect) for name, effect in effects.items()}

    def _computed(self, inputs: Sequence[Values], rows: Rows, dtype: Any, hidden: Any) -> Exact:
        """The output in `dtype`, some hidden columns at a time; `hidden(gate, up)` are their values."""
        x = inputs[0][rows].astype(dtype)
        result = np.zeros((len(rows), self.columns), dtype=dtype)
        for columns in slices(self.hidden, _COLUMNS):
            gate, up = (x @ weight[:, columns].astype(dtype) for weight in inputs[1:3])
            values = hidden(gate, up)
            if self.down:
                result += values @ inputs[3][columns].astype(dtype)
            else:
                result[:, columns] = values
        return result


def _sigmoid(values: NDArray[Any]) -> NDArray[Any]:
    """1 / (1 + exp(-values)) without overflow on either side."""
    small = np.exp(-np.abs(values))
    sigmoids: NDArray[Any] = np.where(values < 0, small, 1) / (1 + small)
    return sigmoids
