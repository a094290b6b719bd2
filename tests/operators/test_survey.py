"""All rows are looked at: a few wrong rows stand out wherever they are, and honest outputs pass."""

import compared_rows
import numpy as np
import pytest
from wrong_rows import BY_ROWS, outputs_of

from harness.operators import Attention, AttentionBackward, Matmul, PagedAttention, Problem, RMSNorm, check
from harness.operators.outputs import row_count
from harness.operators.survey import Surveying, standing_out

# The smallest of each kind of which not all rows are compared; the paged one compares all rows below 12,288.
PROBLEMS: tuple[Problem, ...] = (
    *BY_ROWS,
    Attention(sequence=3072, head_dim=128),
    Attention(sequence=3072, head_dim=128, heads=2, kv_heads=1, causal=True),
    Attention(sequence=3072, head_dim=64, causal=True, window=256, soft_cap=30.0),
    Attention(sequence=3072, head_dim=64, causal=True, segments=8),
    AttentionBackward(sequence=2048, head_dim=64),
    AttentionBackward(sequence=2048, head_dim=64, heads=2, causal=True),
    AttentionBackward(sequence=2048, head_dim=64, heads=4, kv_heads=2, causal=True),
    PagedAttention(
        tokens=1024, heads=16, kv_heads=2, head_dim=64, sequences=8, pages=80, page_size=64, pages_per_sequence=16
    ),
)
# A tile of eight rows inside of a block of 128: neither its first nor its last is among them.
TILE = 8


@pytest.mark.long
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.statement().title)
def test_a_few_wrong_rows_are_found_and_right_ones_pass(problem: Problem) -> None:
    assert isinstance(problem, Surveying)
    family, seed = "composite", 11
    inputs, total = problem.make_inputs(family, seed), row_count(problem.statement().outputs)
    sampled = problem.sample_rows(seed)
    assert len(sampled) < total / 3
    exact = problem.honest(inputs, np.arange(total))
    right = outputs_of(problem, exact)
    assert check(problem, inputs, right, family=family, mode="full", seed=seed)[1] is None
    random = np.random.default_rng(seed)
    # The rows are read by somebody, and differ from those one block further on.
    starts = np.arange(TILE, total - 128, 128) + TILE * int(random.integers(14))
    starts = starts[(np.abs(exact[starts] - exact[starts + 128]) > 0.5 * np.abs(exact[starts])).any(axis=1)]
    tile = np.setdiff1d(int(random.choice(starts)) + np.arange(TILE), sampled)
    wrong = exact.copy()
    wrong[tile] = exact[tile + 128]
    outputs = outputs_of(problem, wrong)
    chosen = standing_out(problem, inputs, outputs, sampled, seed)
    assert np.isin(tile, chosen).mean() > 0.5
    assert not np.isin(chosen, sampled).any()
    failure = check(problem, inputs, outputs, family=family, mode="full", seed=seed)[1]
    assert failure is not None
    assert failure.kind == "wrong-result"


@pytest.mark.long
def test_a_single_wrong_element_of_a_product_is_found() -> None:
    problem, seed = Matmul(m=24576, n=512, k=512), 5
    inputs = problem.make_inputs("composite", seed)
    (output,) = outputs_of(problem, problem.honest(inputs, np.arange(problem.m)))
    row = int(np.setdiff1d(np.arange(problem.m), problem.sample_rows(seed))[1000])
    output[row, 77] = -output[row, 77]
    failure = check(problem, inputs, output, family="composite", mode="full", seed=seed)[1]
    assert failure is not None
    assert f"c[{row}, 77]" in failure.message


def test_rows_that_are_all_compared_are_not_looked_at_twice() -> None:
    problem = Matmul(m=256, n=256, k=256)
    inputs, rows = problem.make_inputs("normal", 1), problem.sample_rows(1)
    outputs = outputs_of(problem, problem.honest(inputs, rows))
    assert len(standing_out(problem, inputs, outputs, rows, 1)) == 0


@pytest.mark.long
def test_numbers_without_end_stand_out() -> None:
    problem = RMSNorm(rows=36864, columns=256)
    inputs, rows = problem.make_inputs("normal", 1), problem.sample_rows(1)
    outputs = outputs_of(problem, problem.honest(inputs, np.arange(problem.rows)))
    row = int(np.setdiff1d(np.arange(problem.rows), rows)[100])
    outputs[0][row] = np.inf
    assert row in standing_out(problem, inputs, outputs, rows, 1)


def test_the_page_says_how_many_rows_are_compared() -> None:
    assert compared_rows.page() == compared_rows.PAGE.read_text(encoding="utf-8")
