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
        (ROWS, {"pieces": 33}, "expected at most as many pieces as there are pages"),
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


@pytest.mark.parametrize("problem", [ROWS, DELTA, LATENT], ids=lambda problem: problem.operation)
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
