"""Equal neighbours in drawn inputs: rows, columns, scales, weights and labels; and large blocks of one sign."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.operators import AllReduce, CrossEntropy, Matmul, QuantizedMatmul, RMSNorm, SwiGLU
from harness.operators.blocks import repeated_lines

_SEEDS = range(8)
_QUANTIZED = QuantizedMatmul(m=256, n=512, k=128, activations="int8")
_NORM = RMSNorm(rows=256, columns=256)
_WORDS = CrossEntropy(tokens=512, model=128, vocabulary=512)


def begin_equal(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """`[blocks]`: whether a block of 128 begins with two equal rows that are not zero."""
    first, second = rows[::128].astype(np.float32), rows[1::128].astype(np.float32)
    equal: NDArray[np.bool_] = (first == second).all(axis=1) & first.any(axis=1)
    return equal


def test_lines_are_repeated_in_pairs_at_starts_of_blocks_and_elsewhere() -> None:
    for seed in _SEEDS:
        lines = repeated_lines(4096, 0.1, np.random.default_rng(seed))
        assert np.diff(lines).min() > 1
        assert lines.max() < 4095
        assert (lines % 128 == 0).sum() > 16
        assert (lines % 8 == 0).mean() < 0.6
    assert not len(repeated_lines(1, 1.0, np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("problem", "repeating"),
    [
        (Matmul(m=512, n=512, k=128), ("a",)),
        (_QUANTIZED, ("a",)),
        (SwiGLU(tokens=512, model=128, hidden=512), ("x",)),
        (_WORDS, ("x",)),
        (_NORM, ("x", "r")),
    ],
    ids=["matmul", "quantized", "swiglu", "cross-entropy", "rmsnorm"],
)
@pytest.mark.parametrize("family", ["drawn-outliers", "drawn-scales"])
def test_blocks_begin_with_two_equal_rows(problem: Any, repeating: tuple[str, ...], family: str) -> None:
    blocks = 0
    for seed in _SEEDS:
        arrays = zip(problem.statement().inputs, problem.make_inputs(family, seed), strict=True)
        equal = np.all([begin_equal(values) for array, values in arrays if array.name in repeating], axis=0)
        blocks += int(equal.sum())
    assert blocks >= 2


def test_columns_of_a_product_are_equal_too() -> None:
    for seed in _SEEDS:
        b = Matmul(m=128, n=256, k=128).make_inputs("drawn-outliers", seed)[1].astype(np.float32)
        assert ((b[:, 1:] == b[:, :-1]).all(axis=0) & b[:, 1:].any(axis=0)).any()


@pytest.mark.parametrize("family", ["composite", "needles", "drawn-scales"])
def test_neighbouring_scales_are_equal_and_so_is_a_run_of_them(family: str) -> None:
    starts = 0
    for seed in _SEEDS:
        for scales in _QUANTIZED.make_inputs(family, seed)[2:]:
            starts += int(begin_equal(scales.reshape(-1, 1)).sum())
            same = np.flatnonzero(np.diff(scales.reshape(-1)) != 0)
            assert np.diff(same).max() >= 32
            assert len(same) >= 64
    assert starts >= 8
    for scales in _QUANTIZED.make_inputs("normal", 1)[2:]:
        assert len(np.unique(scales)) == scales.size


@pytest.mark.parametrize("family", ["composite", "spikes", "drawn-even"])
def test_some_weights_of_a_norm_are_one_and_some_are_minus_one(family: str) -> None:
    weights = [_NORM.make_inputs(family, seed)[-1].astype(np.float32) for seed in _SEEDS]
    assert any((w[:8] == 1).all() for w in weights)
    for w in weights:
        assert (w == 1).any()
        assert (w == -1).any()
        assert (np.abs(w) != 1).sum() > 64


@pytest.mark.parametrize("family", ["sharp", "far-values", "drawn-outliers"])
def test_labels_at_both_ends_of_blocks_are_equal_and_so_is_a_run_of_them(family: str) -> None:
    ends = 0
    for seed in _SEEDS:
        labels = _WORDS.make_inputs(family, seed)[2][:, 0]
        blocks = labels.reshape(-1, 128)
        ends += int(((blocks[:, 0] == blocks[:, 1]) & (blocks[:, 0] == blocks[:, -1]) & (np.ptp(blocks) > 0)).sum())
        counts = np.sort(np.bincount(labels))[::-1]
        assert counts[0] >= 96
        assert counts[1] >= 32
        assert len(np.unique(labels)) > 64
    assert ends >= 4


@pytest.mark.parametrize(
    ("problem", "place"),
    [
        (Matmul(m=256, n=256, k=128), 0),
        (Matmul(m=256, n=256, k=128), 1),
        (_NORM, 0),
        (AllReduce(rows=256, columns=256), 0),
        (SwiGLU(tokens=256, model=256, hidden=256), 2),
    ],
    ids=["a", "b", "rmsnorm", "all-reduce", "up"],
)
def test_far_values_have_blocks_of_either_sign(problem: Any, place: int) -> None:
    for seed in _SEEDS:
        values = problem.make_inputs("far-values", seed)[place].astype(np.float32)
        corners = [values[..., :128, :128], values[..., -128:, -128:]]
        assert {bool((corner > 0).all()) for corner in corners} == {True, False}
        assert {bool((corner < 0).all()) for corner in corners} == {True, False}


def test_some_drawn_matrices_have_one_sign() -> None:
    signs = set()
    for seed in range(16):
        for values in Matmul(m=64, n=64, k=64).make_inputs("drawn-scales", seed):
            signs.add((bool((values >= 0).all()), bool((values <= 0).all())))
    assert signs >= {(True, False), (False, True), (False, False)}
