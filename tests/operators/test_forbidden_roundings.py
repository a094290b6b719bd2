"""Roundings that the tolerance lets through, but the statement does not: scales of quantized products in bfloat16."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from harness.operators import QuantizedMatmul, check
from harness.records import Failure

COLUMNS = QuantizedMatmul(m=128, n=256, k=512)
BOTH = QuantizedMatmul(m=128, n=256, k=512, activations="int8")
FLOAT8 = QuantizedMatmul(m=128, n=256, k=512, activations="float8_e4m3fn", weights="float8_e4m3fn")
Scale = Callable[..., NDArray[Any]]
SEEDS = range(3)


def rounded(values: NDArray[Any]) -> NDArray[np.float32]:
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


HONEST: dict[str, tuple[QuantizedMatmul, Scale]] = {
    "columns": (COLUMNS, lambda sums, columns: sums * columns),
    "columns, then rows": (BOTH, lambda sums, columns, rows: sums * columns * rows),
    "rows, then columns": (BOTH, lambda sums, columns, rows: sums * rows * columns),
    "the product of both": (BOTH, lambda sums, columns, rows: sums * (columns * rows)),
    "float8": (FLOAT8, lambda sums, columns, rows: sums * columns * rows),
}
ROUNDED: dict[str, tuple[QuantizedMatmul, Scale]] = {
    "scales": (COLUMNS, lambda sums, columns: sums * rounded(columns)),
    "scales of columns": (BOTH, lambda sums, columns, rows: sums * rounded(columns) * rows),
    "scales of rows": (BOTH, lambda sums, columns, rows: sums * columns * rounded(rows)),
    "both": (BOTH, lambda sums, columns, rows: sums * rounded(columns) * rounded(rows)),
    "their product": (BOTH, lambda sums, columns, rows: sums * rounded(columns * rows)),
    "scales of float8": (FLOAT8, lambda sums, columns, rows: sums * rounded(columns) * rows),
    "scales in steps of 1/127": (COLUMNS, lambda sums, columns: sums * (rounded(columns * 127) / 127)),
    "scales of rows in steps of 1/3": (BOTH, lambda sums, columns, rows: sums * columns * (rounded(rows * 3) / 3)),
    "scales of rows of float8": (FLOAT8, lambda sums, columns, rows: sums * columns * rounded(rows)),
    "sums": (COLUMNS, lambda sums, columns: rounded(sums) * columns),
    "sums of int8": (BOTH, lambda sums, columns, rows: rounded(sums) * columns * rows),
    "sums of float8": (FLOAT8, lambda sums, columns, rows: rounded(sums) * (columns * rows)),
    "sums scaled by columns": (BOTH, lambda sums, columns, rows: rounded(sums * columns) * rows),
    "sums scaled by rows": (BOTH, lambda sums, columns, rows: rounded(sums * rows) * columns),
}


@cache
def drawn(problem: QuantizedMatmul, family: str, seed: int) -> tuple[NDArray[Any], ...]:
    """The inputs, made once for all kernels."""
    return problem.make_inputs(family, seed)


def judged(
    problem: QuantizedMatmul, scale: Scale, family: str, seed: int, change: Scale = np.asarray
) -> Failure | None:
    """The failure of a kernel that scales its sums so; `change` is made to the scales of the inputs."""
    a, q, *scales = drawn(problem, family, seed)
    scales = [change(values) for values in scales]
    output = scale(a.astype(np.float32) @ q.astype(np.float32), *scales).astype(problem.statement().outputs[0].dtype)
    return check(problem, (a, q, *scales), (output,), family=family, mode="full", seed=seed)[1]


@pytest.mark.parametrize("name", HONEST)
def test_scales_kept_in_float32_pass_in_any_order(name: str) -> None:
    problem, scale = HONEST[name]
    families = problem.families(full=False)
    assert [judged(problem, scale, family, 0) for family in families] == [None] * len(families)


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("family", ["normal", "composite"])
def test_rounded_scales_are_refused_in_every_draw(name: str, family: str) -> None:
    problem, scale = ROUNDED[name]
    assert None not in [judged(problem, scale, family, seed) for seed in SEEDS]


# Two roundings together are outside the tolerance.
@pytest.mark.parametrize("name", [name for name in ROUNDED if name != "both"])
def test_some_draws_are_refused_only_because_the_rounding_is_forbidden(name: str) -> None:
    problem, scale = ROUNDED[name]
    families = problem.families(full=False)
    messages = (getattr(judged(problem, scale, family, 0), "message", "") for family in reversed(families))
    assert any(message.startswith("forbidden rounding: the statement keeps ") for message in messages)


# The product of two numbers of bfloat16 has more digits than bfloat16.
@pytest.mark.parametrize("name", [name for name in ROUNDED if "scales" in name and "steps" not in name])
def test_scales_that_are_numbers_of_bfloat16_may_be_rounded(name: str) -> None:
    problem, scale = ROUNDED[name]
    assert judged(problem, scale, "normal", 0, change=rounded) is None


def test_a_column_too_short_to_tell_roundings_apart_is_not_refused() -> None:
    problem, scale = QuantizedMatmul(m=64, n=1, k=256), HONEST["columns"][1]
    assert {judged(problem, scale, "normal", seed) for seed in range(40)} == {None}


def test_float32_needs_no_forbidden_roundings_because_the_tolerance_refuses_them() -> None:
    problem, scale = replace(COLUMNS, dtype="float32", activations="float32"), ROUNDED["scales"][1]
    inputs = problem.make_inputs("normal", 0)
    assert problem.forbidden(inputs, np.arange(4)) == {}
    assert "worst element" in getattr(judged(problem, scale, "normal", 0), "message", "")


def test_a_single_row_scale_near_a_power_of_two_is_not_taken_for_a_rounding() -> None:
    """The only row scale of this draw is 0.03125284, so that rounding the sums is like rounding the output."""
    problem = QuantizedMatmul(m=1, n=512, k=256, activations="int8")
    inputs = problem.make_inputs("normal", 1346)
    assert abs(float(inputs[3][0, 0]) * 32 - 1) < 1e-4
    output = problem.honest(inputs, np.arange(1)).astype(ml_dtypes.bfloat16)
    assert check(problem, inputs, (output,), family="normal", mode="full", seed=1346)[1] is None
