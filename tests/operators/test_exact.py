"""Outputs that are compared to the bit: integers and copied floats pass only as the problem states them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from harness.operators import TopK, check, complaints
from harness.operators.controls import weaknesses
from harness.operators.exact import ExactAnswers
from harness.operators.probes import Part, Probe, Region
from harness.records import Array, Check, Failure, Statement, Work

Arrays = Sequence[NDArray[Any]]
SMALL = TopK(rows=64, columns=128, k=4)


def answers(problem: TopK, inputs: Arrays) -> list[NDArray[Any]]:
    """The right answers, as arrays of the problem."""
    values, indices = np.split(problem.reference(inputs, np.arange(problem.rows)), 2, axis=1)
    return [values.astype(np.float32), indices.astype(np.int32)]


def judged(outputs: Arrays, family: str = "ties") -> tuple[Check, Failure | None]:
    """The check of these outputs."""
    return check(SMALL, SMALL.make_inputs(family, 5), outputs, family=family, mode="reduced", seed=5)


@pytest.mark.parametrize("family", [*SMALL.families(False), *SMALL.families(True)])
def test_what_is_right_passes_without_a_tolerance(family: str) -> None:
    result, failure = judged(answers(SMALL, SMALL.make_inputs(family, 5)), family)
    assert failure is None
    assert (result.criterion, result.tolerance, result.error, result.elements) == ("exact", 0.0, 0.0, 2 * 64 * 4)


def one_more(values: NDArray[Any], indices: NDArray[Any]) -> None:
    indices[7, 2] += 1


def next_number(values: NDArray[Any], indices: NDArray[Any]) -> None:
    values[7, 2] = np.nextafter(values[7, 2], np.float32(9))


def other_zero(values: NDArray[Any], indices: NDArray[Any]) -> None:
    values[7, 2] = -0.0


@pytest.mark.parametrize(
    ("change", "where"), [(one_more, "indices[7, 2]"), (next_number, "values[7, 2]"), (other_zero, "values[7, 2]")]
)
def test_one_bit_in_one_element_fails_and_is_named(change: Callable[..., None], where: str) -> None:
    zeros = (np.zeros((64, 128), np.float32),)
    outputs = answers(SMALL, zeros)
    change(*outputs)
    result, failure = check(SMALL, zeros, outputs, family="ties", mode="reduced", seed=5)
    assert failure is not None
    assert (failure.kind, result.error, result.passed) == ("wrong-result", 1.0, False)
    assert where in failure.message
    assert "compared exactly" in failure.message


def test_equal_elements_go_by_the_rule() -> None:
    inputs = SMALL.make_inputs("equal", 5)
    values, indices = answers(SMALL, inputs)
    assert (indices == np.arange(4)).all()
    assert judged([values, indices[:, ::-1].copy()], "equal")[1] is not None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["wide", "composite"])
def test_rows_are_so_large_that_a_bound_shows_and_so_small_that_a_step_does(dtype: str, family: str) -> None:
    problem = TopK(rows=512, columns=128, k=4, dtype=dtype)
    (x,) = problem.make_inputs(family, 5)
    bound, step = x.dtype.type(1e9), x.dtype.type(2.0**-23)
    for narrowed in (np.minimum(x, bound), np.rint(np.maximum(x, -bound) / step)):
        assert (answers(problem, (narrowed,))[1] != answers(problem, (x,))[1]).any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_neighbouring_numbers_have_either_sign_and_any_size(dtype: str) -> None:
    (x,) = TopK(rows=256, columns=128, k=4, dtype=dtype).make_inputs("near", 5)
    rows = x.astype(np.float64)
    assert {-1, 1} <= set(np.sign(rows).mean(axis=1).tolist())
    assert np.abs(rows).min() < 1e-9
    assert np.abs(rows).max() > 1e9
    bits = np.abs(x).view(np.int32 if dtype == "float32" else np.int16).astype(np.int64)
    assert (np.ptp(bits, axis=1) < 8).all()


@pytest.mark.parametrize(("columns", "strides"), [(256, {2, 4, 8, 16, 32}), (1024, {2, 4, 8, 16, 32, 64, 128})])
@pytest.mark.parametrize("family", ["lanes", "composite"])
def test_the_largest_of_a_row_are_a_drawn_number_of_columns_apart(columns: int, strides: set[int], family: str) -> None:
    problem = TopK(rows=512, columns=columns, k=8)
    _, indices = answers(problem, problem.make_inputs(family, 5))
    apart = np.gcd.reduce(indices - indices[:, :1], axis=1)
    assert all((apart == stride).sum() >= 4 for stride in strides)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_hidden_elements_may_be_the_least_but_one(dtype: str) -> None:
    (x,) = TopK(rows=64, columns=128, k=4, dtype=dtype).make_inputs("masked", 5)
    least = ml_dtypes.finfo(x.dtype).min
    assert x.min() == np.nextafter(least, x.dtype.type(0))
    assert len(np.unique(x.min(axis=1))) > 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_some_blocks_of_rows_are_negative_and_some_begin_with_equal_rows(dtype: str) -> None:
    problem = TopK(rows=512, columns=128, k=4, dtype=dtype)
    (composite,), (wide,), (rising,) = (problem.make_inputs(family, 5) for family in ("composite", "wide", "rising"))
    assert (rising < 0).all()
    assert (composite.reshape(-1, 64, 128) < 0).all(axis=(1, 2)).any()
    for x in (composite, wide):
        for size in (8, 16, 32):
            first, second = x.reshape(-1, size, 128)[:, :2].swapaxes(0, 1)
            is_equal = ((first == second) & (np.ptp(first, axis=1, keepdims=True) > 0)).all(axis=1)
            assert is_equal.any()
            assert not is_equal.all()


def test_top_k_agrees_with_jax() -> None:
    import jax

    for family in SMALL.families(False):
        inputs = SMALL.make_inputs(family, 3)
        theirs = jax.lax.top_k(inputs[0], 4)
        assert all(np.array_equal(a, b) for a, b in zip(answers(SMALL, inputs), theirs, strict=True))


@pytest.mark.parametrize("problem", [SMALL, replace(SMALL, dtype="bfloat16", k=1), TopK(rows=512, columns=256, k=8)])
def test_the_operator_keeps_what_every_problem_must(problem: TopK) -> None:
    assert complaints(problem) == ()
    assert weaknesses(problem) == ()


@dataclass(frozen=True, kw_only=True)
class Permuted(ExactAnswers):
    """OUT[i] = X[ORDER[i]]: a gather of rows, stated by a contest itself."""

    rows: int = 512
    dtype: str = "int8"
    named: tuple[str, ...] = ()

    def statement(self) -> Statement:
        x = Array(name="x", shape=(self.rows, 128), dtype=self.dtype)
        order = Array(name="order", shape=(self.rows,), dtype="int32", low=0, high=self.rows - 1)
        return Statement(
            operation="permuted",
            title=f"{self.rows} rows permuted",
            parameters=(("rows", self.rows),),
            inputs=(x, order),
            outputs=(replace(x, name="out"),),
            work=Work(matmul_flops=0, vector_flops=self.rows * 128, minimum_hbm_bytes=2 * self.rows * 128),
        )

    def exact(self) -> tuple[str, ...]:
        return self.named

    def timing_inputs(self) -> dict[str, dict[str, NDArray[Any]]]:
        return {"timed": {"order": self.make_inputs("timed", 0)[1]}}

    def families(self, full: bool) -> tuple[str, ...]:
        return ("timed", "drawn")

    def make_inputs(self, family: str, seed: int) -> tuple[NDArray[Any], ...]:
        if family not in self.families(True):
            raise ValueError(family)
        x = np.random.default_rng(seed).integers(-60, 61, (self.rows, 128)).astype(self.dtype)
        order = np.random.default_rng((family != "timed") * seed).permutation(self.rows)
        return x, order.astype(np.int32)

    def reduced(self) -> Any:
        return (replace(self, rows=rows) for rows in (64, 128, 256) if rows < self.rows)

    def second_shape(self, small: "Permuted") -> "Permuted":
        return replace(small, rows=small.rows * 3 // 2)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        order = self.make_inputs("drawn", seed)[1]
        row = int(np.flatnonzero(order == 0)[0])
        region = Region(array=0, ranges=(range(1), range(128)), factor=2.0)
        moves = (Part(rows=range(row, row + 1), columns=range(128)),)
        stays = tuple(
            Part(rows=rows, columns=range(128)) for rows in (range(row), range(row + 1, self.rows)) if len(rows)
        )
        return (Probe(name="the first row", family="drawn", regions=(region,), moves=moves, stays=stays),)

    def sample_rows(self, seed: int) -> NDArray[np.int64]:
        return np.arange(self.rows)

    def reference(self, inputs: Arrays, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return inputs[0][inputs[1][rows]].astype(np.float64)


def test_a_problem_of_ones_own_may_have_whole_numbers() -> None:
    assert complaints(Permuted()) == ()


@pytest.mark.parametrize(
    ("problem", "words"),
    [(Permuted(dtype="int64"), "at most 32 bits"), (Permuted(named=("other",)), "exact() to name outputs, got other")],
)
def test_what_cannot_be_exact_is_refused(problem: Permuted, words: str) -> None:
    assert words in "; ".join(complaints(problem))


class Halves(Permuted):
    """The same, with a reference that is no whole number."""

    def reference(self, inputs: Arrays, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return super().reference(inputs, rows) + 0.5


def test_an_exact_answer_is_a_number_of_its_dtype() -> None:
    assert "to be representable in int8" in "; ".join(complaints(Halves()))
