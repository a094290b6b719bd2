"""Problems stated by one function of numpy: they keep the rules, and tell right kernels from wrong ones."""

from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from harness import operators
from harness.operators import complaints, conformance, formula, prepare_module
from harness.operators.axes import axis
from harness.operators.controls import weaknesses
from harness.operators.formula import Formula
from harness.operators.noisy import noisy
from harness.operators.tolerance import errors
from harness.records import Array
from harness.tracebacks import place_in_prepare

pytestmark = pytest.mark.long

STATED = Path(__file__).parents[2] / "benchmarks" / "known_problems"
QUICK = ("cache_rows", "integer_matmul", "linear_scan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Silu(Formula):
    """Y = h sigmoid(h) of h = X + B."""

    operation = "silu"
    rows: int = field(metadata=axis(shortest=64, is_uneven=True))
    columns: int

    def arrays(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """X [rows, columns] and B [columns]; Y as X."""
        x = Array(name="x", shape=(self.rows, self.columns), dtype="bfloat16")
        return (x, replace(x, name="b", shape=(self.columns,))), (replace(x, name="y"),)

    def formula(self, in_bfloat16: Any, x: Any, b: Any) -> Any:
        """The textbook form: its exponential overflows float32, and its quotient then underflows."""
        h = x + b
        return h / (1 + np.exp(-h))


SILU = Silu(rows=64, columns=128)
ROWS = np.arange(64)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=[] if path.stem in QUICK else [pytest.mark.slow])
        for path in sorted(STATED.glob("*.py"))
    ],
)
def test_what_is_stated_of_other_packages_keeps_the_rules(name: str) -> None:
    problem = import_module(f"known_problems.{name}").problem()
    assert complaints(problem) == ()
    assert weaknesses(next(problem.reduced())) == ()


class Cooled(Silu):
    """Y = X / B, where B is a temperature from 0.5 to 2."""

    operation = "cooled"

    def domain(self, name: str, values: Any) -> Any:
        return 0.5 + 1.5 / (1 + np.exp(-np.clip(values, -80, 80))) if name == "b" else values

    def formula(self, in_bfloat16: Any, x: Any, b: Any) -> Any:
        return x / b


def test_an_input_that_is_left_out_stays_in_its_domain() -> None:
    problem = Cooled(rows=64, columns=128)
    answer = problem.controls()["b left out"](problem.make_inputs("normal", 1), ROWS)
    assert np.isfinite(answer).all()
    assert weaknesses(problem) == ()


def test_overflow_and_underflow_of_float32_are_in_the_tolerance() -> None:
    assert complaints(replace(SILU, rows=256)) == ()
    inputs = tuple(
        np.full_like(array, value) for array, value in zip(SILU.make_inputs("normal", 1), (-88, 0), strict=True)
    )
    flushed = np.zeros((64, 128), inputs[0].dtype)
    (error,) = errors(SILU, inputs, flushed, ROWS)
    assert error.passed


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, b: x / (1 + np.exp(-(x + b))),
        lambda x, b: (x + b) / (1 + np.exp(-1.702 * (x + b))),
        lambda x, b: np.where(np.arange(64)[:, None] == 63, 0, (x + b) / (1 + np.exp(-(x + b)))),
        lambda x, b: (x + np.roll(b, 1)) / (1 + np.exp(-(x + np.roll(b, 1)))),
    ],
)
def test_wrong_kernels_are_outside(wrong: Any) -> None:
    inputs = SILU.make_inputs("normal", 5)
    y = wrong(*(array.astype(np.float32) for array in inputs)).astype(inputs[0].dtype)
    (error,) = errors(SILU, inputs, y, ROWS)
    assert not error.passed


class Unbounded(Silu):
    def formula(self, in_bfloat16: Any, x: Any, b: Any) -> Any:
        return np.exp(x + b) / np.sum(np.exp(x + b), axis=1, keepdims=True)


def test_a_formula_that_is_not_finite_is_named() -> None:
    with pytest.raises(ValueError, match=r"expected formula\(\) to be finite .* bound the inputs with domain\(\)"):
        Unbounded(rows=64, columns=128).rounding(SILU.make_inputs("large", 1), ROWS)
    (sentence,) = complaints(Unbounded(rows=64, columns=128))
    assert sentence.startswith("formula() cannot be tried: ValueError: silu: expected formula() to be finite ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distances(Formula):
    """D [rows, rows]: the squared distances of rows of X and Y."""

    operation = "distances"
    rows: int = field(metadata=axis(shortest=64, is_uneven=True))
    columns: int = 128

    def arrays(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """X and Y [rows, columns], D [rows, rows]."""
        x = Array(name="x", shape=(self.rows, self.columns), dtype="bfloat16")
        return (x, replace(x, name="y")), (replace(x, name="d", shape=(self.rows, self.rows)),)

    def formula(self, in_bfloat16: Any, x: Any, y: Any) -> Any:
        """Difference by difference."""
        return np.stack([np.sum(np.square(row - y), axis=1) for row in x])


def test_rows_of_one_input_come_near_those_of_another() -> None:
    problem = Distances(rows=64)
    refused = []
    for family in (*problem.families(False), "composite"):
        inputs = problem.make_inputs(family, 2)
        x, y = (array.astype(np.float32) for array in inputs)
        expanded = np.sum(x * x, axis=1)[:, None] - 2 * (x @ y.T) + np.sum(y * y, axis=1)
        for d, is_right in ((problem.formula(None, x, y), True), (np.maximum(expanded, 0), False)):
            (error,) = errors(problem, inputs, d.astype(inputs[0].dtype), ROWS)
            assert error.passed or not is_right, family
            refused += [family] * (not error.passed)
    assert refused == ["near-rows", "composite"]


class Halved(Silu):
    def arrays(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        inputs, (y,) = super().arrays()
        return inputs, (replace(y, dtype="int32"),)


class Truncated(Silu):
    """A formula whose float32 result differs by more than random roundings explain."""

    def formula(self, in_bfloat16: Any, x: Any, b: Any) -> Any:
        return x + b + (0 if np.asarray(x).dtype == np.float64 else 1)


@pytest.mark.parametrize("problem", [Halved(rows=64, columns=128), Truncated(rows=64, columns=128)])
def test_complaints_about_a_formula_name_what_its_author_writes(problem: Formula) -> None:
    sentences = complaints(problem)
    assert sentences
    assert all("formula()" in sentence for sentence in sentences)
    for method in ("reference()", "honest()", "rounding()"):
        assert not any(method in sentence for sentence in sentences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permuted(Formula):
    """Y = X[ORDER], of whole numbers that decide nothing."""

    operation = "permuted"
    timed = ("any order",)
    numbers = ("x",)
    distinct: ClassVar[tuple[str, ...]] = ("order",)
    rows: int = field(metadata=axis(shortest=16))
    columns: int = 128

    def arrays(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """X [rows, columns], data, and ORDER [rows], a table; Y as X."""
        x = Array(name="x", shape=(self.rows, self.columns), dtype="int32", low=-5, high=1 << 30)
        order = Array(name="order", shape=(self.rows,), dtype="int32", low=0, high=self.rows - 1)
        return (x, order), (replace(x, name="y"),)

    def tables(self, family: str, random: np.random.Generator) -> dict[str, Any]:
        """An order of all rows."""
        return {"order": random.permutation(self.rows).astype(np.int32)}

    def formula(self, in_bfloat16: Any, x: Any, order: Any) -> Any:
        """The rows of X in this order."""
        return x[order]


class Gathered(Permuted):
    """Y = X[ORDER] with repeats allowed in ORDER, which is drawn as a permutation all the same."""

    distinct: ClassVar[tuple[str, ...]] = ()


def test_a_table_that_repeats_nothing_is_named() -> None:
    (sentence,) = complaints(Gathered(rows=64))
    assert sentence.startswith("expected a family in which entries of order are repeated, got none")


def test_whole_numbers_that_are_data_are_drawn_and_compared_exactly() -> None:
    problem = Permuted(rows=64)
    assert complaints(problem) == ()
    assert weaknesses(problem) == ()
    assert problem.timing_inputs()["any order"].keys() == {"x", "order"}
    (x, order), (same, _), (other, _) = (
        problem.make_inputs(*each) for each in (("any order", 1), ("any order", 2), ("normal", 2))
    )
    assert np.array_equal(x, same)
    assert not np.array_equal(x, other)
    assert -5 <= x.min() < x.max() <= 1 << 30
    y = x[order]
    y[5, 7] += 1
    (error,) = errors(problem, (x, order), y, ROWS)
    assert not error.passed


@pytest.mark.parametrize(("low", "high"), [(-(1 << 31), (1 << 31) - 1), (-5, 1 << 30), (0, 1), (7, 7), (-9, -4)])
def test_neighbouring_integers_stay_within_the_limits(low: int, high: int) -> None:
    x = formula._neighbours(low, high, (200, 128), np.random.default_rng(1))
    assert (x.min(), x.max()) == (low, high)
    assert (x.max(axis=1) - x.min(axis=1)).max() == min(2, high - low)


@pytest.mark.parametrize("family", ["near-rows", "composite"])
def test_neighbouring_integers_are_equal_in_float32(family: str) -> None:
    x = Permuted(rows=256).make_inputs(family, 3)[0]
    differ = x.argmax(axis=1) != x.astype(np.float32).argmax(axis=1)
    assert differ.sum() > 10


def test_a_mistake_in_prepare_is_said_with_its_line(tmp_path: Path) -> None:
    source = b"import numpy as np\n\n\ndef problem():\n    return np.zeros(3)[5]\n"
    module = prepare_module.run(source, str(tmp_path / "prepare.py"))
    with pytest.raises(IndexError) as raised:
        module.problem()
    assert place_in_prepare(raised.value) == "prepare.py line 5: "
    assert place_in_prepare(ValueError("of no frame")) == ""


def test_sums_err_as_much_as_those_of_float32_do() -> None:
    draw = np.random.default_rng(3)
    a, b = draw.standard_normal((64, 512)), draw.standard_normal((512, 64))
    a, b = (array.astype(np.float32).astype(np.float64) for array in (a, b))
    actual = np.zeros((64, 64), np.float32)
    for term in range(512):
        actual += np.outer(a[:, term], b[term]).astype(np.float32)
    erring = np.asarray(noisy(a, np.random.default_rng(1)) @ noisy(b, np.random.default_rng(1)))
    off, modelled = (float(np.std(sums - a @ b)) for sums in (actual, erring))
    # The model also allows for terms that are lost one after another beside a large sum.
    assert 0.01 < off / modelled < 1


def test_a_single_draw_of_zeros_does_not_count_against_the_template(tmp_path: Path) -> None:
    path = Path(operators.__file__).parent / "templates" / "formula" / "prepare.py"
    template = prepare_module.run(path.read_bytes(), str(tmp_path / "prepare.py"))
    # The first draw of `drawn-offsets` at this width has hardly an output that is not zero.
    assert complaints(template.BiasGelu(rows=64, columns=4096)) == ()


class Sums(Silu):
    """The sums of the columns of X and B in one row, and the mean square in a single element."""

    operation = "sums"

    def arrays(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """X [rows, columns] and B [columns]; S [1, columns] and L [1, 1]."""
        inputs, (y,) = super().arrays()
        return inputs, (replace(y, name="s", shape=(1, self.columns)), replace(y, name="l", shape=(1, 1)))

    def formula(self, in_bfloat16: Any, x: Any, b: Any) -> Any:
        """The sum of squares keeps all elements positive."""
        squares = x * x + b * b
        return squares.sum(axis=0, keepdims=True), squares.mean(keepdims=True)


def test_outputs_may_have_one_row_or_one_element() -> None:
    assert complaints(Sums(rows=64, columns=128)) == ()


class Normalised(Silu):
    """Y = (X - mean) / sqrt(variance + 1e-6) * B, by rows."""

    operation = "layer_norm"

    def formula(self, in_bfloat16: Any, x: Any, b: Any) -> Any:
        """Rows of equal elements become zeros, which is right."""
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-6) * b


def test_families_whose_right_answer_is_zero_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Normalised(rows=64, columns=2048)
    assert complaints(problem) == ()
    monkeypatch.setattr(conformance, "_ZERO", -1.0)
    assert any("y filled with zeros passes" in complaint for complaint in complaints(problem))
