"""Attention backward, dq, dk and dv from residuals: shapes, useful work, exact outputs and their roundings."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from harness.operators.attention import backward_probes
from harness.operators.attention import inputs as attention_inputs
from harness.operators.attention import space as attention_space
from harness.operators.attention import survey as attention_survey
from harness.operators.attention.space import Field, Recipe
from harness.operators.axes import Operator, axis
from harness.operators.blocks import BLOCK, empty_block, slices
from harness.operators.controls import Answer
from harness.operators.fields import require_flag, require_positive
from harness.operators.probes import Probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.rounding import DTYPES, drop_subnormal, relative_rounding, sum_variance, ulp
from harness.operators.space import DRAWN, RECIPE, Recipes, generator, parsed
from harness.records import Array, ExpectedCount, Statement, Work

# The input that has no columns.
_LSE = 4
_FAR_GRADIENTS = "far-gradients"
_LIGHT_KEYS = "light-keys"
_FAR_SCORES = "far-scores"
# Families of Attention that are left out here. With equal keys, dq consists only of the rounding of o. With scores far
# below zero, the residuals would lose the digits that weights depend on (the family far-scores is nearer to zero).
_LEFT_OUT = ("equal-keys", attention_inputs.FAR_BELOW)
_KEPT = tuple(kind for kind in attention_inputs.FAMILIES if kind not in _LEFT_OUT)
_FAMILIES = (*_KEPT, _FAR_GRADIENTS, _LIGHT_KEYS, _FAR_SCORES)
# Each check draws one recipe of each of these kinds; `attack` draws from all kinds.
_DRAWN = ("rises", "scales", "mixture")
_OFFSETS = (96.0, 104.0)
# In far-scores, the range of the number (of either sign) that all scores of a query share; it changes no weight.
_SCORES = (50.0, 300.0)
# The number of bfloat16 numbers from one power of two to the next, and the number of pairs from which
# `_exact_when_scaled` draws.
_FRACTIONS, _PAIRS = 128, 4
# The powers of two that scale `do`: of a whole input, and of single rows. Gradients of a loss that is averaged over
# many tokens are this small.
_POWERS, _POWERS_OF_ROWS = (-30, 10), (-16, 0)
# The scores of all other keys are this much higher than those of the light keys. Rounding a query once gives all the
# raised scores the same error, which `rounding` does not model: with 24 instead of 12, an honest kernel was off by 8.4
# deviations, and 10 are allowed.
_RAISED = 12.0
_LIMITS = {**attention_space.LIMITS, "logit": (-_RAISED, _RAISED), "distinct": (0, 0)}
# The most query-key pairs in memory at once: 8 MB as float64, and about twenty such arrays are alive together.
_CHUNK_PAIRS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """The terms of some queries with some of the keys that their heads share, each `[queries, keys]`.

    `scores` are s, `weights` p = exp(s - lse), `value_products` dp, and `differences` dp - delta.
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
    """dq, dk, dv of `heads` heads of softmax(scale Q K^T) V over `kv_heads` shared key/value heads, from its residuals.

    q, o, do and dq are `[heads, sequence, head_dim]` in `dtype`, k, v, dk and dv `[kv_heads, sequence, head_dim]`, lse
    `[heads, sequence]` float32; the head axis is absent if there is one head. Query head h reads key/value head
    h // (heads // kv_heads), whose dk and dv are sums over all heads that read it. o is the forward's rounded output,
    lse the logarithm of each row's sum of exponentials. With s = scale q k^T, p = exp(s - lse), dp = do v^T and delta =
    sum(o do) over head_dim, from the input o:  ds = p (dp - delta), dq = scale ds k, dk = scale ds^T q, dv = p^T do.
    Causal: query i sees the keys j <= i.

    In the matrix of all outputs (operators/outputs.py), a row holds n = heads // kv_heads rows of dq, one row of dk and
    one row of dv. If kv_heads is None, it is `heads`. If scale is None, it is 1 / sqrt(head_dim). Raises UsageError
    `bad-problem` for invalid fields.
    """

    operation = "attention_backward"
    record, kinds = Recipe, tuple(kind for kind in attention_space.KINDS if kind != "ties")
    limits = _LIMITS
    # The most query-key pairs that one check computes, each of them twice: about a second on one core.
    checked = 1 << 21
    heads: int = field(default=1, metadata=axis(multiple="kv_heads"))
    kv_heads: int = field(default=None, metadata=axis(few=2))  # type: ignore[assignment]  # filled in on construction
    sequence: int = field(metadata=axis(is_uneven=True))
    head_dim: int
    dtype: str = "bfloat16"
    causal: bool = False
    scale: float = None  # type: ignore[assignment]  # filled in on construction

    def __post_init__(self) -> None:
        """Fills in the defaults that depend on other fields. Raises UsageError `bad-problem` for invalid fields."""
        self.fill(kv_heads=self.heads)
        self.require_fields()
        self.fill(scale=1 / math.sqrt(self.head_dim))
        require_positive("attention_backward", "scale", self.scale)
        require_flag("attention_backward", "causal", self.causal)

    def work(self) -> Work:
        """The useful work of one call.

        - Each multiply-add in the five products over head_dim (scores and do v^T, then dq, dk and dv) counts as 2
          FLOPs. This is 2.5 times the number for the forward pass.
        - Each query-key pair counts as 5 FLOPs (scale, subtract lse, exponential, subtract delta, multiply). Masked
          pairs do not count.
        - Each delta counts as 2 head_dim FLOPs.
        - Every input is read once and every output is written once.
        """
        pairs = self.heads * self.sequence * (self.sequence + 1) // 2 if self.causal else self.heads * self.sequence**2
        query, key = (heads * self.sequence * self.head_dim for heads in (self.heads, self.kv_heads))
        return Work(
            matmul_flops=10 * pairs * self.head_dim,
            vector_flops=5 * pairs + 2 * query,
            minimum_hbm_bytes=4 * (query + key) * DTYPES[self.dtype].itemsize + 4 * self.heads * self.sequence,
            exponentials=pairs,
        )

    def statement(self) -> Statement:
        """This problem in words and numbers; `scale` is a number even if it was None."""
        heads = f"{self.heads} head{'s' * (self.heads > 1)}"
        if self._group > 1:
            heads += f" over {self.kv_heads} key/value head{'s' * (self.kv_heads > 1)}"
        words = f"{self.dtype}, causal" if self.causal else self.dtype
        q = Array(name="q", shape=self._shape(self.heads), dtype=self.dtype)
        k = Array(name="k", shape=self._shape(self.kv_heads), dtype=self.dtype)
        lse = Array(name="lse", shape=q.shape[:-1], dtype="float32")
        more = "a body is unrolled, or blocks do not fit the MXU and are split"
        return Statement(
            operation=self.operation,
            title=f"attention backward, {heads}, sequence {self.sequence}, head_dim {self.head_dim}, {words}",
            # Older statements have no kv_heads. If no keys are shared, it is left out, so that old digests stay valid.
            parameters=tuple(some for some in self.parameters if some[0] != "kv_heads" or self._group > 1),
            inputs=(q, k, replace(k, name="v"), replace(q, name="o"), lse, replace(q, name="do")),
            outputs=(replace(q, name="dq"), replace(k, name="dk"), replace(k, name="dv")),
            work=self.work(),
            # A single kernel has five products; two kernels, for dq and for dk and dv, compute scores and do v^T twice.
            expected=(
                ExpectedCount(counter="matmul", low=5, high=7, more=more, fewer="a product does not run on the MXU"),
                ExpectedCount(counter="exp", low=1, high=2, more="a body is unrolled"),
                ExpectedCount(counter="reduction", low=0, high=2, more="delta is summed again in every step"),
            ),
        )

    @property
    def _group(self) -> int:
        """The number of query heads that read the same keys."""
        return self.heads // self.kv_heads

    def _shape(self, heads: int) -> tuple[int, ...]:
        head_shape = (self.sequence, self.head_dim)
        return (heads, *head_shape) if self.heads > 1 else head_shape

    def families(self, full: bool) -> tuple[str, ...]:
        """The families: at the full shape, far scores and Attention's composite; at others, each kind and draws."""
        return (_FAR_SCORES, "composite") if full else (*_FAMILIES, *(DRAWN + kind for kind in _DRAWN))

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """q, k, v of the named family or recipe as in Attention, their residuals, and do N(0, 1). Raises ValueError.

        Where a recipe or the composite makes queries zero in all heads, do is zero too; do is also zero in a share of
        each head's other rows. The composite has a block of zero values. In the composite, in drawn inputs and in
        far-scores, do is multiplied by a power of two from 2^-30 to 2^10. Half of its rows are also multiplied by 2^-16
        to 2^-1, except in the composite.

        far-gradients: do is N(c, 1) with c near 100, different in every column, so that sums grow evenly and dp - delta
        is small compared with dp and delta. The sign of c alternates from head to head, as does that of far values; the
        sign of the first head is drawn.
        far-scores: one number of about 50 to 300, below zero for most queries, is added to all scores of a query.
        light-keys: the first half to three quarters of the keys have hardly any weight for any query. Their dk and dv
        are as small as these weights, but have the same relative accuracy as those of other keys. The light keys always
        include a block half as long as the shortest sequence.
        """
        shape = attention_inputs.InputSizes(
            batch=1,
            heads=self.heads,
            kv_heads=self.kv_heads,
            sequence=self.sequence,
            kv_sequence=self.sequence,
            head_dim=self.head_dim,
            causal=self.causal,
            scale=self.scale,
        )
        dtype, recipe = DTYPES[self.dtype], Recipe()
        if family.startswith((DRAWN, RECIPE)):
            recipe = parsed(self.recipe(family, seed), Recipe)
            arrays = attention_space.build(shape, recipe, generator(family, seed))
        elif family == _LIGHT_KEYS:
            drawn = generator(family, seed)
            raised = Field(course="step", logit=_RAISED, place=drawn.uniform(0.5, 0.75), spread=0.2)
            arrays = attention_space.build(shape, Recipe(fields=(raised,)), drawn)
        else:
            has_own = family in (_FAR_GRADIENTS, _FAR_SCORES)
            arrays = attention_inputs.make(shape, "normal" if has_own else family, seed)
            if family == _FAR_SCORES:
                _move_scores(self.scale, *arrays[:2], generator(family, seed))
            elif family == "far-values":
                # Only this family has far values in all columns, so with one head its sign must vary.
                arrays[2][:] *= generator(f"sign of {family}", seed).choice((-1, 1))
            elif family == "composite":
                # No probe needs these values: dv does not depend on them, and ds = -p delta where dp is zero.
                empty = empty_block(self.sequence, BLOCK, generator(f"zero values of {family}", seed))
                arrays[2][:, :, empty] = 0
        q, k, v = (array[0].astype(dtype) for array in arrays)
        o, lse = np.empty_like(q), np.empty(q.shape[:2], np.float32)
        rows = max(1, _CHUNK_PAIRS // self.sequence)
        for head in range(self.heads):
            keys, values = (array[head // self._group].astype(np.float32) for array in (k, v))
            for block in slices(self.sequence, rows):
                scores = (q[head, block].astype(np.float32) @ keys.T) * np.float32(self.scale)
                if self.causal:
                    scores[np.arange(self.sequence) > np.arange(self.sequence)[block, None]] = -np.inf
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
            do *= random.choice((-1, 1)) * attention_inputs.alternating_signs(self.heads)[:, None, None]
        elif family == "composite":
            attention_inputs.empty_gradients(do, seed, random)
        elif recipe.empty_queries:
            # A separate block of zeros in do might leave too few rows in which both do and q are nonzero.
            do[:, (q == 0).all(axis=(0, 2))] = 0
            do[random.random(do.shape[:2]) < recipe.empty_queries / 2] = 0
        if family in (_FAR_SCORES, "composite") or family.startswith((DRAWN, RECIPE)):
            powers = np.full(do.shape[:2], random.integers(*_POWERS, endpoint=True))
            # The probes of the composite need rows of about the same size.
            if family != "composite":
                powers += random.integers(*_POWERS_OF_ROWS, powers.shape) * random.integers(2, size=powers.shape)
            do *= np.exp2(powers).astype(np.float32)[..., None]
        inputs = (q, k, v, o, lse, do.astype(dtype))
        return tuple(a.reshape(s.shape) for a, s in zip(inputs, self.statement().inputs, strict=True))

    def drawn_record(self, kind: str, random: np.random.Generator) -> Recipe:
        """A recipe from `attention_space.draw`, but without repeated keys; fields add at most `_RAISED` to scores."""
        return replace(attention_space.within(attention_space.draw(kind, random), _RAISED), distinct=0)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: each gradient must depend on its queries, keys, values and residuals, and on none beyond the mask."""
        sizes = (self.heads, self.kv_heads, self.sequence, self.head_dim)
        return backward_probes.probes(*sizes, self.causal, full, seed)

    @property
    def row_cost(self) -> int:
        """The cost of a row, in query-key pairs."""
        return self.sequence * self.heads

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), (n + 2) head_dim]` float64: the formulas in float64, from the rounded inputs."""
        return self._gradients(inputs, rows, np.float64, lambda array: array)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), (n + 2) head_dim]` float64: computed in float32; p, ds and outputs are rounded to dtype."""
        dtype = DTYPES[self.dtype]
        gradients = self._gradients(inputs, rows, np.float32, lambda array: array.astype(dtype).astype(np.float32))
        return gradients.astype(dtype).astype(np.float64)

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), (n + 2) head_dim]`: deviation of the gradients if every honest rounding were random.

        First-order propagation of independent roundings. With r the relative deviation of one rounding to dtype, r32
        that of one to float32, e32 float32's epsilon, a_ij the 2-norm of the elementwise product scale q_i * k_j, and
        b_ij that of do_i * v_j, the variances are:
        - scores, from scaled queries rounded once and a float32 sum:  S = r^2 a^2 + r32^2 head_dim (a^2 + s^2 / 3); lse
          is an input, so errors that keys have in common do not cancel;
        - dp, a float32 sum:  D = r32^2 head_dim (b^2 + dp^2 / 3), and delta likewise:  T, the same for a whole row;
        - p, from an exponential right to one ulp and rounded to dtype:  P = p^2 (S + e32^2 / 3 + r^2) + t^2, where t is
          float32's smallest normal number, because smaller values may be flushed to zero;
        - ds, rounded to dtype:  E = (dp - delta)^2 P + p^2 D + t^2.

        The sums propagate these, with i in dv and dk over the queries of all heads that read the key:
        - dv_j:  sum_i P do_i^2;
        - dk_j:  scale^2 sum_i (E + p^2 T) q_i^2;
        - dq_i:  scale^2 (sum_j E k_j^2 + (sum_j p k_j)^2 T_i).

        Each variance also includes that of the float32 sum (`sum_variance`) and that of the output's rounding,
        ulp^2 / 12, which is exact for rounding to nearest.
        """
        result = np.empty((len(rows), (self._group + 2) * self.head_dim))
        scale = self.scale**2
        for places, at, group in self._pieces(inputs, rows, np.float64):
            q, k, v, o, lse, do = group
            delta, of_delta = self._deltas(o, do)
            # First some queries with all keys, then all queries with some keys.
            some = self._queries_of(at)
            pairs = self._pairs(q[some], k, v, do[some], (lse[some], delta[some]), some, None)
            _, of_gradients = self._variances(pairs, q[some], k, v, do[some])
            common = np.square(pairs.weights @ k) * of_delta[some][:, None]
            variance = scale * (of_gradients @ np.square(k) + common)
            of_q = self._whole(variance, pairs.score_gradients, k, self.scale)
            pairs = self._pairs(q, k[at], v[at], do, (lse, delta), None, at)
            of_weights, of_gradients = self._variances(pairs, q, k[at], v[at], do)
            of_gradients += np.square(pairs.weights) * of_delta[:, None]
            variance = scale * (of_gradients.T @ np.square(q))
            of_k = self._whole(variance, pairs.score_gradients.T, q, self.scale)
            of_v = self._whole(of_weights.T @ np.square(do), pairs.weights.T, do, 1.0)
            result[places] = np.concatenate((of_q.reshape(len(at), -1), of_k, of_v), axis=1)
        # The result is zero only where everything is exactly zero.
        return np.maximum(result, np.finfo(np.float32).tiny)

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: no delta, gradients exchanged, p and ds of three bits, no mask, heads mixed up."""

        def exchanged(inputs: Sequence[Values], rows: Rows) -> Exact:
            dq, dk, dv = self._split(self.reference(inputs, rows))
            return np.concatenate((*[dk] * self._group, dq[:, : self.head_dim], dv), axis=1)

        def of_the_last_head(inputs: Sequence[Values], rows: Rows) -> Exact:
            do = inputs[5].reshape(self.kv_heads, self._group, -1).copy()
            do[:, :-1] = 0
            dq, _, _ = self._split(self.reference(inputs, rows))
            _, dk, dv = self._split(self.reference((*inputs[:5], do), rows))
            return np.concatenate((dq, dk, dv), axis=1)

        def of_the_first_keys(inputs: Sequence[Values], rows: Rows) -> Exact:
            heads = (array.reshape(self.kv_heads, -1) for array in inputs[1:3])
            k, v = (np.broadcast_to(array[:1], array.shape) for array in heads)
            return self.reference((inputs[0], k, v, *inputs[3:]), rows)

        answers: dict[str, Answer] = {
            "delta left out": lambda inputs, rows: self.reference(
                (*inputs[:3], np.zeros_like(inputs[3]), *inputs[4:]), rows
            ),
            "dq and dk exchanged": exchanged,
            "p and ds of three bits": lambda inputs, rows: self._gradients(
                inputs, rows, np.float32, lambda array: array.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
            ),
        }
        if self.causal:
            answers["no mask"] = replace(self, causal=False).reference
        if self._group > 1:
            answers["dk and dv of the last head alone that reads a key"] = of_the_last_head
        if 1 < self.kv_heads < self.heads:
            answers["the first head's keys and values for all"] = of_the_first_keys
        return answers

    def _split(self, gradients: Exact) -> tuple[Exact, Exact, Exact]:
        """The parts of each row: dq of all heads that read the key, dk and dv."""
        dq, dk, dv = np.split(gradients, [self._group * self.head_dim, (self._group + 1) * self.head_dim], axis=1)
        return dq, dk, dv

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[rows]`: the error of each row in deviations, by a checksum of every 32 columns of each gradient."""
        off = []
        for inputs_of_group, gradients in zip(self._groups(inputs), self._groups(outputs), strict=True):
            errors_and_variances = attention_survey.gradient_errors(
                inputs_of_group, gradients, self.scale, self.dtype, is_causal=self.causal, seed=seed
            )
            off.append(attention_survey.in_deviations(*errors_and_variances, self.dtype))
        return np.concatenate(off)

    def _whole(self, variance: Exact, a: Exact, b: Exact, scale: float) -> Exact:
        """The deviation of an output: the root of `variance` + the variances of its float32 sum and of its rounding."""
        sums = scale * (a @ b)
        whole = variance + sum_variance(scale**2 * (np.square(a) @ np.square(b)), sums, len(b))
        deviation: Exact = np.sqrt(whole + np.square(ulp(sums, self.dtype)) / 12)
        return deviation

    def _variances(self, pairs: _Pairs, q: Exact, k: Exact, v: Exact, do: Exact) -> tuple[Exact, Exact]:
        """P and E of the docstring of `rounding`, each `[queries, keys]`."""
        relative, relative32 = relative_rounding(self.dtype) ** 2, relative_rounding("float32") ** 2 * self.head_dim
        eps32, tiny = float(np.finfo(np.float32).eps), float(np.finfo(np.float32).tiny)
        products = np.square(self.scale * q) @ np.square(k).T
        scores = relative * products + relative32 * (products + np.square(pairs.scores) / 3)
        values = relative32 * (np.square(do) @ np.square(v).T + np.square(pairs.value_products) / 3)
        squares = np.square(pairs.weights)
        of_weights = squares * (scores + eps32**2 / 3 + relative) + tiny**2
        return of_weights, np.square(pairs.differences) * of_weights + squares * values + tiny**2

    def _deltas(self, o: Exact, do: Exact) -> tuple[Exact, Exact]:
        """delta of every query, and its variance, T of the docstring of `rounding`."""
        products = o * do
        delta = products.sum(axis=1)
        relative32 = relative_rounding("float32") ** 2 * self.head_dim
        return delta, relative32 * (np.square(products).sum(axis=1) + np.square(delta) / 3)

    def _gradients(self, inputs: Sequence[Values], rows: Rows, dtype: Any, rounded: Any) -> Exact:
        """The gradients by the formulas in `dtype`, with p and ds rounded by `rounded`."""
        result = np.empty((len(rows), (self._group + 2) * self.head_dim))
        scale = dtype(self.scale)
        for places, at, (q, k, v, o, lse, do) in self._pieces(inputs, rows, dtype):
            delta = (o * do).sum(axis=1)
            some = self._queries_of(at)
            pairs = self._pairs(q[some], k, v, do[some], (lse[some], delta[some]), some, None)
            dq = scale * (rounded(pairs.score_gradients) @ k)
            pairs = self._pairs(q, k[at], v[at], do, (lse, delta), None, at)
            dk = scale * (rounded(pairs.score_gradients).T @ q)
            dv = rounded(pairs.weights).T @ do
            result[places] = np.concatenate((dq.reshape(len(at), -1), dk, dv), axis=1)
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
        """The terms of all pairs of these queries and keys; scores and weights are 0 where masked.

        `queries` are the indices of the queries among those of the heads that share the keys, `keys` the positions of
        the keys (None: all). `sums` are lse and delta of the queries.
        """
        lse, delta = sums
        scores = (q @ k.T) * q.dtype.type(self.scale)
        if self.causal:
            positions = (np.arange(len(q)) if queries is None else queries) % self.sequence
            scores[(np.arange(len(k)) if keys is None else keys) > positions[:, None]] = -np.inf
        weights = np.exp(scores - lse[:, None])
        drop_subnormal(weights)
        scores[np.isneginf(scores)] = 0
        products = do @ v.T
        return _Pairs(scores=scores, weights=weights, value_products=products, differences=products - delta[:, None])

    def _pieces(
        self, inputs: Sequence[Values], rows: Rows, dtype: Any
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], list[NDArray[Any]]]]:
        """Yields some rows of one key/value head at a time: indices in the result, positions, the head's arrays."""
        kv_heads, positions = np.divmod(rows, self.sequence)
        chunk = max(1, _CHUNK_PAIRS // (self._group * self.sequence))
        groups = list(self._groups(inputs))
        for kv_head in np.unique(kv_heads):
            arrays = [array.astype(dtype) for array in groups[kv_head]]
            every = np.flatnonzero(kv_heads == kv_head)
            for part in slices(len(every), chunk):
                places = every[part]
                yield places, positions[places], arrays

    def _groups(self, arrays: Sequence[Values]) -> Iterator[tuple[Values, ...]]:
        """The parts of these arrays for each key/value head: its own rows, or those of all query heads that read it."""
        columns = ([] if place == _LSE else [self.head_dim] for place in range(len(arrays)))
        pairs = zip(arrays, columns, strict=True)
        return zip(*(array.reshape(self.kv_heads, -1, *some) for array, some in pairs), strict=True)

    def _queries_of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices, within the group, of the queries whose dq shares a row with dk and dv of these positions."""
        return (positions[:, None] * self._group + np.arange(self._group)).reshape(-1)


def _move_scores(scale: float, q: NDArray[Any], k: NDArray[Any], random: np.random.Generator) -> None:
    """Changes half of the channels of q and k so that they add one number, from _SCORES, to all scores of a query.

    All keys of a head have the same numbers in these channels, different in each channel.
    """
    channels = random.permutation(q.shape[-1])[: max(1, q.shape[-1] // 2)]
    group = q.shape[1] // k.shape[1]
    alike = random.uniform(0.5, 2, (*k.shape[:2], 1, len(channels))) * random.choice([-1, 1], len(channels))
    low, high = np.log(_SCORES)
    moved = np.exp(random.uniform(low, high, (*q.shape[:3], 1))) * random.choice([-1, -1, -1, 1], (*q.shape[:3], 1))
    k[..., channels] = alike
    along = np.repeat(alike / np.square(alike).sum(axis=-1, keepdims=True), group, axis=1)
    q[..., channels] = _exact_when_scaled(moved / scale * along, scale, random)


def _exact_when_scaled(values: NDArray[Any], scale: float, random: np.random.Generator) -> NDArray[Any]:
    """Numbers as large as `values` whose errors in bfloat16 cancel, also after scaling by `scale` or scale log2 e.

    Kernels multiply queries by such a factor and round them once. That would give all scores of a query the same error,
    which `AttentionBackward.rounding` does not model.
    """
    fractions = 1 + np.arange(_FRACTIONS) / _FRACTIONS
    factors = np.array((scale, scale * math.log2(math.e)))
    scaled = np.outer(factors, fractions)
    off = (scaled.astype(ml_dtypes.bfloat16).astype(np.float64) - scaled) / factors[:, None]
    best = np.argsort(np.abs(off).max(axis=0))[: 4 * _PAIRS]
    first, second = (best[places] for places in np.triu_indices(len(best), 1))
    least = np.argsort(np.abs(off[:, first] + off[:, second]).max(axis=0))[:_PAIRS]
    chosen = fractions[np.concatenate((first[least], second[least]))]
    exponents = np.round(np.log2(np.abs(values) / math.sqrt(2)))
    near: NDArray[Any] = np.sign(values) * np.exp2(exponents) * random.choice(chosen, values.shape)
    return near
