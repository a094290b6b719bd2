"""A problem stated by one function of numpy: inputs, exact outputs, tolerance and probes follow from this formula."""

import functools
import hashlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.operators import textures
from harness.operators.axes import Operator
from harness.operators.blocks import drawn_block, turned
from harness.operators.controls import Answer
from harness.operators.exact import is_exact, is_float, numpy_dtype
from harness.operators.noisy import noisy, rounded_at_random
from harness.operators.normals import normal
from harness.operators.outputs import row_count, side_by_side, spans
from harness.operators.probes import Part, Probe, Region, changed, probe
from harness.operators.problem import Exact, Rows, Values
from harness.operators.rounding import DTYPES, ulp
from harness.operators.space import DRAWN, RECIPE, generator
from harness.operators.wrong_parts import runs
from harness.records import Array, Statement, Work

# The number of runs from which the deviation of an element is estimated, to within a quarter. Among millions of
# elements, a few have small errors in all runs by chance. So in rows that fail, the deviation is estimated again, from
# `_MORE_RUNS` runs.
_RUNS, _MORE_RUNS = 8, 24
# The number of deviations by which an element must move to count as surely moved.
_SURE = 40.0
# The factors and numbers by which each kind of input differs from N(0, 1).
_FACTORS = {"small": 2.0**-8, "large": 2.0**5}
_OFFSET = 24.0
_SPIKE, _SPIKES = 2.0**6, 4
# The share of columns that lie far from zero in all rows, and the share of a run's elements that differ from the run.
_FAR_SHARE, _RARE = 0.25, 0.1
# The number of different rows without noise: a prime, so that blocks of rows differ.
_PLAIN_ROWS = 61
_FACTOR = 0.5
# The family in which rows of one input equal rows of another input, so that results such as differences may be zero.
NEAR_ROWS = "near-rows"
# The distance between nearly equal rows, relative to their contents, as negative powers of two.
_NEARNESS = (2, 11)
# Rows of neighbouring integers: their share of a composite's rows of integers, the number of different neighbours in a
# row, and the exponent of the smallest power of two near which they are drawn.
_NEIGHBOUR_SHARE, _NEIGHBOURS, _LEAST_POWER = 0.25, 3, 6

# The cached answers for the inputs that were checked last, and the most bytes that the cache keeps.
_KEPT: dict[bytes, Exact] = {}
_MOST_KEPT = 1 << 28

# Marks values that a kernel may round to bfloat16, such as the operands of a product on the matrix unit.
Rounds = Callable[[Any], Any]


class Formula(Operator, textures.Textured):
    """A problem whose subclass states its arrays, its work and `formula`; everything else follows.

    A subclass is a frozen dataclass whose fields are the sizes, as in every `Operator`. Each check computes all rows of
    the outputs about ten times: if that takes minutes, write a complete problem instead.
    """

    __slots__ = ()
    row_cost = 1
    own_families = ("normal", *_FACTORS, "far-values", "far-columns", "spikes", "plain", NEAR_ROWS)
    # The names of the kinds of call that are timed, if inputs are tables: integers of 16 bits or more.
    timed: ClassVar[tuple[str, ...]] = ()
    # The names of integer inputs that are operands, not indices or flags: probes change these too, and `tables` need
    # not contain them.
    numbers: ClassVar[tuple[str, ...]] = ()
    # The names of tables whose entries must all be different, such as the rows that the operation writes to.
    distinct: ClassVar[tuple[str, ...]] = ()
    checked = 1 << 62
    # The dtype of arrays that state none; a subclass may make it a field.
    dtype: str = "float32"

    @abstractmethod
    def arrays(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The inputs and the outputs. Each output's number of rows must be a multiple of the smallest such number."""

    @abstractmethod
    def formula(self, in_bfloat16: Rounds, *inputs: Any) -> Any:
        """The outputs of these inputs, by functions of numpy: one array, or a tuple.

        It is run in float64, in float32, and with numbers that err at random as float32 does (`noisy.py`), so it must
        take the dtype from its inputs. Integers are int64. `in_bfloat16(values)` marks what a kernel may round to
        bfloat16.
        """

    def matmul_flops(self) -> int:
        """The FLOPs that must run on the matrix unit."""
        return 0

    def tables(self, family: str, random: np.random.Generator) -> dict[str, Values]:
        """Contents of the tables among the inputs, by name; contents for the families in `timed` are timed."""
        return {}

    def domain(self, name: str, values: NDArray[np.float32]) -> Any:
        """`values`, which may be any numbers, mapped to values that the input may have: for a gate, from 0 to 1."""
        return values

    def work(self) -> Work:
        """The useful work: `matmul_flops`, one other operation per input element, and each array moved once."""
        inputs, outputs = self.arrays()
        size = sum(prod(array.shape) * numpy_dtype(array.dtype).itemsize for array in (*inputs, *outputs))
        elements = sum(prod(array.shape) for array in inputs)
        return Work(matmul_flops=self.matmul_flops(), vector_flops=elements, minimum_hbm_bytes=size)

    def statement(self) -> Statement:
        inputs, outputs = self.arrays()
        sizes = ", ".join(f"{name} {value}" for name, value in self.parameters)
        return Statement(
            operation=self.operation,
            title=f"{self.operation.replace('_', ' ')}, {sizes}",
            parameters=self.parameters,
            inputs=inputs,
            outputs=outputs,
            work=self.work(),
        )

    def families(self, full: bool) -> tuple[str, ...]:
        """The families of timed calls; then a draw and a composite (full shape), or each kind and draws (reduced).

        Far columns and plain inputs are also used alone at the full shape, because only there does a state go through
        many steps, and only there are runs long.
        """
        alone = tuple(kind for kind in ("far-columns", "plain") if full and kind in self.own_families)
        return (*self.timed, *textures.Textured.families(self, full), *alone)

    @property
    def _textured_inputs(self) -> tuple[Array, ...]:
        """The inputs of floats."""
        return tuple(array for array in self.arrays()[0] if is_float(numpy_dtype(array.dtype)))

    def drawn_record(self, kind: str, random: np.random.Generator) -> textures.Recipe:
        """As in `Textured`, but without terms that cancel, because the formula's products are unknown."""
        return replace(textures.draw(kind, self.recipe_parts, random), cancelled=0.0)

    def timing_inputs(self) -> dict[str, dict[str, Values]]:
        """The contents of tables in each kind of call that is timed."""
        return {family: self._tables(family, 0) for family in self.timed}

    def _tables(self, family: str, seed: int) -> dict[str, Values]:
        random = np.random.default_rng(0) if family in self.timed else generator(f"tables of {family}", seed)
        contents = self.tables(family, random)
        for array in self.arrays()[0]:
            if array.is_table and array.name in self.numbers and array.name not in contents:
                contents[array.name] = self._integers(array, family, random)
        return contents

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        """All inputs of the named family. Raises ValueError for one that does not exist.

        - normal: N(0, 1).
        - small, large: N(0, 1) times 2^-8 or 2^5.
        - far-values: rows around 24 or -24.
        - far-columns: a quarter of the columns around 24 or -24 in all rows.
        - spikes: four elements of each row are 64 or -64.
        - plain: rows of zeros, of one number, of one number except in one element, of whole numbers, and of whole
          numbers plus 1/2. Inputs with equally long rows have the same rows. Integers that are data have long runs of
          the least number, the largest, 0 and a few others.
        - near-rows: half of the rows of each input equal rows of an earlier input with equally long rows, and the other
          rows nearly equal such rows. Each row of integers that are data holds three neighbours: the least numbers, the
          largest, or numbers from a power of two on.
        - composite: all of these, by row.

        Each input of floats is then mapped into its `domain`.
        """
        if family.startswith((DRAWN, RECIPE)):
            values, _, _ = self._textured(family, seed)
        else:
            if family not in self.timed:
                self.require_family(family)
            random = generator(family, seed)
            values = []
            for array in self._textured_inputs:
                values.append(self._drawn(array.shape, family, seed, random, values))
        floats = dict(zip((array.name for array in self._textured_inputs), values, strict=True))
        tables, random = self._tables(family, seed), generator(f"integers of {family}", seed)
        return tuple(
            np.asarray(self.domain(array.name, floats[array.name])).astype(numpy_dtype(array.dtype))
            if array.name in floats
            else tables[array.name]
            if array.name in tables
            else self._integers(array, family, random)
            for array in self.arrays()[0]
        )

    def _drawn(
        self,
        shape: tuple[int, ...],
        family: str,
        seed: int,
        random: np.random.Generator,
        before: Sequence[NDArray[np.float32]],
    ) -> NDArray[np.float32]:
        rows = normal(random, prod(shape[:-1]), shape[-1])
        family = "normal" if family in self.timed else family
        # A vector is a single row: its composite is the family `normal`.
        pattern = turned(self.own_families, seed, len(rows)) if family == "composite" and len(rows) > 1 else (family,)
        kinds = np.array(pattern)[np.arange(len(rows)) % len(pattern)]
        for kind, factor in _FACTORS.items():
            rows[kinds == kind] *= np.float32(factor)
        far, spikes = np.flatnonzero(kinds == "far-values"), np.flatnonzero(kinds == "spikes")
        columns = random.choice(shape[-1], int(shape[-1] * _FAR_SHARE), replace=False)
        rows[np.ix_(kinds == "far-columns", columns)] += random.choice([-_OFFSET, _OFFSET], len(columns))
        rows[kinds == "plain"] = _plain(rows.shape, seed)[kinds == "plain"]
        rows[far] += random.choice([-_OFFSET, _OFFSET], (len(far), 1)).astype(np.float32)
        spiked = rows[spikes]
        textures.spike(spiked, min(_SPIKES, shape[-1] // 2), _SPIKE, random)
        rows[spikes] = spiked
        near = np.flatnonzero(kinds == NEAR_ROWS)
        alike = [array.reshape(-1, shape[-1]) for array in before if array.shape[-1] == shape[-1]]
        if alike:
            others = alike[random.integers(len(alike))]
            places = np.where(random.random(len(near)) < 0.5, near, random.integers(len(others), size=len(near)))
            apart = np.exp2(-random.integers(*_NEARNESS, (len(near), 1))) * random.integers(2, size=(len(near), 1))
            rows[near] = others[places % len(others)] + apart.astype(np.float32) * rows[near]
        return rows.reshape(shape)

    def _integers(self, array: Array, family: str, random: np.random.Generator) -> Values:
        """Integers that are data, drawn uniformly.

        Plain and composite arrays consist of runs. All rows of `near-rows`, and some of a composite, hold neighbours.
        """
        dtype = numpy_dtype(array.dtype)
        low = np.iinfo(dtype).min if array.low is None else array.low
        high = np.iinfo(dtype).max if array.high is None else array.high
        even = random.integers(low, high, prod(array.shape), endpoint=True)
        if family in ("plain", "composite"):
            rare = random.random(len(even)) < _RARE
            zero = np.clip(0, low, high)
            runs = [np.where(rare, even, high), zero, even, low, high, np.where(rare, even, zero)]
            cuts = np.unique(np.exp(random.uniform(0, np.log(len(even)), 2 * len(runs))).astype(int))
            lengths = np.diff([0, *cuts, len(even)])
            # There are as many short runs as long ones. The longest run holds 0 in a plain array, and mostly the
            # largest number in a composite.
            which = random.integers(len(runs), size=len(lengths))
            which[np.argmax(lengths)] = family == "plain"
            even = np.choose(np.repeat(which, lengths), np.broadcast_arrays(*runs))
        columns = prod(array.shape[-1:])
        rows = even.reshape(-1, columns)
        if family in (NEAR_ROWS, "composite"):
            near = np.flatnonzero(random.random(len(rows)) < (1 if family == NEAR_ROWS else _NEIGHBOUR_SHARE))
            rows[near] = _neighbours(low, high, (len(near), columns), random)
        return rows.reshape(array.shape).astype(dtype)

    def _is_number(self, array: Array) -> bool:
        return array.name in self.numbers or is_float(numpy_dtype(array.dtype))

    def _outputs(self, inputs: Sequence[Any], in_bfloat16: Rounds) -> Exact:
        """All outputs side by side: `[rows, columns]`."""
        with np.errstate(all="ignore"):
            outputs = self.formula(in_bfloat16, *inputs)
        arrays = outputs if isinstance(outputs, tuple) else (outputs,)
        stated = self.arrays()[1]
        got, expected = [np.shape(array) for array in arrays], [array.shape for array in stated]
        if got != expected:
            raise ValueError(f"{self.operation}: expected formula() to return arrays of {expected}, got {got}")
        rows = side_by_side([np.asarray(array).view(np.ndarray) for array in arrays])
        if not np.isfinite(rows).all():
            raise ValueError(
                f"{self.operation}: expected formula() to be finite for inputs up to {_SPIKE:g} and for larger drawn "
                "inputs, got infinity or NaN; write it so that nothing overflows (exp only of numbers up to 0), or "
                "bound the inputs with domain(). Rows of two inputs may be equal, so do not divide by their difference"
            )
        return rows

    def _typed(self, inputs: Sequence[Values], dtype: Any) -> list[Any]:
        return [array.astype(dtype if is_float(array.dtype) else np.int64) for array in inputs]

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), columns]` float64: the formula in float64."""
        return self._once("reference", inputs, self._exact)[rows]

    def _exact(self, inputs: Sequence[Values]) -> Exact:
        return self._outputs(self._typed(inputs, np.float64), lambda values: values).astype(np.float64)

    def _once(self, what: str, inputs: Sequence[Values], compute: Callable[[Sequence[Values]], Exact]) -> Exact:
        """All rows of an answer, kept for later checks of the same inputs."""
        digest = hashlib.sha256(repr((what, type(self), self)).encode())
        for array in inputs:
            digest.update(array.tobytes())
        name = digest.digest()
        if name not in _KEPT:
            _KEPT[name] = compute(inputs)
            while len(_KEPT) > 1 and sum(kept.nbytes for kept in _KEPT.values()) > _MOST_KEPT:
                del _KEPT[next(iter(_KEPT))]
        return _KEPT[name]

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """`[len(rows), columns]`: the formula in float32, rounded to bfloat16 where allowed and to output dtypes."""
        answers = self._outputs(self._typed(inputs, np.float32), _to_bfloat16)[rows]
        rounded = [
            answers[:, columns].astype(numpy_dtype(output.dtype)).astype(np.float64)
            for _, output, columns in spans(self.arrays()[1])
        ]
        return np.concatenate(rounded, axis=1)

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """The standard deviation of each output if every honest rounding were random.

        The formula is run eight times with numbers that err at random: as in float32, and by a rounding to bfloat16
        where that is allowed. The variance is the mean square of the errors of its outputs, plus ulp^2 / 12 for the
        rounding of each output.
        """
        return self._once("rounding", inputs, self._deviations)[rows]

    def exact_rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        """The standard deviation of each output, as in `rounding`, but estimated from `_MORE_RUNS` runs."""
        return self._once("exact rounding", inputs, lambda inputs: self._deviations(inputs, _MORE_RUNS))[rows]

    def _deviations(self, inputs: Sequence[Values], runs: int = _RUNS) -> Exact:
        exact = self._once("reference", inputs, self._exact)
        squares = np.zeros_like(exact)
        outputs = self.arrays()[1]
        for run in range(0 if all(is_exact(self, output) for output in outputs) else runs):
            random = np.random.default_rng((run, runs))
            erring = [noisy(array, random) for array in self._typed(inputs, np.float64)]
            squares += np.square(self._outputs(erring, _rounded_once) - exact)
        deviations = np.zeros_like(exact)
        for _, output, columns in spans(outputs):
            if not is_exact(self, output):
                of_output = np.square(ulp(exact[:, columns], output.dtype)) / 12
                deviations[:, columns] = np.sqrt(squares[:, columns] / runs + of_output)
                np.maximum(deviations[:, columns], np.finfo(np.float32).tiny, out=deviations[:, columns])
        return deviations

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes that each multiply one block of values along an axis of a numeric input by 0.5.

        Output rows that surely change in `reference` must change, and rows that do not change in `reference` must not
        change. There are no probes at the full shape, where every element is compared.
        """
        if full:
            return ()
        random, probes = np.random.default_rng((seed, len(self.arrays()[0]))), []
        inputs = self.make_inputs("normal", seed)
        every = np.arange(row_count(self.arrays()[1]))
        before, deviation = self.reference(inputs, every), self.rounding(inputs, every)
        for place, array in enumerate(self.arrays()[0]):
            for axis, length in enumerate(array.shape):
                if length == 1 or not self._is_number(array):
                    continue
                ranges = [range(length) for length in array.shape]
                ranges[axis] = block = drawn_block(length, random)
                name = f"elements {block.start} to {block.stop - 1} of axis {axis} of {array.name}"
                halved = probe(name, "normal", [Region(array=place, ranges=tuple(ranges), factor=_FACTOR)])
                off = np.abs(self.reference(changed(halved, inputs), every) - before)
                moves, stays = self._parts(off > _SURE * deviation, np.any), self._parts(off == 0, np.all)
                if moves:
                    probes.append(replace(halved, moves=tuple(moves), stays=tuple(stays)))
        return tuple(probes)

    def _parts(self, elements: NDArray[np.bool_], of_row: Callable[..., Any]) -> list[Part]:
        """The unbroken runs of rows of each output in which `of_row` (any or all) of the `elements` are True."""
        return [
            Part(rows=rows, columns=range(columns.start, columns.stop))
            for _, _, columns in spans(self.arrays()[1])
            for rows in runs(of_row(elements[:, columns], axis=1))
        ]

    def controls(self) -> dict[str, Answer]:
        """Wrong answers by name: an input is left out, or its elements are rotated by one along the last axis."""
        answers: dict[str, Answer] = {}
        for place, array in enumerate(self.arrays()[0]):
            if self._is_number(array):
                answers[f"{array.name} left out"] = self._with(place, functools.partial(self._left_out, array.name))
                # Some results, such as the sum of a row, do not depend on the order of the elements.
                if array.shape[-1] > 1 and self._depends_on_places(place):
                    answers[f"each element of {array.name} taken for the next"] = self._with(
                        place, lambda values: np.roll(values, 1, axis=-1)
                    )
        return answers

    def _left_out(self, name: str, values: Values) -> Values:
        """Zeros; for floats, zeros mapped into the input's domain, because a formula may divide by the input."""
        if not is_float(values.dtype):
            return np.zeros_like(values)
        return np.asarray(self.domain(name, np.zeros(values.shape, np.float32)), values.dtype)

    def _depends_on_places(self, place: int) -> bool:
        inputs, rows = self.make_inputs("normal", 0), np.arange(row_count(self.arrays()[1]))
        rolled = self._with(place, lambda values: np.roll(values, 1, axis=-1))(inputs, rows)
        return bool((np.abs(rolled - self.reference(inputs, rows)) > self.rounding(inputs, rows)).any())

    def _with(self, place: int, change: Callable[[Values], Values]) -> Answer:
        def answer(inputs: Sequence[Values], rows: Rows) -> Exact:
            changed = list(inputs)
            changed[place] = change(inputs[place])
            return self.reference(changed, rows)

        return answer


def _to_bfloat16(values: Any) -> Any:
    return values.astype(DTYPES["bfloat16"]).astype(values.dtype)


def _rounded_once(values: Any) -> Any:
    return rounded_at_random(values, "bfloat16")


def _neighbours(low: int, high: int, shape: tuple[int, int], random: np.random.Generator) -> NDArray[np.int64]:
    """Integers from `low` to `high` that differ by at most two within a row: large ones become equal in float32."""
    bits = max(_LEAST_POWER, high.bit_length(), low.bit_length() - 1)
    each = (shape[0], 1)
    power = 1 << random.integers(_LEAST_POWER, bits, each, endpoint=True)
    starts = np.choose(random.integers(4, size=each), np.broadcast_arrays(low, high, power, -power))
    starts = np.clip(starts, low, max(low, high - _NEIGHBOURS + 1))
    neighbours: NDArray[np.int64] = np.minimum(starts + random.integers(_NEIGHBOURS, size=shape), high)
    return neighbours


def _plain(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Rows without noise; inputs whose rows are equally long have the same rows."""
    random = generator("plain", seed)
    rows, columns = shape
    size = (_PLAIN_ROWS, columns)
    level = random.integers(-_SPIKES, _SPIKES, (_PLAIN_ROWS, 1), endpoint=True).astype(np.float32)
    place = random.integers(columns, size=(_PLAIN_ROWS, 1))
    step = np.where(np.arange(columns) == place, np.float32(0.5), np.float32(0))
    whole = random.integers(-2, 2, size, endpoint=True).astype(np.float32)
    # Formulas with a difference of squares lose a small step next to a large mean.
    made = (0 * whole, level + 0 * whole, 25 * level + step, whole, whole + np.float32(0.5))
    # If a vector, such as a gain, were all zeros, there would be nothing to compare.
    first = random.integers(len(made)) if rows > 1 else random.integers(3, len(made))
    which = (np.arange(_PLAIN_ROWS) + first)[:, None] % len(made)
    return np.resize(np.choose(np.broadcast_to(which, size), made), shape)
