"""Attention forward, softmax(scale * Q K^T) V: shapes, useful work, exact outputs and their rounding errors."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.operators import group_sizes
from harness.operators.attention import inputs as attention_inputs
from harness.operators.attention import probes as attention_probes
from harness.operators.attention import rounding as attention_rounding
from harness.operators.attention import space as attention_space
from harness.operators.attention import survey as attention_survey
from harness.operators.attention.rounding import KeyBlock, softmax
from harness.operators.axes import Operator, axis
from harness.operators.controls import FEWEST_TERMS, Answer, added_in_bfloat16, without_the_last
from harness.operators.fields import require, require_positive, require_sizes
from harness.operators.probes import Probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.rounding import DTYPES
from harness.operators.space import DRAWN, RECIPE, Recipes, generator, parsed, recipe_generator
from harness.operators.timing import Stated
from harness.records import Array, ExpectedCount, Statement, Work

# The most query-key pairs in memory at once: 16 MB as float64, and fewer than ten such arrays are alive together.
_CHUNK_PAIRS = 1 << 21
# The exponential of a larger number exceeds float32's range.
_LARGEST_EXPONENT = 88.0
# If a query sees fewer keys, its output may hardly depend on some of them, but probes rely on this dependence.
_SMALLEST_WINDOW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Operator, Recipes):
    """Attention of `heads` query heads over `kv_heads` shared key/value heads.

    Arrays: q and output `[batch, heads, sequence, head_dim]`, k and v `[batch, kv_heads, kv_sequence, head_dim]`. The
    batch axis is absent if batch is 1. The head axis is absent if batch and heads are 1, as in the plain contest.

    - kv_heads (None: heads): query head h reads key/value head h // (heads // kv_heads).
    - scale (None: 1 / sqrt(head_dim)): the factor of the scores.
    - causal: query i sees the keys up to i + kv_sequence - sequence, so that the last query sees all keys.
    - window: of the keys that `causal` allows, a query sees only the last `window`.
    - soft_cap: a scaled score s becomes soft_cap tanh(s / soft_cap).
    - segments: the most sequences that are packed into one. The input segment_ids `[batch, sequence]` (int32,
      ascending; no batch axis if batch is 1) gives the sequence of each position, and a query sees only keys of its own
      sequence. The problem is timed with balanced and with skewed lengths (see `group_sizes`), and its latency is the
      mean of both.

    If kv_sequence is None, it equals sequence. Raises UsageError `bad-problem` for an invalid combination of fields.
    """

    operation = "attention"
    record, kinds, limits = attention_space.Recipe, attention_space.KINDS, attention_space.LIMITS
    # The most query-key pairs that one check computes, about half a second on one core: 384 rows of a sequence of
    # 16384, every row of a head up to 2508.
    checked = 3 << 21
    # A smaller shape keeps two key/value heads and two batch entries, so that mixing them up is noticed. The number of
    # query heads for each key/value head, head_dim and the window stay, because kernels are written for them.
    batch: int = field(default=1, metadata=axis(few=2))
    heads: int = field(default=1, metadata=axis(multiple="kv_heads"))
    kv_heads: int = field(default=None, metadata=axis(few=2))  # type: ignore[assignment]  # filled in on construction
    sequence: int = field(metadata=axis(is_uneven=True))
    kv_sequence: int = field(default=None, metadata=axis(along="sequence", is_uneven=True))  # type: ignore[assignment]
    head_dim: int
    dtype: str = "bfloat16"
    causal: bool = False
    scale: float = None  # type: ignore[assignment]  # filled in on construction
    window: int | None = None
    soft_cap: float | None = None
    # Enough sequences for an empty one, the first, the last, and one in between.
    segments: int | None = field(default=None, metadata=axis(few=4))

    def __post_init__(self) -> None:
        """Fills in the defaults that depend on other fields. Raises UsageError `bad-problem` for invalid fields."""
        self.fill(kv_heads=self.heads, kv_sequence=self.sequence)
        self.require_fields()
        self.fill(scale=1 / math.sqrt(self.head_dim))
        lengths = f"sequence={self.sequence}, kv_sequence={self.kv_sequence}"
        is_aligned = not self.causal or self.kv_sequence >= self.sequence
        words = f"causal needs kv_sequence >= sequence, got {lengths}: the first queries would see no key"
        require("attention", is_aligned, words)
        require_positive("attention", "scale", self.scale)
        if self.soft_cap is not None:
            require_positive("attention", "soft_cap", self.soft_cap)
        if (window := self.window) is not None:
            require_sizes("attention", window=window)
            require("attention", self.causal, f"a window needs causal=True, got window={window} and causal=False")
            most = self.kv_sequence - 1
            words = f"expected a window of {_SMALLEST_WINDOW} to {most} keys (kv_sequence - 1), got window={window}"
            require("attention", _SMALLEST_WINDOW <= window <= most, words)
        if (segments := self.segments) is not None:
            require_sizes("attention", segments=segments)
            words = "packed sequences need kv_sequence = sequence and no more segments than positions, got "
            fits = self.kv_sequence == self.sequence and segments <= self.sequence
            require("attention", fits, f"{words}segments={segments}, {lengths}")

    @property
    def pairs(self) -> int:
        """The unmasked query-key pairs of one head; with packed sequences the mean over the timed calls."""
        if self.segments is not None:
            shapes = [self._sizes(self._ids(name, 0)) for name in group_sizes.TIMED]
            seen = [shape.seen(np.arange(self.sequence)) for shape in shapes]
            return round(float(np.mean([(end - first).sum() / self.batch for first, end in seen])))
        if not self.causal:
            return self.sequence * self.kv_sequence
        # Query i sees offset + i + 1 keys, or only the last `window` of them.
        offset = self.kv_sequence - self.sequence
        pairs = self.sequence * (self.sequence + 1) // 2 + self.sequence * offset
        if self.window is None:
            return pairs
        fewest, most = (max(0, offset + i + 1 - self.window) for i in (0, self.sequence - 1))
        # After the first query that has lost a key, each query loses one more than the query before it.
        losing = most - max(fewest, 1) + 1
        return pairs - (max(fewest, 1) + most) * losing // 2

    def work(self) -> Work:
        """The useful work of one call.

        FLOPs are counted as published for this contest. For each unmasked query-key pair:

        - 2 for each multiply-add over head_dim in the two matmuls (Q K^T and P V);
        - 5 for the softmax (scale, subtract, exponential, sum, divide);
        - 2 for a soft cap, if there is one (tanh, multiply).

        Every input is read, and the output is written, at least once.
        """
        pairs = self.pairs * self.heads * self.batch
        query = self.batch * self.heads * self.sequence * self.head_dim
        key = self.batch * self.kv_heads * self.kv_sequence * self.head_dim
        return Work(
            matmul_flops=4 * pairs * self.head_dim,
            vector_flops=(5 if self.soft_cap is None else 7) * pairs,
            minimum_hbm_bytes=2 * (query + key) * DTYPES[self.dtype].itemsize + 4 * math.prod(self._ids_shape),
            exponentials=pairs,
        )

    def statement(self) -> Statement:
        """This problem in words and numbers; `scale` is a number even if it was None."""
        heads = f"{self.heads} head{'s' * (self.heads > 1)}"
        if self.kv_heads != self.heads:
            heads += f" over {self.kv_heads} key/value head{'s' * (self.kv_heads > 1)}"
        length = f"sequence {self.sequence}"
        if self.kv_sequence != self.sequence:
            length += f" x {self.kv_sequence}"
        batch = f"batch {self.batch}, " if self.batch > 1 else ""
        mask = ", causal" if self.causal else ""
        mask += f", window {self.window}" if self.window is not None else ""
        mask += f", {self.segments} packed sequences" if self.segments is not None else ""
        mask += f", soft cap {self.soft_cap:g}" if self.soft_cap is not None else ""
        query = Array(name="q", shape=self._shape(self.heads, self.sequence), dtype=self.dtype)
        ids: tuple[Array, ...] = ()
        if self.segments is not None:
            ids = (Array(name="segment_ids", shape=self._ids_shape, dtype="int32", low=0, high=self.segments - 1),)
        key = Array(name="k", shape=self._shape(self.kv_heads, self.kv_sequence), dtype=self.dtype)
        unrolled, split = "the body is unrolled, or ", "blocks do not fit the MXU and are split"
        fewer = "QK^T or PV does not run on the MXU"
        return Statement(
            operation=self.operation,
            title=f"attention forward, {batch}{heads}, {length}, head_dim {self.head_dim}, {self.dtype}{mask}",
            parameters=self.parameters,
            inputs=(query, key, replace(key, name="v"), *ids),
            outputs=(replace(query, name="o"),),
            work=self.work(),
            # The published expectations for one step of online softmax: Q K^T and P V; exp of the scores and of the
            # rescaling; row maximum and row sum.
            expected=(
                ExpectedCount(counter="matmul", low=2, high=2, more=f"{unrolled}{split}", fewer=fewer),
                ExpectedCount(counter="exp", low=2, high=2, more=f"{unrolled}exponentials are computed again"),
                ExpectedCount(counter="reduction", low=2, high=4, more=f"{unrolled}reductions run in stages"),
            ),
        )

    def _shape(self, heads: int, length: int) -> tuple[int, ...]:
        if self.batch > 1:
            return (self.batch, heads, length, self.head_dim)
        if self.heads > 1:
            return (heads, length, self.head_dim)
        return (length, self.head_dim)

    @property
    def _ids_shape(self) -> tuple[int, ...]:
        """The shape of segment_ids; (0,) if the problem has none."""
        if self.segments is None:
            return (0,)
        return (self.batch, self.sequence) if self.batch > 1 else (self.sequence,)

    def timing_inputs(self) -> Stated:
        """The segment_ids of the timed calls, by timing input; empty without segments."""
        if self.segments is None:
            return {}
        return {name: {"segment_ids": self._ids(name, 0).reshape(self._ids_shape)} for name in group_sizes.TIMED}

    def _ids(self, family: str, seed: int) -> NDArray[np.int32]:
        """`[batch, sequence]`: the packed sequence of each position, for inputs of this family."""
        assert self.segments is not None
        random = recipe_generator(f"segments of {family}", seed)
        if family in group_sizes.TIMED:
            sizes = [group_sizes.TIMED[family](self.sequence, self.segments)] * self.batch
        elif family in group_sizes.DRAWN:
            sizes = [group_sizes.DRAWN[family](self.sequence, self.segments, random) for _ in range(self.batch)]
        else:
            # The full shape gets one input of each of these families. A reduced shape has too few sequences to crowd a
            # block.
            at_full = {"composite": group_sizes.crowded, DRAWN + attention_space.ALL: group_sizes.whole_tiles}
            draw = at_full.get(family, group_sizes.unaligned)
            sizes = [draw(self.sequence, self.segments, random) for _ in range(self.batch)]
        return np.stack([np.repeat(np.arange(self.segments, dtype=np.int32), lengths) for lengths in sizes])

    def families(self, full: bool) -> tuple[str, ...]:
        """The families: at the full shape a draw and a composite; at a reduced shape each kind alone, and draws.

        With packed sequences, each kind of lengths adds a family of N(0, 1) inputs; at the full shape, only the timed
        and the extreme kinds of lengths do.
        """
        if full:
            lengths = (*group_sizes.TIMED, *group_sizes.AT_FULL_SHAPE) if self.segments else ()
            return (DRAWN + attention_space.ALL, *lengths, "composite")
        lengths = (*group_sizes.TIMED, *group_sizes.DRAWN) if self.segments else ()
        return (*attention_inputs.FAMILIES, *lengths, *(DRAWN + kind for kind in attention_space.KINDS))

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """q, k, v (and segment_ids) of the named family or recipe. Raises ValueError for one that does not exist."""
        ids = None if self.segments is None else self._ids(family, seed)
        if family.startswith((DRAWN, RECIPE)):
            recipe = parsed(self.recipe(family, seed), attention_space.Recipe)
            arrays = attention_space.build(self._sizes(ids), recipe, generator(family, seed))
        else:
            has_lengths = self.segments is not None and family in (*group_sizes.TIMED, *group_sizes.DRAWN)
            arrays = attention_inputs.make(self._sizes(ids), "normal" if has_lengths else family, seed)
        shapes = [array.shape for array in self.statement().inputs]
        values = tuple(a.astype(DTYPES[self.dtype]).reshape(s) for a, s in zip(arrays, shapes, strict=False))
        return values if ids is None else (*values, ids.reshape(self._ids_shape))

    def drawn_record(self, kind: str, random: np.random.Generator) -> attention_space.Recipe:
        """A recipe of this kind, as `attention_space.draw` draws it."""
        return attention_space.draw(kind, random)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: each row must depend on the right keys, values and queries, and on none beyond the mask."""
        ids = None if self.segments is None else self._ids("composite" if full else "normal", seed)
        return attention_probes.probes(self._sizes(ids), full, seed)

    def _sizes(self, ids: NDArray[np.int32] | None = None) -> attention_inputs.InputSizes:
        sizes = {
            size.name: getattr(self, size.name) for size in fields(attention_inputs.InputSizes) if size.name != "ids"
        }
        return attention_inputs.InputSizes(**sizes, ids=ids)

    def shortest(self, name: str) -> int:
        """The shortest length: 256, or if the window is longer, the first of 512, 1024, 2048 ... that exceeds it."""
        length = Operator.shortest(self, name)
        while self.window is not None and length <= self.window:
            length *= 2
        return length

    @property
    def row_cost(self) -> int:
        """The cost of a row, in query-key pairs."""
        return self.kv_sequence * self.batch * self.heads

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), head_dim]` float64: the textbook formula in float64, from the rounded inputs."""
        result = np.empty((len(rows), self.head_dim))
        for piece in self._pieces(inputs, rows, np.float64):
            weights = softmax(piece, self.scale, self.soft_cap).weights
            result[piece.places] = (weights @ piece.v) / weights.sum(axis=1, keepdims=True)
        return result

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), head_dim]` float64: float32 scores and softmax statistics, probabilities and output in dtype.

        Probabilities are not normalised before P V, and products accumulate in float32, as on a matrix unit.
        """
        dtype = DTYPES[self.dtype]
        result = np.empty((len(rows), self.head_dim))
        for piece in self._pieces(inputs, rows, np.float32):
            weights = softmax(piece, self.scale, self.soft_cap).weights
            total = weights.sum(axis=1, keepdims=True)
            result[piece.places] = ((weights.astype(dtype).astype(np.float32) @ piece.v) / total).astype(dtype)
        return result

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), head_dim]`: standard deviation of the output if every honest rounding were random.

        `attention_rounding.variances` has the formulas.
        """
        return self._rounding(inputs, rows, is_exact=False)

    def exact_rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), head_dim]`: `rounding`, but exact for split groups and scaled queries.

        It costs head_dim / 2 times as much.
        """
        return self._rounding(inputs, rows, is_exact=True)

    def _rounding(self, inputs: Sequence[Values], rows: Rows, *, is_exact: bool) -> Exact:
        result = np.empty((len(rows), self.head_dim))
        for piece in self._pieces(inputs, rows, np.float32):
            variances = attention_rounding.variances(piece, self.scale, self.soft_cap, self.dtype, is_exact=is_exact)
            result[piece.places] = np.sqrt(variances)
        # The result is zero only where everything is exactly zero.
        return np.maximum(result, np.finfo(np.float32).tiny)

    def shared_errors(self, inputs: Sequence[Values], rows: Rows) -> tuple[Exact, ...]:
        """Errors of the output, `[len(rows), head_dim]` each; () without a soft cap.

        Each is the error if all weights of scores near the cap, near 0 or near -cap are rounded by half a step.
        """
        if self.soft_cap is None:
            return ()
        result = np.zeros((3, len(rows), self.head_dim))
        for piece in self._pieces(inputs, rows, np.float32):
            result[:, piece.places] = attention_rounding.shared_errors(piece, self.scale, self.soft_cap, self.dtype)
        return tuple(result)

    def narrow_sums(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), head_dim]`: the variance added by sums kept in dtype (`attention_rounding.of_narrow_sums`)."""
        result = np.empty((len(rows), self.head_dim))
        for piece in self._pieces(inputs, rows, np.float64):
            result[piece.places] = attention_rounding.of_narrow_sums(piece, self.scale, self.soft_cap, self.dtype)
        return result

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: without mask, cap or maximum, with a wrong scale or head, with sums cut or rounded."""

        def otherwise(**changes: Any) -> Answer:
            return lambda inputs, rows: replace(self, **changes).reference(inputs, rows)

        answers: dict[str, Answer] = {
            "every key weighs alike": otherwise(scale=1e-9),
            "scores of twice the size": otherwise(scale=2 * self.scale),
            "the last keys left out": lambda inputs, rows: self._weighed(inputs, rows, without_the_last),
        }
        if min(self.kv_sequence, self.window or self.kv_sequence) >= FEWEST_TERMS:
            answers["sums kept in bfloat16"] = lambda inputs, rows: self._weighed(inputs, rows, added_in_bfloat16)
        if self.causal or self.segments is not None:
            answers["no mask"] = otherwise(causal=False, window=None, segments=None)
        if self.window is not None:
            answers["no window"] = otherwise(window=None)
        if self.segments is not None:
            answers["sequences not kept apart"] = otherwise(segments=None)
        if self.soft_cap is not None:
            answers["no soft cap"] = otherwise(soft_cap=None)
        is_far = 2 * self.scale * math.sqrt(self.head_dim) > 1
        if is_far and (self.soft_cap is None or self.soft_cap > _LARGEST_EXPONENT):
            # Some inputs have logits of 50 times the usual size.
            answers["no maximum subtracted"] = self._without_maximum
        if self.kv_heads > 1:
            answers["the first head's keys and values for all"] = self._first_head
        return answers

    def _first_head(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        heads = (array.reshape(self.batch, self.kv_heads, -1) for array in inputs[1:3])
        k, v = (np.broadcast_to(some[:, :1], some.shape) for some in heads)
        return self.reference((inputs[0], k, v, *inputs[3:]), rows)

    def _without_maximum(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        result = np.empty((len(rows), self.head_dim))
        for piece in self._pieces(inputs, rows, np.float32):
            softmax_parts = softmax(piece, self.scale, self.soft_cap)
            weights = softmax_parts.weights * np.exp(softmax_parts.largest)
            result[piece.places] = (weights @ piece.v) / weights.sum(axis=1, keepdims=True)
        return result

    def _weighed(self, inputs: Sequence[Values], rows: Rows, product: Any) -> Exact:
        result = np.empty((len(rows), self.head_dim))
        for piece in self._pieces(inputs, rows, np.float64):
            weights = softmax(piece, self.scale, self.soft_cap).weights
            ones = np.ones((len(piece.v), 1))
            result[piece.places] = product(weights, piece.v) / np.maximum(weights @ ones, np.finfo(np.float32).tiny)
        return result

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[rows]`: the error of each row in deviations, by checksums of every 32 columns of the values."""
        got = attention_survey.checksums(outputs[0].reshape(-1, self.head_dim), seed)
        values = attention_survey.checksums(inputs[2].reshape(-1, self.kv_sequence, self.head_dim), seed)
        group = self.heads // self.kv_heads * self.sequence
        off = np.empty(len(got))
        for piece in self._pieces(inputs, np.arange(len(got)), np.float32):
            some, got_rows = values[piece.places[0] // group], got[piece.places]
            errors_and_variances = attention_survey.errors(piece, got_rows, some, self.scale, self.soft_cap)
            off[piece.places] = attention_survey.in_deviations(*errors_and_variances, self.dtype)
        return off

    def _pieces(self, inputs: Sequence[Values], rows: Rows, dtype: type[np.floating[Any]]) -> Iterator[KeyBlock]:
        q = inputs[0].reshape(-1, self.head_dim)
        k, v = (array.reshape(-1, self.kv_sequence, self.head_dim) for array in inputs[1:3])
        shape = self._sizes(inputs[3].reshape(self.batch, self.sequence) if self.segments is not None else None)
        is_masked = self.causal or self.segments is not None
        heads, positions = np.divmod(rows, self.sequence)
        kv_heads = heads // (self.heads // self.kv_heads)
        chunk = max(1, _CHUNK_PAIRS // self.kv_sequence)
        for kv_head in np.unique(kv_heads):
            places = np.flatnonzero(kv_heads == kv_head)
            keys, values = k[kv_head].astype(dtype), v[kv_head].astype(dtype)
            for start in range(0, len(places), chunk):
                part = places[start : start + chunk]
                first, end = (of_entry[kv_head // self.kv_heads] for of_entry in shape.seen(positions[part]))
                seen = (first, end) if is_masked else None
                yield KeyBlock(part, q[rows[part]].astype(dtype), keys, values, seen)
