"""Normal numbers for large matrices."""

import numpy as np
import pytest

from harness.operators import normals
from harness.operators.normals import normal


def generator(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_up_to_the_pool_each_number_is_drawn() -> None:
    shape = (2048, normals.POOL // 2048)
    assert np.array_equal(normal(generator(), *shape), generator().standard_normal(shape, dtype=np.float32))


@pytest.mark.parametrize(("rows", "columns"), [(8192, 1024), (64, 1 << 17), (1 << 17, 64)])
def test_rows_of_large_matrices_differ_and_are_normal(rows: int, columns: int) -> None:
    values = normal(generator(), rows, columns)
    assert values.shape == (rows, columns)
    assert values.dtype == np.float32
    assert values.flags["C_CONTIGUOUS"]
    assert len(np.unique(values[:, :8], axis=0)) == rows
    # Chance moves the mean of a pool of some millions by a thousandth of a deviation.
    assert abs(float(values.mean(dtype=np.float64))) < 0.01
    assert abs(float(values.std(dtype=np.float64)) - 1) < 0.01
    assert np.abs(values).max() > 4.5
    # Two rows are correlated by chance alone: at most six deviations for a pair, and one over many pairs.
    pairs = values[:64, :4096]
    together = np.corrcoef(pairs) - np.eye(len(pairs))
    assert np.abs(together).max() < 7 / np.sqrt(pairs.shape[1])


def test_a_large_matrix_follows_from_the_generator() -> None:
    first, second, other = (normal(generator(seed), 4096, 2048) for seed in (1, 1, 2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.long
def test_there_may_be_more_rows_than_places() -> None:
    values = normal(generator(), 2 * normals.POOL, 1)
    assert abs(float(values.mean(dtype=np.float64))) < 0.01
