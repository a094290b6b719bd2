"""Paged attention: tables that kernels mishandle, and a reference that is plain attention of every sequence."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.operators import PagedAttention, as_read, check, timing_inputs
from harness.operators.paged import tables as paged_tables
from harness.operators.paged.tables import PageTables
from harness.records import Failure

RAGGED = PagedAttention(
    tokens=48, heads=4, kv_heads=2, head_dim=64, sequences=5, pages=40, page_size=16, pages_per_sequence=12
)
DECODE = replace(RAGGED, tokens=None)


def tables(problem: PagedAttention, family: str, seed: int) -> PageTables:
    return problem._tables_of(problem.make_inputs(family, seed))


@pytest.mark.parametrize("problem", [RAGGED, DECODE], ids=["ragged", "decode"])
def test_tables_of_every_kind_are_in_range_and_need_no_more_pages_than_there_are(problem: PagedAttention) -> None:
    room = problem._room
    for kind in (*paged_tables.TIMED, *paged_tables.KINDS):
        for seed in range(20):
            random = np.random.default_rng(seed)
            lengths = (
                paged_tables.timed(room, kind) if kind in paged_tables.TIMED else paged_tables.draw(room, kind, random)
            )
            sequences = list(lengths.sequences(problem.page_size))
            assert 1 <= lengths.count <= problem.sequences
            assert lengths.cu_q_lens[0] == 0
            assert sequences[-1].tokens.stop <= problem.rows
            for array, most in (
                (lengths.kv_lens, room.longest),
                (lengths.page_indices, problem.pages - 1),
                (lengths.cu_q_lens, problem.rows),
            ):
                assert array.dtype == np.int32
                assert (array >= 0).all() and (array <= most).all()  # noqa: PT018
            assert all(1 <= len(each.tokens) <= each.length <= room.longest for each in sequences)
            pages = np.concatenate([each.pages for each in sequences])
            if kind != "shared-pages":
                assert len(np.unique(pages)) == len(pages)


@pytest.mark.parametrize("problem", [RAGGED, DECODE, replace(RAGGED, update=True)], ids=["ragged", "decode", "update"])
def test_some_free_slots_hold_numbers_next_to_which_no_added_number_hides_a_score(problem: PagedAttention) -> None:
    inputs = problem.make_inputs("page-borders", 0)
    sequences = list(problem._tables_of(inputs).sequences(problem.page_size))
    for array in problem._cache.keys_and_values(*inputs[1 : 3 if problem.tokens is None else 2]):
        largest = np.abs(array.astype(np.float32)).max(axis=(2, 3))
        assert 0.05 < (largest > 1e29).mean() < 0.4
        assert largest.max() < 1e32
        for sequence in sequences:
            places = tuple(part[: problem._cache.in_pages(sequence)] for part in sequence.slots(problem.page_size))
            assert (largest[places] < 100).all()


@pytest.mark.long
def test_each_kind_has_what_it_is_for() -> None:
    seeds = range(20)
    borders = [tables(RAGGED, "page-borders", seed) for seed in seeds]
    ends = np.concatenate([border.kv_lens[: border.count] % RAGGED.page_size for border in borders])
    assert {0, 1, RAGGED.page_size - 1} <= set(ends.tolist())
    for batch in (tables(RAGGED, "fresh", seed) for seed in seeds):
        assert np.array_equal(batch.kv_lens[: batch.count], np.diff(batch.cu_q_lens[: batch.count + 1]))
    assert any((tables(RAGGED, "full-table", seed).kv_lens == RAGGED._room.longest).any() for seed in seeds)
    assert all(tables(RAGGED, "few-sequences", seed).count <= 2 for seed in seeds)
    for batch in (tables(RAGGED, family, seed) for family in ("whole-blocks", "drawn-all") for seed in seeds):
        queries = np.diff(batch.cu_q_lens[: batch.count + 1])
        assert ((queries >= 16) & (queries & (queries - 1) == 0) & (batch.cu_q_lens[: batch.count] % 16 > 0)).any()
    # A prefix of whole pages, none of which holds a query's own key.
    shared = 0
    for batch in (tables(RAGGED, "shared-pages", seed) for seed in seeds):
        first, *others = batch.sequences(RAGGED.page_size)
        for other in others:
            common = np.isin(other.pages, first.pages)
            shared += int(common.sum())
            assert not common[other.history // RAGGED.page_size :].any()
    assert shared > 0
    # Some batches are shorter than their array, some are not.
    assert len({tables(RAGGED, "any", seed).cu_q_lens[tables(RAGGED, "any", seed).count] == 48 for seed in seeds}) == 2


def test_some_sequences_are_equally_long_or_have_successive_pages_and_others_are_not() -> None:
    pairs = forks = runs = 0
    for seed in range(40):
        for family in ("any", "shared-pages"):
            first, second, *others = tables(DECODE, family, seed).sequences(DECODE.page_size)
            is_pair = first.length == second.length != others[0].length
            pairs += is_pair
            forks += (
                is_pair and bool(first.pages[0] == second.pages[0]) and first.pages.tolist() != second.pages.tolist()
            )
            in_order = [bool((np.diff(each.pages) == 1).all()) for each in (first, second) if len(each.pages) > 2]
            runs += len(set(in_order)) == 2
    assert min(pairs, forks) >= 10
    assert runs >= 2


def test_what_is_timed_is_decoding_and_a_mixed_batch() -> None:
    assert tuple(timing_inputs(RAGGED)) == ("mixed", "decode")
    assert tuple(timing_inputs(DECODE)) == ("decode",)
    decode, mixed = (tables(RAGGED, name, 1) for name in ("decode", "mixed"))
    assert np.array_equal(np.diff(decode.cu_q_lens), np.ones(5))
    assert np.array_equal(np.diff(mixed.cu_q_lens), [1, 1, 1, 1, 44])


@pytest.mark.parametrize("problem", [RAGGED, DECODE], ids=["ragged", "decode"])
def test_the_reference_is_attention_of_each_sequence_by_itself(problem: PagedAttention) -> None:
    inputs = problem.make_inputs("shared-pages", 3)
    rows = np.arange(problem.rows * problem.heads)
    result = problem.reference(inputs, rows).reshape(problem.rows, problem.heads, -1)
    q = inputs[0].astype(np.float64)
    k, v = (array.astype(np.float64) for array in problem._keys_and_values(inputs))
    for sequence in problem._tables_of(inputs).sequences(problem.page_size):
        for token in sequence.tokens:
            seen = sequence.history + token - sequence.tokens.start + 1
            for head in range(problem.heads):
                places = [(sequence.pages[key // 16], key % 16, head // 2) for key in range(seen)]
                scores = np.array([q[token, head] @ k[place] for place in places]) / np.sqrt(problem.head_dim)
                weights = np.exp(scores - scores.max())
                expected = weights @ np.array([v[place] for place in places]) / weights.sum()
                np.testing.assert_allclose(result[token, head], expected, rtol=1e-9, atol=1e-12)


def test_rows_that_nobody_reads_may_hold_anything() -> None:
    seed = next(
        seed for seed in range(20) if tables(RAGGED, "any", seed).cu_q_lens[tables(RAGGED, "any", seed).count] < 48
    )
    inputs = RAGGED.make_inputs("any", seed)
    shape = RAGGED.statement().outputs[0].shape
    right = RAGGED.honest(inputs, np.arange(48 * 4)).reshape(shape).astype(inputs[0].dtype)
    unused = RAGGED.unused_rows(inputs)
    assert len(unused)
    junk = right.copy()
    junk.reshape(-1, 64)[unused] = np.nan
    assert np.array_equal(as_read(RAGGED, inputs, (junk,))[0], right)
    assert np.isnan(junk.astype(np.float32)).any(), "what was handed over stays as it was"
    assert check(RAGGED, inputs, junk, family="any", mode="reduced", seed=seed)[1] is None
    junk.reshape(-1, 64)[unused[0] - 1] = 0
    assert check(RAGGED, inputs, junk, family="any", mode="reduced", seed=seed)[1] is not None
    _, failure = check(RAGGED, inputs, right[:-1], family="any", mode="reduced", seed=seed)
    assert failure is not None
    assert failure.kind == "wrong-shape"


def test_an_update_writes_the_slots_of_the_newest_tokens_and_no_other() -> None:
    problem = replace(RAGGED, update=True)
    assert [array.name for array in problem.statement().results] == ["o", "kv_pages"]
    assert problem.statement().donated == (1,)
    for family in ("any", "shared-pages", "page-borders"):
        inputs = problem.make_inputs(family, 4)
        (after,) = problem.new_state(inputs)
        written = np.zeros(after.shape[:2], bool)
        for sequence in problem._tables_of(inputs).sequences(problem.page_size):
            for token in sequence.tokens:
                key = sequence.history + token - sequence.tokens.start
                place = int(sequence.pages[key // problem.page_size]), key % problem.page_size
                assert np.array_equal(after[place], inputs[2][token])
                written[place] = True
        assert np.array_equal(after[~written], inputs[1][~written])
        assert 0 < written.sum() <= problem.rows


def test_every_slot_is_compared() -> None:
    problem = replace(RAGGED, update=True)
    inputs = problem.make_inputs("any", 4)
    out = problem.honest(inputs, np.arange(48 * 4)).reshape(48, 4, 64).astype(inputs[0].dtype)
    (right,) = problem.new_state(inputs)

    def failure(state: NDArray[Any]) -> Failure | None:
        return check(problem, inputs, (out, state), family="any", mode="reduced", seed=4)[1]

    result, none = check(problem, inputs, (out, right), family="any", mode="reduced", seed=4)
    assert none is None
    assert result.elements == out.size + right.size
    touched, forgotten = right.copy(), right.copy()
    unused = int(np.setdiff1d(np.arange(problem.pages), problem._tables_of(inputs).page_indices)[0])
    touched[unused, 3, 1, 5] += 1
    last = list(problem._tables_of(inputs).sequences(problem.page_size))[-1]
    slot = int(last.pages[-1]), (last.length - 1) % problem.page_size
    forgotten[slot] = inputs[1][slot]
    for state, words in (
        (touched, f"kv_pages[{unused}, 3, 1, 5]"),
        (touched, "the value before the call"),
        (forgotten, "the value that this call writes"),
        (inputs[1], "the value that this call writes"),
    ):
        wrong = failure(state)
        assert wrong is not None
        assert wrong.kind == "wrong-state"
        assert words in wrong.message
    for state, kind in ((right[:-1], "wrong-shape"), (right.astype(np.float32), "wrong-dtype")):
        wrong = failure(state)
        assert wrong is not None
        assert wrong.kind == kind


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_heads": 3}, "kv_heads to divide heads"),
        ({"pages": 7}, "expected pages of at least 8"),
        ({"tokens": 0}, "tokens"),
        ({"tokens": None, "update": True}, "update=True needs tokens"),
        ({"dtype": "int8"}, "dtype"),
    ],
)
def test_what_does_not_exist_is_refused(changes: dict[str, int | str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        replace(RAGGED, **changes)  # type: ignore[arg-type]
