"""Operators stated by formulas, of caches and of states over time: fields that do not fit, and arrays written over."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from harness.errors import UsageError
from harness.operators import CacheRows, GatedDelta, LatentAttention, complaints
from harness.operators.controls import weaknesses
from harness.records import Statement

ROWS = CacheRows(tokens=64, heads=2, head_dim=64, pages=32, page_size=16, pieces=8)
DELTA = GatedDelta(kind="gated delta rule", time=128, heads=2, dim=64)
LATENT = LatentAttention(
    tokens=20,
    sequences=4,
    heads=2,
    latent=128,
    rope=32,
    padded=64,
    pages=20,
    page_size=16,
    pages_per_sequence=4,
    scale=0.1,
)


@pytest.mark.parametrize(
    ("problem", "changes", "message"),
    [
        (ROWS, {"pieces": 33}, "expected pieces to be at most pages"),
        (ROWS, {"pieces": 0}, "expected pieces to be a positive integer"),
        (DELTA, {"kind": "delta"}, "expected kind gated delta rule 2 or gated delta rule or"),
        (LATENT, {"pages": 15}, "expected pages of at least 16, got 15"),
        (LATENT, {"padded": 16}, "expected padded of at least 32, got 16"),
        (LATENT, {"tokens": 100}, "expected pages_per_sequence of at least 7, got 4"),
        (LATENT, {"page_size": 15}, "expected an even page_size, got 15"),
        (LATENT, {"scale": 0.0}, "expected a positive finite scale"),
    ],
)
def test_fields_that_do_not_fit_are_refused(problem: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        replace(problem, **changes)
    assert caught.value.kind == "bad-problem"


@pytest.mark.parametrize(
    "problem", [ROWS, pytest.param(DELTA, marks=pytest.mark.long), LATENT], ids=lambda problem: problem.operation
)
def test_answers_that_leave_something_out_are_outside(problem: Any) -> None:
    assert weaknesses(problem) == ()


def test_a_cache_is_handed_over_and_only_its_new_rows_are_credited() -> None:
    statement = ROWS.statement()
    assert [statement.inputs[place].name for place in statement.donated] == ["cache"]
    rows = int(ROWS.timing_inputs()["even"]["slices"][2].sum())
    assert statement.work.minimum_hbm_bytes == 2 * rows * 2 * 64 * 2 + 4 * (3 * 8 + 1)


def test_mixed_tokens_see_the_keys_up_to_their_own() -> None:
    tables = LATENT.timing_inputs()["mixed"]
    queries, lengths = np.diff(tables["starts"]), tables["lens"]
    seen = sum(length - late for length, many in zip(lengths, queries, strict=True) for late in range(many))
    assert LATENT.matmul_flops() == 2 * 2 * (2 * 128 + 32) * seen


def tables(problem: CacheRows | LatentAttention, seeds: int = 10) -> list[dict[str, Any]]:
    """The tables of untimed inputs, by name, for some seeds."""
    names = [array.name for array in problem.statement().inputs]
    return [dict(zip(names, problem.make_inputs("normal", seed), strict=True)) for seed in range(seeds)]


def test_pieces_lie_anywhere_in_the_new_rows_and_columns_behind_them_hold_anything() -> None:
    slices = [(made["slices"], int(made["count"][0])) for made in tables(ROWS)]
    assert any((np.diff(columns[1, :count]) < 0).any() for columns, count in slices), "in any order"
    assert any(columns[2, :count].sum() < columns[:, :count][1:].sum(axis=0).max() for columns, count in slices), "gaps"
    assert all((columns[2, count:] > 0).all() for columns, count in slices)
    for columns, count in slices:
        copied = [row for _, start, rows in columns.T[:count] for row in range(start, start + rows)]
        assert len(set(copied)) == len(copied)
        assert max(copied) < ROWS.tokens


def test_pieces_follow_each_other_in_the_cache_in_the_new_rows_or_in_both() -> None:
    places = set()
    for made in tables(ROWS, 30):
        place, start, rows = made["slices"][:, : int(made["count"][0])]
        follows = (at[1:] == at[:-1] + rows[:-1] for at in (place, start))
        places |= set(zip(*(some.tolist() for some in follows), strict=True))
        assert (place // ROWS.page_size == (place + rows - 1) // ROWS.page_size).all()
        assert len(set((place // ROWS.page_size).tolist())) == len(place)
    assert len(places) == 4


@pytest.mark.parametrize("family", ["written-before", "composite"])
def test_a_cache_may_have_some_rows_of_a_piece_already_but_not_the_whole_piece(family: str) -> None:
    firsts = lasts = 0
    for seed in range(10):
        new, slices, cache, count = ROWS.make_inputs(family, seed)
        for place, start, rows in slices.T[: count[0]]:
            same = (new[start : start + rows] == cache[place : place + rows]).all(axis=(1, 2))
            assert family == "composite" or not same.all()
            firsts, lasts = firsts + int(same[0]), lasts + int(same[-1])
    assert firsts > 5
    assert lasts > 5


def test_patterns_are_finite_numbers_of_all_magnitudes() -> None:
    new, _, cache, _ = ROWS.make_inputs("patterns", 0)
    for array in (new, cache):
        magnitudes = np.abs(array[array != 0].astype(np.float64))
        assert magnitudes.min() < 2.0**-120
        assert 2.0**120 < magnitudes.max() < np.inf


@pytest.mark.parametrize("problem", [LATENT, replace(LATENT, tokens=40), replace(LATENT, tokens=5)])
def test_several_sequences_may_have_many_tokens_and_some_none(problem: LatentAttention) -> None:
    made = tables(problem)
    queries = [np.diff(inputs["starts"]) for inputs in made]
    assert any((many > 1).sum() > 1 or (many == 0).any() for many in queries)
    for inputs, many in zip(made, queries, strict=True):
        decoding, _, count = inputs["counts"]
        assert (many[:decoding] == 1).all()
        assert (many[:count] > 0).all()
        assert not many[count:].any()
        assert many.sum() == problem.tokens
        assert (inputs["lens"] >= many).all()


def test_some_neighbours_are_equally_long_or_have_successive_pages_and_others_are_not() -> None:
    lengths, in_order = set(), set()
    for made in tables(LATENT, 30):
        lengths.add(tuple((np.diff(made["lens"][:3]) == 0).tolist()))
        if (made["lens"][:2] > LATENT.page_size).all():
            first, second = made["at"].reshape(LATENT.sequences, -1)[:2].tolist()
            in_order.add((first[1] - first[0] == 1, second[1] - second[0] == 1))
    assert {(True, False), (False, False)} <= lengths
    assert {(True, False), (False, True)} & in_order


def test_of_as_many_tokens_as_sequences_each_has_one() -> None:
    assert all((np.diff(inputs["starts"]) == 1).all() for inputs in tables(replace(LATENT, tokens=4)))


@pytest.mark.parametrize("family", ["steep", "composite"])
@pytest.mark.parametrize("kind", ["gated linear attention", "gated delta rule"])
def test_what_has_decayed_in_sixteen_steps_has_no_inverse_in_float32(kind: str, family: str) -> None:
    inputs = replace(DELTA, kind=kind).make_inputs(family, 1)
    decays = inputs[3].reshape(-1, 16, *inputs[3].shape[1:])
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(-decays.sum(axis=1))).any()
    assert decays.min() >= -8
    assert decays.max() <= 0


@pytest.mark.parametrize("family", ["repeats", "composite"])
@pytest.mark.parametrize("kind", ["delta rule", "gated delta rule", "gated delta rule 2", "delta attention"])
def test_powers_of_the_products_of_some_keys_cancel(kind: str, family: str) -> None:
    problem = replace(DELTA, kind=kind, time=512)
    for seed in range(4):
        inputs = dict(
            zip((array.name for array in problem.arrays()[0]), problem.make_inputs(family, seed), strict=True)
        )
        k, largest = inputs["k"].astype(np.float64), 0.0
        b = inputs["b"].reshape(*k.shape[:2], -1)
        g = inputs.get("g", np.zeros(k.shape)).reshape(*k.shape[:2], -1)
        for start in range(0, problem.time, 32):
            steps = slice(start, start + 32)
            slow = np.exp(g[steps].sum(axis=0).mean(axis=-1))[:, None, None]
            products = np.tril(np.einsum("thd,shd->hts", b[steps] * k[steps], k[steps]) * slow, -1)
            largest = max(largest, np.abs(np.linalg.matrix_power(products, 16)).max())
        assert largest > 1e6


def test_linear_attention_repeats_no_keys() -> None:
    assert "repeats" not in replace(DELTA, kind="gated linear attention").families(False)


def test_a_piece_may_be_far_longer_than_its_share_of_the_new_rows() -> None:
    shares = [made["slices"][2, : made["count"][0]].max() * made["count"][0] / ROWS.tokens for made in tables(ROWS)]
    assert max(shares) > 1.5
    lengths = np.concatenate([made["slices"][2, : made["count"][0]] for made in tables(ROWS)])
    assert {1, ROWS.page_size} <= set(lengths.tolist())


@pytest.mark.parametrize("kind", ["gated linear attention", "gated delta rule"])
def test_the_first_steps_of_some_columns_still_count_at_the_end(kind: str) -> None:
    for seed in range(4):
        decays = replace(DELTA, kind=kind, time=512).make_inputs("composite", seed)[3].astype(np.float64)
        kept = np.exp(decays.sum(axis=0))
        assert kept.max() > 0.1
        assert kept.min() < 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class OverNew(CacheRows):
    """With an input of another shape written over."""

    def statement(self) -> Statement:
        """As stated, but for that."""
        return replace(CacheRows.statement(self), overwrites=("new",))


@dataclass(frozen=True, slots=True, kw_only=True)
class OverNothing(CacheRows):
    """With an input written over that there is not."""

    def statement(self) -> Statement:
        """As stated, but for that."""
        return replace(CacheRows.statement(self), overwrites=("old",))


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (OverNew, "expected y to have the shape and dtype of new, which it overwrites"),
        (OverNothing, "expected overwrites and updates to name inputs, got old"),
    ],
)
def test_an_output_overwrites_only_what_is_like_it(stated: type[CacheRows], words: str) -> None:
    made: Any = stated
    assert words in complaints(made(**dict(ROWS.parameters)))
