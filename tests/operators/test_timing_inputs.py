"""The contents of tables in timed calls: stated, among the checked ones, and refused by name if impossible."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.errors import RatchetError
from harness.operators import Attention, GroupedMatmul, Matmul, complaints, group_sizes, timing_inputs
from harness.operators.timing import differing

WHOLE = GroupedMatmul(m=1024, groups=4, k=256, n=256)
SIZES = np.array([256, 256, 256, 256], np.int32)


def stating(**names: Any) -> Any:
    """A grouped matmul that states these timing inputs."""
    return type("Stating", (GroupedMatmul,), {"__slots__": (), "timing_inputs": lambda self: names})(
        m=WHOLE.m, groups=WHOLE.groups, k=WHOLE.k, n=WHOLE.n
    )


def test_a_problem_without_tables_states_none() -> None:
    assert timing_inputs(Matmul(m=128, n=128, k=128)) == {}


def test_what_is_timed_is_what_is_checked_whatever_the_seed() -> None:
    stated = timing_inputs(WHOLE)
    assert tuple(stated) == ("balanced", "skewed")
    for name, contents in stated.items():
        assert name in WHOLE.families(full=True)
        for seed in (1, 2):
            lhs, _, sizes = WHOLE.make_inputs(name, seed)
            assert np.array_equal(sizes, contents["group_sizes"])
            assert differing(WHOLE, name, (lhs, lhs, sizes)) == ""
            assert differing(WHOLE, name, (lhs, lhs, sizes[::-1])) == "group_sizes"
    assert len({tuple(WHOLE.make_inputs("composite", seed)[2].tolist()) for seed in range(4)}) > 1


@pytest.mark.long
def test_checks_have_the_sizes_that_kernels_forget() -> None:
    for seed in range(8):
        sizes = {family: WHOLE.make_inputs(family, seed)[2] for family in WHOLE.families(full=False)}
        for family, drawn in sizes.items():
            assert drawn.sum() == WHOLE.m, family
            assert drawn.dtype == np.int32
            assert (drawn >= 0).all()
        assert np.count_nonzero(sizes["one-group"]) == 1
        assert np.count_nonzero(sizes["empty-groups"]) <= 2
        assert 0 in (sizes["empty-groups"][0], sizes["empty-groups"][-1])
        assert np.count_nonzero(sizes["single-rows"] == 1) == 3
        assert np.count_nonzero(sizes["crowded"] == 1) >= 3
        assert not (sizes["aligned"] % 128).any()
        assert np.any(np.cumsum(sizes["needles"])[:-1] % 128)


def test_at_the_full_shape_a_tile_has_more_groups_than_any_reduced_shape() -> None:
    most = max(shape.groups for shape in replace(WHOLE, groups=16).reduced())
    for seed in range(8):
        ids = Attention(sequence=4096, head_dim=128, causal=True, segments=16).make_inputs("composite", seed)[-1]
        for sizes in (replace(WHOLE, groups=16).make_inputs("composite", seed)[2], np.bincount(ids, minlength=16)):
            tile = np.repeat(np.arange(16), sizes)[: sizes.sum() // 128 * 128].reshape(-1, 128)
            assert max(len(np.unique(groups)) for groups in tile) > most


@pytest.mark.parametrize(
    ("rows", "groups"), [(256, 3), (384, 3), (512, 4), (2048, 8), pytest.param(1024, 200, marks=pytest.mark.long)]
)
def test_a_group_of_whole_tiles_begins_inside_a_tile(rows: int, groups: int) -> None:
    grouped, whole = replace(WHOLE, m=rows, groups=groups), min(512, 1 << (rows // 2).bit_length() - 1)
    packed = Attention(sequence=rows, head_dim=64, causal=True, segments=groups)
    for seed in range(8):
        drawn = [grouped.make_inputs(family, seed)[2] for family in ("whole-tiles", grouped.families(full=True)[0])]
        ids = [packed.make_inputs(family, seed)[3] for family in ("whole-tiles", packed.families(full=True)[0])]
        for sizes in (*drawn, *(np.bincount(some, minlength=groups) for some in ids)):
            starts = np.cumsum(sizes) - sizes
            assert ((sizes == whole) & (starts % 128 > 0)).any()


def test_some_groups_are_equal_and_others_are_not() -> None:
    for seed in range(8):
        first, second, *others = WHOLE.make_inputs("needles", seed)[2].tolist()
        assert first == second >= 8
        assert others[0] == others[1] != first
        counts = np.unique(WHOLE.make_inputs("far-values", seed)[2], return_counts=True)[1]
        assert sorted(counts.tolist()) == [1, WHOLE.groups - 1]


@pytest.mark.parametrize("groups", [1, 2, 3, 64])
def test_sizes_of_every_kind_sum_to_the_rows(groups: int) -> None:
    random = np.random.default_rng(1)
    for kind in (*group_sizes.DRAWN.values(), group_sizes.pairs, group_sizes.all_but_one, group_sizes.any_kind):
        for rows in (1, 100, 4096):
            sizes = kind(rows, groups, random)
            assert (len(sizes), sizes.sum()) == (groups, rows)
            assert sizes.min() >= 0


@pytest.mark.parametrize(
    ("stated", "kind", "words"),
    [
        ({}, "no-timing-inputs", "to state the contents of group_sizes"),
        ({"often": {"group_sizes": SIZES}}, "bad-timing-inputs", "'often' to be an input family of the full shape too"),
        ({"balanced": {}}, "bad-timing-inputs", "balanced: expected contents of group_sizes, got those of nothing"),
        ({"balanced": {"group_sizes": SIZES, "lhs": SIZES}}, "bad-timing-inputs", "got those of group_sizes, lhs"),
        ({"balanced": {"group_sizes": [1, 2]}}, "bad-timing-inputs", "expected group_sizes to be an array, got list"),
        ({"balanced": {"group_sizes": SIZES[:3]}}, "bad-timing-inputs", "group_sizes of shape [4], got [3]"),
        ({"balanced": {"group_sizes": SIZES * 1.0}}, "bad-timing-inputs", "of dtype int32, got float64"),
        ({"balanced": {"group_sizes": SIZES - 257}}, "bad-timing-inputs", "from 0 to 1024, got -1 in group_sizes[0]"),
        ({"balanced": {"group_sizes": SIZES * 5}}, "bad-timing-inputs", "from 0 to 1024, got 1280 in group_sizes[0]"),
    ],
)
def test_timing_inputs_that_cannot_be_are_refused_by_name(stated: Any, kind: str, words: str) -> None:
    with pytest.raises(RatchetError) as caught:
        timing_inputs(stating(**stated))
    assert caught.value.kind == kind
    assert words in str(caught.value)


@pytest.mark.long
def test_a_table_has_to_state_its_range_and_to_keep_it() -> None:
    def statement(self: Any) -> Any:
        statement = GroupedMatmul.statement(self)
        return replace(statement, inputs=(*statement.inputs[:2], replace(statement.inputs[2], high=None)))

    def make_inputs(self: Any, family: str, seed: int) -> Any:
        lhs, rhs, sizes = GroupedMatmul.make_inputs(self, family, seed)
        return lhs, rhs, sizes - np.int32(family == "aligned")

    def changing(self: Any, family: str, seed: int) -> Any:
        lhs, rhs, sizes = GroupedMatmul.make_inputs(self, family, seed)
        return lhs, rhs, np.roll(sizes, seed % 3) if family == "skewed" else sizes

    for broken, words in (
        ({"statement": statement}, "expected group_sizes, which holds integers, to state its smallest and largest"),
        ({"make_inputs": make_inputs}, "aligned: expected group_sizes to hold numbers from 0 to 256, got -1"),
        ({"make_inputs": changing}, "skewed: expected group_sizes to have the contents that timing_inputs() states"),
    ):
        wrong = type("Wrong", (GroupedMatmul,), {"__slots__": (), "__module__": __name__, **broken})
        globals()["Wrong"] = wrong
        wrong.__qualname__ = "Wrong"
        sentences = complaints(wrong(m=1024, groups=4, k=256, n=256))
        assert any(words in sentence for sentence in sentences), sentences
