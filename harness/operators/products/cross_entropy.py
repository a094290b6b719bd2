"""Cross-entropy of a language model's last layer, with product and loss fused: shapes, useful work, exact outputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.operators.axes import Operator, axis
from harness.operators.blocks import BLOCK, borders, drawn_block, slices, turned
from harness.operators.controls import Answer, rounded
from harness.operators.probes import Part, Probe, Region, probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.products import probes as product_probes
from harness.operators.products.matmul import Matmul
from harness.operators.rounding import DTYPES, deviation, relative_rounding, sum_variance, ulp
from harness.operators.space import DRAWN, RECIPE, Borrowed, generator, recipe_generator
from harness.operators.timing import Stated
from harness.records import Array, ExpectedCount, Statement, Work

_X, _W, _LABELS = range(3)
# The families, besides drawn ones, in which many labels are equal.
_FILLED = ("sharp", "far-values", "cancelling")
# The fraction of rows that get the filler as their label, and that of blocks with it at both ends.
_FILLER_ROWS, _FILLER_ENDS = 0.25, 0.5
# The number of labels at either end of such a block that are the filler.
_END = 2
_OWN = ("normal", "sharp", "few", "pointed", "rising", "flat", "deep")
_OF_VALUES = ("far-values", "cancelling")
# The kind of each row of the composite, by its position modulo 9, counted from a drawn place.
_COMPOSITE = ("normal", "few", "pointed", "few", "sharp", "rising", "few", "deep", "flat")
# Logits are N(0, 1) times 2^p, with p drawn between these.
_SHARP = (1.0, 5.0)
# In `few` rows: the range of the number of words that count, and of the distance of their lowest logit from the
# largest, which is 0. The tolerance of a loss grows with the size of these logits and of the label's logit. Roundings
# average out over many words. So if few words count and their logits are near 0, the tolerance is hardly more than that
# of the sum.
_FEW, _APART = (2.0, 8.0), (1.0, 3.0)
# The logits of all other words are at -log(vocabulary) minus this number, so that even together they do not count.
_BELOW_ALL = 10.0
# The logit of the word that a pointed row points at: e^30 exceeds the size of any vocabulary. In every second
# pointed row, the logit exceeds log(vocabulary) by a number in this range, so that all other words together still
# count.
_POINTED, _ABOVE_ALL = 30.0, (-2.0, 12.0)
# The logit of all words in deep rows: exp(-200) underflows float32. In every second row it is multiplied by a power of
# two, down to -6 million. A kernel's initial maximum must be even lower, like the -1e9 of published kernels.
_DEEP = -200.0
_DEEPER = (3, 16)
# Logits rise by this much from the first word to the last, so that a running maximum changes in every block.
_RISING = 40.0
# A probe makes logits this much larger: their exponentials move a sum of any vocabulary, in every row.
_LOUDER = 4.0
# The number of words whose logits are computed at a time.
_COLUMNS = 1024

# A function that changes the values of one step of the computation; the second argument names the step.
Change = Callable[[NDArray[Any], str], NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropy(Operator, Borrowed):
    """LOSSES [tokens, 1] float32: log(sum of exp(logits)) minus the label's logit; logits are X W [tokens, vocabulary].

    X [tokens, model] and W [model, vocabulary] in `dtype`; labels [tokens, 1] int32: for each token, the index in the
    vocabulary of its target word. Logits are accumulated in float32 and stay in float32 until they are used: the
    purpose of the fusion is that they are neither rounded nor leave the chip. Differences from the largest logit,
    exponentials and their sums are float32 too. Raises UsageError `bad-problem` for invalid sizes.
    """

    operation = "cross_entropy"
    # The most multiply-adds that one check computes for its rows, each four times: four seconds on one core.
    checked = 10 << 30
    tokens: int = field(metadata=axis(is_uneven=True))
    model: int = field(metadata=axis(is_uneven=True))
    vocabulary: int = field(metadata=axis())
    dtype: str = "bfloat16"

    def work(self) -> Work:
        """The useful work of one call.

        2 FLOPs count for each multiply-add, and 3 for each logit (difference, exponential, sum), one of them an
        exponential. X, W and the labels are read once, and the losses are written once.
        """
        logits = self.tokens * self.vocabulary
        elements = self.model * (self.tokens + self.vocabulary)
        return Work(
            matmul_flops=2 * logits * self.model,
            vector_flops=3 * logits,
            minimum_hbm_bytes=elements * DTYPES[self.dtype].itemsize + 8 * self.tokens,
            exponentials=logits,
        )

    def statement(self) -> Statement:
        unrolled, fewer = "the body is unrolled, or ", "the product does not run on the MXU"
        return Statement(
            operation=self.operation,
            title=f"cross-entropy of {self.tokens} tokens, model {self.model}, {self.vocabulary} words, {self.dtype}",
            parameters=self.parameters,
            inputs=(
                Array(name="x", shape=(self.tokens, self.model), dtype=self.dtype),
                Array(name="w", shape=(self.model, self.vocabulary), dtype=self.dtype),
                Array(name="labels", shape=(self.tokens, 1), dtype="int32", low=0, high=self.vocabulary - 1),
            ),
            outputs=(Array(name="losses", shape=(self.tokens, 1), dtype="float32"),),
            work=self.work(),
            expected=(
                ExpectedCount(
                    counter="matmul", low=1, high=1, more=f"{unrolled}logits are computed twice", fewer=fewer
                ),
                ExpectedCount(counter="exp", low=1, high=2, more=f"{unrolled}exponentials are computed again"),
                ExpectedCount(counter="reduction", low=2, high=3, more="sums are staged"),
            ),
        )

    def timing_inputs(self) -> Stated:
        """The labels in the timed calls, drawn once for all: random words, every fourth next to a border of a block."""
        return {"normal": {"labels": self._labels("normal", 0)}}

    def families(self, full: bool) -> tuple[str, ...]:
        """The families: a draw, the timed inputs and a composite at the full shape; else each kind alone, and draws."""
        if full:
            return (*self.lender.families(True)[:1], "normal", "composite")
        drawn = tuple(family for family in self.lender.families(False) if family.startswith(DRAWN))
        return (*_OWN, *_OF_VALUES, *drawn)

    @property
    def lender(self) -> Matmul:
        """The Matmul that gives X and W their values, apart from their scale."""
        return Matmul(m=self.tokens, n=self.vocabulary, k=self.model, dtype=self.dtype)

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """X, W and labels of the named family or recipe. Raises ValueError for a family that does not exist.

        W is scaled so that logits of N(0, 1) values are about N(0, 1). normal: such logits. sharp: X is 2 to 32 times
        as large, so that fewer words have a row's weight. few: 2 to 8 words of each row have all of its weight, with
        logits between 0 and -3, and seven of eight labels are one of them. pointed: one word of each row, anywhere or
        next to a border of a block, outweighs all others, and every second label is that word. rising: logits rise from
        word to word, so that the running maximum changes in every block. flat: every second row of X is zero, so
        that all words have the same logit; all labels are the same word. deep: all logits are far below zero, and in
        every second row even farther. far-values, cancelling, drawn: as in a Matmul. composite: all but the last three,
        by row. In sharp, far-values, cancelling and drawn families, about a quarter of the labels are one filler word,
        and a run of other labels are equal.
        """
        is_lent = family in _OF_VALUES or family.startswith((DRAWN, RECIPE))
        if not is_lent and family not in (*_OWN, "composite"):
            raise ValueError(f"expected an input family of {(*_OWN, *_OF_VALUES, 'composite')}, got {family!r}")
        dtype, random = DTYPES[self.dtype], generator(family, seed)
        x, w = (values.astype(np.float32) for values in self.lender.make_inputs(family if is_lent else "normal", seed))
        # A power of two, so that nothing is rounded.
        w *= np.float32(2.0 ** -round(np.log2(self.model) / 2))
        labels = self._labels(family, 0 if family == "normal" else seed)
        kinds = np.resize(turned(_COMPOSITE, seed, self.tokens) if family == "composite" else (family,), self.tokens)
        sharp = np.flatnonzero(kinds == "sharp")
        x[sharp] *= np.exp2(random.uniform(*_SHARP, (len(sharp), 1))).astype(np.float32)
        rows = np.flatnonzero(kinds == "pointed")
        if len(rows):
            words = random.integers(self.vocabulary, size=len(rows))
            words[::2] = random.choice(borders(self.vocabulary), len(words[::2]))
            chosen = w[:, words].T
            size = np.square(chosen).sum(axis=1, keepdims=True)
            heights = np.full((len(rows), 1), _POINTED, dtype=np.float32)
            heights[::2] = np.log(self.vocabulary) + random.uniform(*_ABOVE_ALL, (len(heights[::2]), 1))
            x[rows] = heights * chosen / np.maximum(size, np.finfo(np.float32).tiny)
            labels[rows[::2], 0] = words[::2]
        x[np.flatnonzero(kinds == "flat")[::2]] = 0
        if family == "flat":
            labels[:] = labels[0]
        few = np.flatnonzero(kinds == "few")
        if len(few):
            common = self._weigh_few(x, w, labels, few, random)
        if family == "composite":
            self._lift(x, w, kinds, common, random)
        if family in ("rising", "deep"):
            ends = (0.0, _RISING) if family == "rising" else (_DEEP, _DEEP)
            w += np.linspace(*ends, self.vocabulary, dtype=np.float32) / self.model
            x += 1
            if family == "deep":
                x[::2] *= np.exp2(random.integers(*_DEEPER, (len(x[::2]), 1)))
        return x.astype(dtype), w.astype(dtype), labels

    def _weigh_few(
        self, x: NDArray[Any], w: NDArray[Any], labels: NDArray[Any], rows: Rows, random: np.random.Generator
    ) -> NDArray[np.float32]:
        """The vector `[model]` that is added to all words of W; its product with a row moves all logits of the row.

        Changes these rows of X so that a few words have all of the weight, and sets most of the rows' labels to such
        words. With the vector, the logits of all other words can be far below 0 although no logit is far above 0.
        """
        scale = 2.0 ** -round(np.log2(self.model) / 2)
        common = random.choice(np.array([-scale, scale], dtype=np.float32), self.model)
        w += common[:, None]
        lowest = -np.log(self.vocabulary) - _BELOW_ALL
        places = borders(self.vocabulary)
        for position, row in enumerate(rows):
            # The number of words is drawn evenly on a logarithmic scale.
            words = random.integers(self.vocabulary, size=int(np.exp(random.uniform(*np.log(_FEW)))))
            words[:1] = random.choice(places)
            words = np.unique(words)
            logits = -random.uniform(*_APART) * random.permutation(np.append(0, random.random(len(words) - 1)))
            vectors = np.concatenate((w[:, words].T, common[None])).astype(np.float64)
            # The shortest row with these logits: a combination of these vectors alone.
            parts = np.linalg.lstsq(vectors @ vectors.T, np.append(logits, lowest), rcond=None)[0]
            x[row] = parts @ vectors
            if position % 8:
                labels[row, 0] = random.choice(words)
        return common

    def _lift(
        self, x: NDArray[Any], w: NDArray[Any], kinds: NDArray[Any], common: NDArray[Any], random: np.random.Generator
    ) -> None:
        """Moves all logits of `deep` rows far below zero, and lets those of `rising` rows rise from word to word.

        Deep rows get a multiple of `common`. Rising rows get a multiple of another vector of +/-2^e; its product with
        the words rises from 0 to the square of the vector.
        """
        square = np.square(common).sum()
        deep = np.flatnonzero(kinds == "deep")
        depths = np.full((len(deep), 1), _DEEP)
        depths[::2] *= np.exp2(random.integers(*_DEEPER, (len(depths[::2]), 1)))
        x[deep] += (depths / square * common).astype(np.float32)
        rising = common * random.choice(np.array([-1, 1], np.float32), self.model)
        heights = np.linspace(0, 1, self.vocabulary, dtype=np.float32)
        for columns in slices(self.vocabulary, _COLUMNS):
            w[:, columns] += rising[:, None] * heights[columns]
        x[np.flatnonzero(kinds == "rising")] += np.float32(_RISING / square) * rising

    def _labels(self, family: str, seed: int) -> NDArray[np.int32]:
        """Random words, every fourth next to a border of a block; in some families, many labels are equal."""
        random = recipe_generator(f"labels of {family}", seed)
        labels = random.integers(self.vocabulary, size=(self.tokens, 1), dtype=np.int32)
        labels[::4, 0] = random.choice(borders(self.vocabulary), len(labels[::4]))
        if family in _FILLED or family.startswith((DRAWN, RECIPE)):
            self._repeat(labels[:, 0], random)
        return labels

    def _repeat(self, labels: NDArray[np.int32], random: np.random.Generator) -> None:
        """Makes labels equal: those of a run of rows, and a quarter of all others, with both ends of some blocks."""
        run, filler = drawn_block(self.tokens, random), int(random.integers(self.vocabulary))
        word = (filler + 1 + int(random.integers(max(1, self.vocabulary - 1)))) % self.vocabulary
        is_filler = random.random(self.tokens) < _FILLER_ROWS
        for rows in slices(self.tokens, BLOCK):
            if random.random() < _FILLER_ENDS:
                is_filler[rows][:_END] = is_filler[rows][-_END:] = True
        labels[is_filler] = filler
        labels[run.start : run.stop] = word

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes: each row must depend on its own row of X, on all parts of it, and on a drawn block of words."""
        drawn = product_probes.Drawn(rows=self.tokens, columns=1, seed=seed)
        inner = drawn.inner("x", _X, self.model)
        if full:
            return (inner,)
        words = drawn_block(self.vocabulary, np.random.default_rng(np.random.SeedSequence((seed, self.vocabulary))))
        region = Region(array=_W, ranges=(range(self.model), words), factor=_LOUDER)
        every = Part(rows=range(self.tokens), columns=range(1))
        named = f"columns {words.start} to {words.stop - 1} of w"
        return (inner, drawn.some_rows("x", _X, self.model), probe(named, "normal", [region], [every]))

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), 1]` float64: the formula in float64, from the rounded inputs."""
        return self._losses(inputs, rows, np.float64)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), 1]` float64: all in float32."""
        return self._losses(inputs, rows, np.float32)

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), 1]`: standard deviation of a loss if every honest rounding were random.

        First-order propagation of independent roundings. The derivative of a loss by a logit is the logit's share p of
        the sum, less 1 for the label. The variances are:
        - each logit, a float32 sum of variance v (`sum_variance`):  p^2 v, and (1 - 2 p) v more for the label;
        - each exponential, right to one ulp, from an argument d that is rounded twice (the difference, and its product
          with log2(e)):  p^2 (e32^2 / 3 + 2 r32^2 d^2);
        - the float32 sum of exponentials:  `sum_variance` divided by the square of the sum;
        - logarithm, largest logit and their sum, each rounded:  r32^2 times the square of each;
        - the output itself:  ulp(loss)^2 / 12.
        """
        eps32, relative32 = float(np.finfo(np.float32).eps), relative_rounding("float32")
        x = inputs[_X][rows].astype(np.float32)
        squares = np.square(x)
        logits, variances = (np.empty((len(rows), self.vocabulary)) for _ in range(2))
        for columns in slices(self.vocabulary, _COLUMNS):
            w = inputs[_W][:, columns].astype(np.float32)
            logits[:, columns] = sums = x @ w
            variances[:, columns] = sum_variance(squares @ np.square(w), sums, self.model)
        labels = inputs[_LABELS][rows]
        largest = logits.max(axis=1, keepdims=True)
        below = logits - largest
        exponentials = np.exp(below)
        total = exponentials.sum(axis=1, keepdims=True)
        shares = exponentials / total
        of_label, share_of_label = (np.take_along_axis(values, labels, axis=1) for values in (variances, shares))
        variance = (np.square(shares) * (variances + eps32**2 / 3 + 2 * relative32**2 * np.square(below))).sum(
            axis=1, keepdims=True
        )
        variance += (1 - 2 * share_of_label) * of_label
        variance += sum_variance(np.square(exponentials).sum(axis=1, keepdims=True), total, self.vocabulary) / total**2
        logarithm = np.log(total)
        losses = largest + logarithm - np.take_along_axis(logits, labels, axis=1)
        variance += relative32**2 * (np.square(logarithm) + np.square(largest) + np.square(largest + logarithm))
        variance += np.square(ulp(losses, "float32")) / 12
        return deviation(np.maximum(variance, 0))

    def survey(self, inputs: Sequence[Values], outputs: Sequence[Values], seed: int) -> Exact:
        """`[tokens]`: the error of each loss divided by 1 + its size, by all losses, computed in float32.

        There are no checksums of losses, because a sum of exponentials has none.
        """
        honest = self._losses(inputs, np.arange(self.tokens), np.float32)[:, 0]
        off: Exact = np.abs(outputs[0][:, 0].astype(np.float64) - honest) / (1 + np.abs(honest))
        return off

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: words, the label or part of a sum left out; logits or exponentials rounded."""
        last = max(1, self.vocabulary // 8)

        def part(inputs: Sequence[Values], rows: Rows) -> Exact:
            x, w, labels = inputs
            kept = self.model - max(1, self.model // 8)
            return self._losses((x[:, :kept], w[:kept], labels), rows, np.float64)

        def coarse(what: str, dtype: str) -> Answer:
            def change(values: NDArray[Any], name: str) -> NDArray[Any]:
                return rounded(values, dtype) if name == what else values

            return without(change=change)

        def without(**parts: Any) -> Answer:
            return lambda inputs, rows: self._losses(inputs, rows, np.float64, **parts)

        answers: dict[str, Answer] = {
            "the last eighth of the words left out of the sum": without(words=self.vocabulary - last),
            "words 9 below the largest left out": without(least=-9.0),
            "the label of the token before": lambda inputs, rows: self.reference(
                (*inputs[:_LABELS], np.roll(inputs[_LABELS], 1, axis=0)), rows
            ),
            "the last part of a sum left out": part,
            "the label's logit left out": without(label=False),
            **{
                f"{what} rounded to bfloat16": coarse(what, "bfloat16")
                for what in ("differences from the largest logit", "exponentials", "sums of exponentials")
            },
        }
        if self.dtype != "float32":
            answers[f"logits rounded to {self.dtype}"] = coarse("logits", self.dtype)
        return answers

    def _losses(
        self,
        inputs: Sequence[Values],
        rows: Rows,
        dtype: Any,
        *,
        words: int | None = None,
        label: bool = True,
        least: float = -np.inf,
        change: Change = lambda values, what: values,
    ) -> Exact:
        """The losses `[len(rows), 1]`, computed in `dtype`: some words at a time, as a kernel would.

        Only exponentials of the first `words` words are summed, and only if the logit's difference from the largest
        logit so far is at least `least`. `label`: the label's logit is subtracted. `change` is applied to all logits,
        to their differences from the largest so far, to the exponentials of these, and to their sums so far.
        """
        x, labels = inputs[_X][rows].astype(dtype), inputs[_LABELS][rows]
        largest = np.full((len(rows), 1), -np.inf, dtype=dtype)
        total, of_label = (np.zeros((len(rows), 1), dtype=dtype) for _ in range(2))
        for columns in slices(self.vocabulary, _COLUMNS):
            logits = change(x @ inputs[_W][:, columns].astype(dtype), "logits")
            place = labels - columns.start
            is_here = (place >= 0) & (place < logits.shape[1])
            here = np.take_along_axis(logits, np.where(is_here, place, 0), axis=1)
            of_label = np.where(is_here, here, of_label)
            if words is not None:
                logits = logits[:, : max(0, words - columns.start)]
            if not logits.shape[1]:
                continue
            higher = np.maximum(largest, logits.max(axis=1, keepdims=True))
            below = change(logits - higher, "differences from the largest logit")
            terms = np.where(below < least, 0, change(np.exp(below), "exponentials"))
            total = total * np.exp(largest - higher) + terms.sum(axis=1, keepdims=True)
            total = change(total, "sums of exponentials")
            largest = higher
        return (largest + np.log(total) - (of_label if label else 0)).astype(np.float64)
