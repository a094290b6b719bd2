"""The distances of neighbouring numbers, and the treatment of numbers too small to be normal."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from harness.operators import RMSNorm
from harness.operators.norm import rmsnorm
from harness.operators.rounding import DTYPES, drop_subnormal, ulp


@pytest.mark.parametrize("kind", [np.float32, np.float64, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_ulp_is_the_distance_of_neighbours(kind: Any, dtype: str) -> None:
    values = np.array([[0, 1, -1.5], [2, 3, 1e-4], [1e4, -0.0, 0.999]], kind)
    info = ml_dtypes.finfo(DTYPES[dtype])
    sizes = np.maximum(np.abs(values.astype(np.float64)), float(info.smallest_normal))
    np.testing.assert_array_equal(ulp(values, dtype), 2.0 ** np.floor(np.log2(sizes)) * float(info.eps))
    assert ulp(values[:0], dtype).shape == (0, 3)
    # A single number has no axis.
    assert ulp(values[1, 1], dtype) == 2 * ulp(values[0, 1], dtype)


def test_subnormal_numbers_become_zero_and_nothing_else_changes() -> None:
    values = np.array([0, 1e-40, 2e-38, 1, np.inf, np.nan], np.float32)
    expected = np.array([0, 0, 2e-38, 1, np.inf, np.nan], np.float32)
    drop_subnormal(values)
    np.testing.assert_array_equal(values, expected)


def test_rows_computed_in_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = RMSNorm(rows=12, columns=128, residual=True)
    inputs, rows = problem.make_inputs("composite", 3), np.arange(12)
    methods = (problem.reference, problem.honest, problem.rounding)
    whole = [method(inputs, rows) for method in methods]
    monkeypatch.setattr(rmsnorm, "_PART", 128)
    for method, expected in zip(methods, whole, strict=True):
        np.testing.assert_array_equal(method(inputs, rows), expected)
        assert method(inputs, rows[:0]).shape == (0, expected.shape[1])
