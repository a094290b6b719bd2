"""Attention backward, dq, dk and dv from residuals: shapes, useful work, exact outputs and their roundings."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from harness.operators.attention import backward_probes as attention_backward_probes
from harness.operators.attention import inputs as attention_inputs
from harness.operators.attention import space as attention_space
from harness.operators.attention import survey as attention_survey
from harness.operators.attention.space import Field, Recipe
from harness.operators.axes import Operator, axis
from harness.operators.controls import Answer
from harness.operators.fields import require_flag, require_positive
from harness.operators.probes import Probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.rounding import DTYPES, drop_subnormal, relative_rounding, sum_variance, ulp
from harness.operators.space import DRAWN, RECIPE, Recipes, generator, parsed
from harness.records import Array, ExpectedCount, Statement, Work

_FAR_GRADIENTS = "far-gradients"
_LIGHT_KEYS = "light-keys"
# With equal keys dq is the rounding of o and nothing else, so equal keys are no family here.
# Of scores far below zero the residuals would lose what weights depend on.
_LEFT_OUT = ("equal-keys", attention_inputs.FAR_BELOW)
_FAMILIES = (*(kind for kind in attention_inputs.FAMILIES if kind not in _LEFT_OUT), _FAR_GRADIENTS, _LIGHT_KEYS)
# Kinds of recipes of which each check draws one; `attack` draws of all.
_DRAWN = ("rises", "scales", "mixture")
_OFFSETS = (96.0, 104.0)
# By how much the scores of all other keys are raised above those of light ones. A query that is rounded once errs alike
# for all of these, which `rounding` does not know: at 24 an honest kernel was off by 8.4 deviations, of 10.
_RAISED = 12.0
_LIMITS = {**attention_space.LIMITS, "logit": (-_RAISED, _RAISED), "distinct": (0, 0)}
# Pairs held at once: 8 MB as float64, and about twenty such arrays are alive together.
_CHUNK_PAIRS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Some queries of one head against some of its keys, `[queries, keys]`.

    `weights` are p = exp(s - lse), `value_products` dp, `differences` dp - delta.
    """

    scores: NDArray[Any]
    weights: NDArray[Any]
    value_products: NDArray[Any]
    differences: NDArray[Any]

    @property
    def score_gradients(self) -> NDArray[Any]:
        """ds = p (dp - delta)."""
        gradients: NDArray[Any] = self.weights * self.differences
        return gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBackward(Operator, Recipes):
    """dq, dk, dv of `heads` heads of softmax(scale Q K^T) V, from its residuals.

    q, k, v, o, do and the outputs are `[heads, sequence, head_dim]` in `dtype`, lse `[heads, sequence]` float32; the
    head axis is absent where there is one head. o is the forward's output as it was rounded, lse the logarithm of each
    row's sum of exponentials. With s = scale q k^T, p = exp(s - lse), dp = do v^T and delta = sum(o do) over
    head_dim, from o as it is given:  ds = p (dp - delta), dq = scale ds k, dk = scale ds^T q, dv = p^T do. Causal:
    query i sees the keys j <= i. scale None: 1 / sqrt(head_dim). Raises UsageError `bad-problem`.
    """

    operation = "attention_backward"
    record, kinds = Recipe, tuple(kind for kind in attention_space.KINDS if kind != "ties")
    limits = _LIMITS
    # Query-key pairs that one check may cost, each twice: about a second on one core.
    checked = 1 << 21
    heads: int = field(default=1, metadata=axis(few=2))
    sequence: int = field(metadata=axis(is_uneven=True))
    head_dim: int
    dtype: str = "bfloat16"
    causal: bool = False
    scale: float = None  # type: ignore[assignment]  # filled in on construction

    def __post_init__(self) -> None:
        """Fills the scale in, then refuses what does not exist."""
        self.require_fields()
        self.fill(scale=1 / math.sqrt(self.head_dim))
        require_positive("attention_backward", "scale", self.scale)
        require_flag("attention_backward", "causal", self.causal)

    def work(self) -> Work:
        """The useful work of one call.

        2 FLOPs per multiply-add in five products over head_dim (scores and do v^T, then dq, dk and dv), 2.5 times the
        forward's; 5 for every pair (scale, subtract lse, exponential, subtract delta, multiply), and 2 head_dim for
        every delta. Masked pairs are not useful. Every input read once, every output written once.
        """
        pairs = self.heads * self.sequence * (self.sequence + 1) // 2 if self.causal else self.heads * self.sequence**2
        elements = self.heads * self.sequence * self.head_dim
        return Work(
            matmul_flops=10 * pairs * self.head_dim,
            vector_flops=5 * pairs + 2 * elements,
            minimum_hbm_bytes=8 * elements * DTYPES[self.dtype].itemsize + 4 * self.heads * self.sequence,
            exponentials=pairs,
        )

    def statement(self) -> Statement:
        """This problem in words and numbers; `scale` as the number that it is."""
        heads = f"{self.heads} head{'s' * (self.heads > 1)}"
        words = f"{self.dtype}, causal" if self.causal else self.dtype
        q = Array(name="q", shape=self._shape, dtype=self.dtype)
        lse = Array(name="lse", shape=self._shape[:-1], dtype="float32")
        inputs = tuple(lse if name == "lse" else replace(q, name=name) for name in ("q", "k", "v", "o", "lse", "do"))
        return Statement(
            operation=self.operation,
            title=f"attention backward, {heads}, sequence {self.sequence}, head_dim {self.head_dim}, {words}",
            parameters=self.parameters,
            inputs=inputs,
            outputs=tuple(replace(q, name=name) for name in ("dq", "dk", "dv")),
            work=self.work(),
            # One kernel for all three has five products; one for dq and one for dk and dv make scores and do v^T twice.
            expected=(
                ExpectedCount(
                    counter="matmul",
                    low=5,
                    high=7,
                    more="a body is unrolled, or blocks do not fit the MXU and are split",
                    fewer="a product does not run on the MXU",
                ),
                ExpectedCount(counter="exp", low=1, high=2, more="a body is unrolled"),
                ExpectedCount(counter="reduction", low=0, high=2, more="delta is summed again in every step"),
            ),
        )

    @property
    def _shape(self) -> tuple[int, ...]:
        head_shape = (self.sequence, self.head_dim)
        return (self.heads, *head_shape) if self.heads > 1 else head_shape

    def families(self, full: bool) -> tuple[str, ...]:
        """A composite of everything at the full shape; each kind of input by itself, and draws, at a reduced one."""
        return ("composite",) if full else (*_FAMILIES, *(DRAWN + kind for kind in _DRAWN))

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """q, k, v of the named family or recipe as of Attention, their residuals, and do N(0, 1). Raises ValueError.

        far-gradients: do N(c, 1) with c near 100, another in every column, so that sums grow evenly, and dp - delta is
        small beside both.
        light-keys: all queries hardly see the first half to three quarters of the keys, whose dk and dv are as small as
        their weights and no less exact. A block of half the keys of the shortest sequence is always among them.
        """
        shape = attention_inputs.InputSizes(
            batch=1,
            heads=self.heads,
            kv_heads=self.heads,
            sequence=self.sequence,
            kv_sequence=self.sequence,
            head_dim=self.head_dim,
            causal=self.causal,
            scale=self.scale,
        )
        dtype = DTYPES[self.dtype]
        if family.startswith((DRAWN, RECIPE)):
            recipe = parsed(self.recipe(family, seed), Recipe)
            arrays = attention_space.build(shape, recipe, generator(family, seed))
        elif family == _LIGHT_KEYS:
            drawn = generator(family, seed)
            raised = Field(course="step", logit=_RAISED, place=drawn.uniform(0.5, 0.75), spread=0.2)
            arrays = attention_space.build(shape, Recipe(fields=(raised,)), drawn)
        else:
            arrays = attention_inputs.make(shape, "normal" if family == _FAR_GRADIENTS else family, seed)
        q, k, v = (array[0].astype(dtype) for array in arrays)
        o, lse = np.empty_like(q), np.empty(q.shape[:2], np.float32)
        rows = max(1, _CHUNK_PAIRS // self.sequence)
        for head in range(self.heads):
            keys, values = k[head].astype(np.float32), v[head].astype(np.float32)
            for start in range(0, self.sequence, rows):
                block = slice(start, start + rows)
                scores = (q[head, block].astype(np.float32) @ keys.T) * np.float32(self.scale)
                self._mask(scores, np.arange(self.sequence)[block], -np.inf)
                largest = scores.max(axis=1, keepdims=True)
                weights = np.exp(scores - largest)
                drop_subnormal(weights)
                total = weights.sum(axis=1, keepdims=True)
                lse[head, block] = (largest + np.log(total))[:, 0]
                o[head, block] = ((weights @ values) / total).astype(dtype)
        random = np.random.default_rng(np.random.SeedSequence((seed, self.sequence, self.heads)))
        do = random.standard_normal(q.shape, dtype=np.float32)
        if family == _FAR_GRADIENTS:
            do += random.uniform(*_OFFSETS, (self.heads, 1, self.head_dim)).astype(np.float32)
        inputs = (q, k, v, o, lse, do.astype(dtype))
        return tuple(a.reshape(s.shape) for a, s in zip(inputs, self.statement().inputs, strict=True))

    def drawn_record(self, kind: str, random: np.random.Generator) -> Recipe:
        """As `attention_space.draw`, with no keys repeated and scores as far apart as those of light keys at most."""
        return replace(attention_space.within(attention_space.draw(kind, random), _RAISED), distinct=0)

    def _mask(self, pairs: NDArray[Any], queries: NDArray[np.int64], value: float) -> None:
        """Puts `value` where a query does not see a key, of all keys."""
        if self.causal:
            pairs[np.arange(pairs.shape[1]) > queries[:, None]] = value

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes of gradients: each depends on certain queries, keys, values and residuals, none beyond the mask."""
        return attention_backward_probes.probes(self.heads, self.sequence, self.head_dim, self.causal, full, seed)

    @property
    def row_cost(self) -> int:
        """The cost of a row, in query-key pairs."""
        return self.sequence * self.heads

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), 3 head_dim]` float64: the formulas in float64, from the inputs as they were rounded."""
        return self._gradients(inputs, rows, np.float64, lambda array: array)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), 3 head_dim]` float64: all in float32, p and ds rounded to dtype before products, and outputs."""
        dtype = DTYPES[self.dtype]
        gradients = self._gradients(inputs, rows, np.float32, lambda array: array.astype(dtype).astype(np.float32))
        return gradients.astype(dtype).astype(np.float64)

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), 3 head_dim]`: standard deviation of the gradients if every honest rounding were random.

        First-order propagation, roundings independent. With r the relative deviation of one rounding to dtype, r32
        that of one to float32, e32 float32's epsilon, a_ij the 2-norm of the elementwise product scale q_i * k_j, and
        b_ij that of do_i * v_j, the variances are:
        scores, from scaled queries rounded once and a float32 sum:  S = r^2 a^2 + r32^2 head_dim (a^2 + s^2 / 3);
        as lse is given, nothing that keys have in common cancels;
        dp, a float32 sum:  D = r32^2 head_dim (b^2 + dp^2 / 3), and delta alike:  T, the same for a whole row;
        p, from an exponential right to one ulp and rounded to dtype:  P = p^2 (S + e32^2 / 3 + r^2) + t^2, where
        what is smaller than t, float32's smallest normal number, may be taken for zero;
        ds, rounded to dtype:  E = (dp - delta)^2 P + p^2 D + t^2.
        They go through the sums:  dv_j: sum_i P do_i^2;  dk_j: scale^2 sum_i (E + p^2 T) q_i^2;
        dq_i: scale^2 (sum_j E k_j^2 + (sum_j p k_j)^2 T_i). To each its float32 sum over the sequence (`sum_variance`)
        and the rounding of the output, ulp^2 / 12, exactly what rounding to nearest costs.
        """
        result = np.empty((len(rows), 3 * self.head_dim))
        scale = self.scale**2
        for places, at, head in self._pieces(inputs, rows, np.float64):
            q, k, v, o, lse, do = head
            delta, of_delta = self._deltas(o, do)
            # Some queries against all keys, then all queries against some keys.
            pairs = self._pairs(q[at], k, v, do[at], (lse[at], delta[at]), at, None)
            _, of_gradients = self._variances(pairs, q[at], k, v, do[at])
            common = np.square(pairs.weights @ k) * of_delta[at][:, None]
            variance = scale * (of_gradients @ np.square(k) + common)
            self._put(result, places, 0, variance, pairs.score_gradients, k, self.scale)
            pairs = self._pairs(q, k[at], v[at], do, (lse, delta), None, at)
            of_weights, of_gradients = self._variances(pairs, q, k[at], v[at], do)
            of_gradients += np.square(pairs.weights) * of_delta[:, None]
            variance = scale * (of_gradients.T @ np.square(q))
            self._put(result, places, 1, variance, pairs.score_gradients.T, q, self.scale)
            self._put(result, places, 2, of_weights.T @ np.square(do), pairs.weights.T, do, 1.0)
        # Zero only where everything is exactly zero.
        return np.maximum(result, np.finfo(np.float32).tiny)

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: delta left out, dq and dk exchanged, p and ds of three bits, no mask."""

        def exchanged(inputs: Sequence[Values], rows: Rows) -> Exact:
            dq, dk, dv = np.split(self.reference(inputs, rows), 3, axis=1)
            return np.concatenate((dk, dq, dv), axis=1)

        def without_delta(inputs: Sequence[Values], rows: Rows) -> Exact:
            return self.reference((*inputs[:3], np.zeros_like(inputs[3]), *inputs[4:]), rows)

        answers: dict[str, Answer] = {
            "delta left out": without_delta,
            "dq and dk exchanged": exchanged,
            "p and ds of three bits": lambda inputs, rows: self._gradients(
                inputs, rows, np.float32, lambda array: array.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
            ),
        }
        if self.causal:
            answers["no mask"] = replace(self, causal=False).reference
        return answers

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[rows]`: how far each row is off, by a checksum of every 32 columns of each gradient, weights in float32."""
        off = []
        for head in range(self.heads):
            head_inputs, gradients = (
                tuple(
                    array.reshape(self.heads, self.sequence, *array.shape[len(self._shape) - 1 :])[head]
                    for array in arrays
                )
                for arrays in (inputs, outputs)
            )
            errors_and_variances = attention_survey.gradient_errors(
                head_inputs, gradients, self.scale, self.dtype, is_causal=self.causal, seed=seed
            )
            off.append(attention_survey.in_deviations(*errors_and_variances, self.dtype))
        return np.concatenate(off)

    def _put(
        self, result: Exact, places: NDArray[np.int64], output: int, variance: Exact, a: Exact, b: Exact, scale: float
    ) -> None:
        """Writes one output's deviation, the variance of its float32 sum and of its own rounding added."""
        sums = scale * (a @ b)
        whole = variance + sum_variance(scale**2 * (np.square(a) @ np.square(b)), sums, self.sequence)
        columns = slice(output * self.head_dim, (output + 1) * self.head_dim)
        result[places, columns] = np.sqrt(whole + np.square(ulp(sums, self.dtype)) / 12)

    def _variances(self, pairs: _Pairs, q: Exact, k: Exact, v: Exact, do: Exact) -> tuple[Exact, Exact]:
        """P and E of `rounding`, `[queries, keys]`."""
        relative, relative32 = relative_rounding(self.dtype) ** 2, relative_rounding("float32") ** 2 * self.head_dim
        eps32, tiny = float(np.finfo(np.float32).eps), float(np.finfo(np.float32).tiny)
        products = np.square(self.scale * q) @ np.square(k).T
        scores = relative * products + relative32 * (products + np.square(pairs.scores) / 3)
        values = relative32 * (np.square(do) @ np.square(v).T + np.square(pairs.value_products) / 3)
        squares = np.square(pairs.weights)
        of_weights = squares * (scores + eps32**2 / 3 + relative) + tiny**2
        return of_weights, np.square(pairs.differences) * of_weights + squares * values + tiny**2

    def _deltas(self, o: Exact, do: Exact) -> tuple[Exact, Exact]:
        """delta of every query and its variance T of `rounding`."""
        products = o * do
        delta = products.sum(axis=1)
        relative32 = relative_rounding("float32") ** 2 * self.head_dim
        return delta, relative32 * (np.square(products).sum(axis=1) + np.square(delta) / 3)

    def _gradients(self, inputs: Sequence[Values], rows: Rows, dtype: Any, rounded: Any) -> Exact:
        """The formulas in `dtype`, p and ds as `rounded` makes them."""
        result = np.empty((len(rows), 3 * self.head_dim))
        scale = dtype(self.scale)
        for places, at, (q, k, v, o, lse, do) in self._pieces(inputs, rows, dtype):
            delta = (o * do).sum(axis=1)
            pairs = self._pairs(q[at], k, v, do[at], (lse[at], delta[at]), at, None)
            dq = scale * (rounded(pairs.score_gradients) @ k)
            pairs = self._pairs(q, k[at], v[at], do, (lse, delta), None, at)
            dk = scale * (rounded(pairs.score_gradients).T @ q)
            dv = rounded(pairs.weights).T @ do
            result[places] = np.concatenate((dq, dk, dv), axis=1)
        return result

    def _pairs(
        self,
        q: NDArray[Any],
        k: NDArray[Any],
        v: NDArray[Any],
        do: NDArray[Any],
        sums: tuple[NDArray[Any], NDArray[Any]],
        queries: NDArray[np.int64] | None,
        keys: NDArray[np.int64] | None,
    ) -> _Pairs:
        """All pairs of these queries and keys, at those positions of the sequence (None: all); 0 where masked.

        `sums` are lse and delta of the queries.
        """
        lse, delta = sums
        scores = (q @ k.T) * q.dtype.type(self.scale)
        if self.causal:
            everything = np.arange(self.sequence)
            behind = (everything if keys is None else keys) > (everything if queries is None else queries)[:, None]
            scores[behind] = -np.inf
        weights = np.exp(scores - lse[:, None])
        drop_subnormal(weights)
        scores[np.isneginf(scores)] = 0
        products = do @ v.T
        return _Pairs(scores=scores, weights=weights, value_products=products, differences=products - delta[:, None])

    def _pieces(
        self, inputs: Sequence[Values], rows: Rows, dtype: Any
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], list[NDArray[Any]]]]:
        """Of some rows of one head at a time: their places in the result, their positions, and the head's arrays."""
        heads, positions = np.divmod(rows, self.sequence)
        chunk = max(1, _CHUNK_PAIRS // self.sequence)
        for head in np.unique(heads):
            arrays = [
                array.reshape(self.heads, self.sequence, *shape.shape[len(self._shape) - 1 :])[head].astype(dtype)
                for array, shape in zip(inputs, self.statement().inputs, strict=True)
            ]
            every = np.flatnonzero(heads == head)
            for start in range(0, len(every), chunk):
                places = every[start : start + chunk]
                yield places, positions[places], arrays
