"""Rows of zeros, as padding makes them: some family of each operator has them in each input of floats."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from harness.loop import scaffold
from harness.operators import Attention, AttentionBackward, Suite
from harness.operators.attention.inputs import empty_rows
from harness.operators.blocks import empty_block
from harness.operators.exact import is_float, numpy_dtype
from harness.prepare import data

_SEEDS = (1, 2, 3)
# Inputs that need no row of zeros, by operation and name, and why.
EXCEPTIONS = {
    ("attention_backward", "o"): "a weighted mean of values, which are all zero only if all visible values are",
    ("attention_backward", "lse"): "a logarithm, for which 0 is a number like others",
    ("quantized_matmul", "scales"): "all factors of the columns at once, which no quantiser makes 0",
    ("quantized_matmul", "row_scales"): "a factor of a row of results, which are zero where the row of A is",
}


def smallest() -> Iterator[tuple[str, Any]]:
    """The smallest reduced shape of each template's problem, and of each member of a suite, by template and member."""
    for template in scaffold.templates():
        stated = data.read(scaffold.text(template, "prepare.py"))
        assert stated is not None
        problem = stated[0]
        members = [member.problem for member in problem.members] if isinstance(problem, Suite) else [problem]
        for number, member in enumerate(members):
            yield f"{template}, {number}", next(iter(member.reduced()), member)


@pytest.mark.parametrize("problem", (each := dict(smallest())).values(), ids=each)
def test_each_input_of_floats_has_a_row_of_zeros_in_some_family(problem: Any) -> None:
    stated = problem.statement()
    # A vector is one row: all of it zero, as a gain, would leave nothing to compare.
    left = {
        array.name
        for array in stated.inputs
        if len(array.shape) > 1 and is_float(numpy_dtype(array.dtype))
        if (stated.operation, array.name) not in EXCEPTIONS
    }
    # Drawn families, which are the last, have rows of zeros in more inputs than others.
    for seed, family in product(_SEEDS, reversed(problem.families(full=False))):
        if not left:
            break
        arrays = zip(stated.inputs, problem.make_inputs(family, seed), strict=True)
        asked = [(array.name, values) for array, values in arrays if array.name in left]
        left -= {name for name, values in asked if (values.astype(np.float32) == 0).all(axis=-1).any()}
    assert left == set()


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        (Attention(heads=2, kv_heads=1, sequence=512, head_dim=64, causal=True), {"q"}),
        (AttentionBackward(heads=2, kv_heads=1, sequence=512, head_dim=64, causal=True), {"q", "do"}),
    ],
)
def test_the_composite_has_a_block_of_zeros_between_other_rows(problem: Any, names: set[str]) -> None:
    for seed in _SEEDS:
        for array, values in zip(problem.statement().inputs, problem.make_inputs("composite", seed), strict=True):
            if array.name in names:
                empty = (values == 0).all(axis=-1)
                blocks = empty.reshape(2, -1, 128).all(axis=(0, 2))
                assert blocks.sum() == 1
                assert 0 < empty.reshape(2, -1, 128)[:, ~blocks].mean() < 0.3


def test_rows_follow_the_block_whose_gradients_are_zero() -> None:
    for seed in range(20):
        assert empty_rows(512, seed).stop < 512
    blocks = [empty_block(4096, 128, np.random.default_rng(seed)) for seed in range(200)]
    assert {len(block) for block in blocks} == {128, 256, 512, 1024}
    assert all(block.start % len(block) == 0 for block in blocks)
    assert max(block.stop for block in blocks) == 4096
    assert not empty_block(255, 128, np.random.default_rng(0))
