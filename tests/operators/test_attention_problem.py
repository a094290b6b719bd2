"""Attention as the judge states it: shapes, useful work, inputs, exact outputs, and outputs that are malformed."""

import math
import tracemalloc
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.operators import Attention, AttentionBackward, Problem, check
from harness.operators.space import DRAWN

CONTEST = Attention(sequence=16384, head_dim=128)
SMALL = Attention(sequence=512, head_dim=128)
CAUSAL = Attention(sequence=512, head_dim=128, causal=True)
GROUPED = Attention(batch=2, heads=6, kv_heads=2, sequence=96, kv_sequence=160, head_dim=64, causal=True)


# --- What is computed --------------------------------------------------------------------------


def test_the_contest_is_stated_in_full() -> None:
    statement = CONTEST.statement()
    assert statement.title == "attention forward, 1 head, sequence 16384, head_dim 128, bfloat16"
    assert [(a.name, a.shape, a.dtype) for a in statement.inputs] == [(n, (16384, 128), "bfloat16") for n in "qkv"]
    assert [a.shape for a in statement.outputs] == [(16384, 128)]
    assert dict(statement.parameters)["scale"] == 1 / math.sqrt(128)


def test_a_grouped_problem_is_stated_in_full() -> None:
    statement = GROUPED.statement()
    assert statement.title == (
        "attention forward, batch 2, 6 heads over 2 key/value heads, sequence 96 x 160, head_dim 64, bfloat16, causal"
    )
    assert [a.shape for a in statement.inputs] == [(2, 6, 96, 64), (2, 2, 160, 64), (2, 2, 160, 64)]


@pytest.mark.parametrize(
    ("problem", "query", "key"),
    [
        (Attention(sequence=8, head_dim=4), (8, 4), (8, 4)),
        (Attention(heads=2, sequence=8, head_dim=4), (2, 8, 4), (2, 8, 4)),
        (Attention(heads=2, kv_heads=1, sequence=8, head_dim=4), (2, 8, 4), (1, 8, 4)),
        (Attention(batch=3, sequence=8, head_dim=4), (3, 1, 8, 4), (3, 1, 8, 4)),
    ],
)
def test_axes_of_size_one_are_absent(problem: Attention, query: tuple[int, ...], key: tuple[int, ...]) -> None:
    arrays = problem.make_inputs("normal", 0)
    assert [a.shape for a in arrays] == [query, key, key]
    assert {a.dtype for a in arrays} == {np.dtype(ml_dtypes.bfloat16)}
    assert problem.statement().outputs[0].shape == query


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"heads": 6, "kv_heads": 4}, "kv_heads to divide heads"),
        ({"sequence": 0}, "sequence to be a positive integer, got 0"),
        ({"batch": True}, "batch to be a positive integer, got True"),
        ({"head_dim": 64.0}, "head_dim to be a positive integer, got 64.0"),
        ({"dtype": "int8"}, "expected dtype bfloat16 or float32, got 'int8'"),
        ({"causal": True, "kv_sequence": 64}, "kv_sequence >= sequence"),
        ({"scale": 0.0}, "positive finite scale, got 0.0"),
        ({"scale": math.nan}, "positive finite scale"),
        ({"window": 32}, "a window needs causal=True"),
        ({"causal": True, "window": 8}, "a window of 16 to 127 keys .kv_sequence - 1., got window=8"),
        ({"causal": True, "window": 128}, "16 to 127 keys .*, got window=128"),
        ({"soft_cap": -1.0}, "positive finite soft_cap, got -1.0"),
        ({"segments": 0}, "segments to be a positive integer, got 0"),
        ({"segments": 2, "kv_sequence": 256}, "kv_sequence = sequence"),
    ],
)
def test_what_does_not_exist_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        Attention(**{"sequence": 128, "head_dim": 64} | fields)
    assert caught.value.kind == "bad-problem"


def test_defaults_are_filled_in_so_that_equal_problems_are_equal() -> None:
    assert Attention(sequence=256, head_dim=64) == Attention(
        sequence=256, head_dim=64, heads=1, kv_heads=1, kv_sequence=256, scale=0.125
    )


def test_useful_work_of_the_contest_is_the_published_one() -> None:
    work = CONTEST.work()
    assert (work.matmul_flops, work.vector_flops) == (4 * 16384**2 * 128, 5 * 16384**2)
    assert round(work.flops / 1e9, 1) == 138.8
    assert work.minimum_hbm_bytes == 4 * 16384 * 128 * 2


def test_masked_pairs_are_not_useful_work() -> None:
    causal = replace(CONTEST, causal=True)
    assert causal.work().matmul_flops == 4 * 128 * (16384 * 16385 // 2)
    # Row i of 96 sees i + 1 + 64 of 160 keys.
    assert GROUPED.pairs == sum(i + 65 for i in range(96))
    assert GROUPED.work().vector_flops == 5 * GROUPED.pairs * 12
    assert GROUPED.work().minimum_hbm_bytes == (2 * 2 * 6 * 96 * 64 + 2 * 2 * 2 * 160 * 64) * 2


@pytest.mark.parametrize(("keys", "window"), [(96, 20), (96, 95), (160, 20), (160, 64), (160, 100)])
def test_pairs_that_have_left_the_window_are_not_useful_work(keys: int, window: int) -> None:
    problem = replace(GROUPED, kv_sequence=keys, window=window)
    assert problem.pairs == sum(min(i + 1 + keys - 96, window) for i in range(96))
    assert replace(problem, soft_cap=50.0).work().vector_flops == 7 * problem.pairs * 12
    assert "causal, window" in problem.statement().title


def test_pairs_of_packed_sequences_are_those_of_the_timed_calls() -> None:
    problem = Attention(batch=2, sequence=512, head_dim=64, causal=True, segments=5)
    lengths = [np.unique(ids["segment_ids"][0], return_counts=True)[1] for ids in problem.timing_inputs().values()]
    assert len(lengths) == 2
    assert problem.pairs == round(sum((length * (length + 1) // 2).sum() for length in lengths) / 2)
    assert problem.work().minimum_hbm_bytes == 4 * 2 * 512 * 64 * 2 + 4 * 2 * 512


def test_reduced_shapes_are_longer_than_the_window() -> None:
    problem = Attention(sequence=4096, head_dim=64, causal=True, window=512, segments=8)
    assert [(small.sequence, small.window, small.segments) for small in problem.reduced()] == [
        (1024, 512, 4),
        (2048, 512, 4),
    ]


def test_reduced_problems_grow_up_to_the_full_one() -> None:
    assert [p.sequence for p in CONTEST.reduced()] == [256, 512, 1024, 2048, 4096, 8192]
    assert list(Attention(sequence=256, head_dim=64).reduced()) == []
    full = Attention(batch=8, heads=32, kv_heads=8, sequence=1000, kv_sequence=3000, head_dim=64, causal=True)
    reduced = list(full.reduced())
    assert [(p.sequence, p.kv_sequence) for p in reduced] == [(256, 256), (512, 512), (1000, 1024), (1000, 2048)]
    assert {(p.batch, p.heads, p.kv_heads, p.head_dim, p.causal) for p in reduced} == {(2, 8, 2, 64, True)}


# --- Inputs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*SMALL.families(full=False), *SMALL.families(full=True)])
def test_inputs_follow_the_seed(family: str) -> None:
    first, again, other = (GROUPED.make_inputs(family, seed) for seed in (7, 7, 8))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    is_alike = [np.array_equal(a, b) for a, b in zip(first, other, strict=True)]
    assert sum(is_alike) <= (family == "far-below")
    assert all(np.isfinite(a.astype(np.float32)).all() for a in first)
    q, k, v = first
    # No head can replace another; if all keys are alike, the values differ.
    assert not np.array_equal(q[0, 0], q[0, 1])
    assert family == "far-below" or not np.array_equal(k[0, 0], k[0, 1])
    assert not np.array_equal(v[0, 0], v[1, 0])


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ValueError, match="'odd'"):
        SMALL.make_inputs("odd", 0)


@pytest.mark.parametrize("problem", [SMALL, CAUSAL], ids=["full", "causal"])
def test_every_query_of_needles_sees_one_key_next_to_a_block_border(problem: Attention) -> None:
    q, k, _ = (array.astype(np.float64) for array in problem.make_inputs("needles", 3))
    scores = q @ k.T * problem.scale
    if problem.causal:
        scores[np.triu_indices(512, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    assert weights.max(axis=1).min() > 0.99
    borders = {0, 127, 128, 255, 256, 383, 384, 511}
    # Under the mask, only one query sees the very last key, and it may look elsewhere.
    assert borders - {511} <= set(weights.argmax(axis=1).tolist()) <= borders


def test_queries_of_one_group_look_for_different_needles() -> None:
    q, _, _ = Attention(heads=4, kv_heads=1, sequence=512, head_dim=64).make_inputs("needles", 0)
    for other in (1, 2, 3):
        assert np.mean(np.all(q[0] == q[other], axis=-1)) < 0.6


def test_equal_keys_average_the_values() -> None:
    inputs = SMALL.make_inputs("equal-keys", 1)
    expected = np.tile(inputs[2].astype(np.float64).mean(axis=0), (512, 1))
    np.testing.assert_allclose(SMALL.reference(inputs, np.arange(512)), expected, atol=1e-12)


def test_rows_are_all_compared_where_that_is_cheap() -> None:
    assert np.array_equal(SMALL.sample_rows(1), np.arange(512))
    assert np.array_equal(Attention(sequence=2048, head_dim=64).sample_rows(0), np.arange(2048))


def test_sampled_rows_see_every_block_of_the_contest() -> None:
    rows = CONTEST.sample_rows(5)
    assert 256 <= len(rows) <= 400
    assert np.array_equal(rows, np.unique(rows))
    assert set(range(0, 16384, 128)) | set(range(127, 16384, 128)) <= set(rows.tolist())
    assert not np.array_equal(rows, CONTEST.sample_rows(6))


def test_sampled_rows_see_every_head() -> None:
    problem = Attention(batch=4, heads=16, kv_heads=4, sequence=4096, head_dim=128)
    head, position = np.divmod(problem.sample_rows(0), 4096)
    assert set(head) == set(range(64))
    assert all({0, 4095} <= set(position[head == h]) for h in range(64))
    # The rows cost about as much as one head, and are spread over all blocks.
    assert len(head) < 2000
    assert set(position // 128) == set(range(32))


# --- Exact outputs -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", GROUPED.families(full=False))
def test_the_reference_is_the_textbook_formula(family: str) -> None:
    inputs = GROUPED.make_inputs(family, 2)
    q, k, v = (array.astype(np.float64) for array in inputs)
    k, v = (np.repeat(array, 3, axis=1) for array in (k, v))
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * GROUPED.scale
    scores = np.where(np.tri(96, 160, 64, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(axis=-1, keepdims=True), v).reshape(-1, 64)
    rows = np.array([0, 5, 95, 96, 500, 1151])
    np.testing.assert_allclose(GROUPED.reference(inputs, rows), expected[rows], rtol=1e-12, atol=1e-12)


def test_the_reference_does_not_depend_on_which_rows_are_asked_for() -> None:
    inputs = CONTEST.make_inputs("composite", 0)
    rows = CONTEST.sample_rows(0)
    some = rows[::37]
    np.testing.assert_allclose(
        CONTEST.reference(inputs, rows)[::37], CONTEST.reference(inputs, some), rtol=1e-12, atol=1e-13
    )


# --- Malformed outputs -------------------------------------------------------------------------


def refused(outputs: Any) -> tuple[str, str]:
    """Kind and message of the failure that `outputs` of the small problem give."""
    inputs = SMALL.make_inputs("normal", 0)
    result, failure = check(SMALL, inputs, outputs, family="normal", mode="device", seed=0)
    assert failure is not None
    assert not result.passed
    assert (result.error, result.honest_error, result.tolerance, result.elements) == (None, None, None, 0)
    return failure.kind, failure.message


def output(shape: tuple[int, ...] = (512, 128), dtype: Any = ml_dtypes.bfloat16) -> NDArray[Any]:
    return np.zeros(shape, dtype)


def test_structure_shape_and_dtype_come_before_any_number() -> None:
    assert refused(()) == ("wrong-structure", "expected 1 output array, got 0 (inputs: normal, seed 0)")
    assert refused((output(), output()))[0] == "wrong-structure"
    assert refused(([1.0, 2.0],)) == ("wrong-structure", "expected o to be an array, got list (inputs: normal, seed 0)")
    assert refused(output((128, 512))) == (
        "wrong-shape",
        "expected o of shape (512, 128), got (128, 512) (inputs: normal, seed 0)",
    )
    assert refused(output(dtype=np.float32)) == (
        "wrong-dtype",
        "expected o of dtype bfloat16, got float32 (inputs: normal, seed 0)",
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_single_non_finite_output_fails_even_where_nothing_is_compared(value: float) -> None:
    array = output((16384, 128))
    array[9001, 5] = value
    array[9002, 5] = value
    assert 9001 not in CONTEST.sample_rows(0)
    result, failure = check(CONTEST, (), array, family="composite", mode="full", seed=0)
    assert failure is not None
    assert failure.kind == "non-finite"
    assert "uninitialised memory" in failure.detail
    assert failure.message.startswith(
        f"2 of 2097152 outputs are not finite, in o[9001..9002, 5]; the first is o[9001, 5] = {value}"
    )
    assert result.error is None


# --- Cost --------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_full_check_stays_under_a_gigabyte() -> None:
    inputs = CONTEST.make_inputs("composite", 0)
    tracemalloc.start()
    try:
        check(CONTEST, inputs, output((16384, 128)), family="composite", mode="full", seed=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 500_000_000


def test_attention_is_a_problem() -> None:
    problem: Problem = SMALL
    assert problem.families(full=True) == ("drawn-all", "composite")
    assert len([family for family in problem.families(full=False) if not family.startswith(DRAWN)]) == 7
    assert len([family for family in problem.families(full=False) if family.startswith(DRAWN)]) == 9


@pytest.mark.parametrize("family", [family for family in SMALL.families(full=False) if family.startswith(DRAWN)])
def test_a_recipe_makes_the_same_inputs_wherever_it_is_written_down(family: str) -> None:
    recipe = GROUPED.recipe(family, 5)
    assert recipe == GROUPED.recipe(family, 5) != GROUPED.recipe(family, 6)
    first, again = (GROUPED.make_inputs(recipe, 9) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert GROUPED.recipe(recipe, 9) == recipe


@pytest.mark.parametrize("family", ["drawn-nothing", "recipe {", 'recipe {"picks": "many"}'])
def test_what_is_no_recipe_is_refused(family: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        SMALL.make_inputs(family, 0)


@pytest.mark.parametrize(
    "problem", [Attention(sequence=512, head_dim=64), AttentionBackward(sequence=512, head_dim=64)]
)
def test_some_inputs_have_equal_neighbours_and_a_block_of_zero_values(problem: Any) -> None:
    for seed in range(3):
        q, k, v = problem.make_inputs("drawn-rises", seed)[:3]
        for array in (q, v):
            is_equal = (array[1:] == array[:-1]).all(axis=1)
            assert is_equal[0]
            assert array[0].any()
            assert not (is_equal[1:] & is_equal[:-1]).any()
        assert not (k[1:] == k[:-1]).all(axis=1).any()
        is_zero = (problem.make_inputs("drawn-scales", seed)[2] == 0).all(axis=1)
        assert is_zero.reshape(-1, 128).all(axis=1).any()


def test_values_far_from_zero_have_one_sign_in_each_head_and_both_signs_in_some_inputs() -> None:
    problem = Attention(heads=2, sequence=256, head_dim=64)
    for family, first in (("far-values", -1), ("far-below", 1)):
        v = problem.make_inputs(family, 1)[2]
        assert (np.sign(v[0]) == first).all()
        assert (np.sign(v[1]) == -first).all()
    one_head = AttentionBackward(sequence=256, head_dim=64)
    for family, place in (("far-values", 2), ("far-gradients", 5)):
        arrays = [one_head.make_inputs(family, seed)[place].astype(np.float32) for seed in range(8)]
        assert {sign for array in arrays for sign in np.sign(array).flat} == {-1, 1}
        assert all(len(np.unique(np.sign(array))) == 1 for array in arrays)
