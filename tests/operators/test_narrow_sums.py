"""A statement that allows sums in bfloat16: such a kernel passes only then, and a wrong one does not."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.operators import PagedAttention, check
from harness.operators.attention.space import Recipe
from harness.operators.space import parsed

NARROW = PagedAttention(
    tokens=64,
    heads=4,
    kv_heads=2,
    head_dim=128,
    sequences=4,
    pages=64,
    page_size=64,
    pages_per_sequence=12,
    sums="bfloat16",
)
WIDE = replace(NARROW, sums=None)
FAMILIES = ("mixed", "full-table", "far-values", "logits-x10")
# Scores far from zero, where numbers of bfloat16 lie far apart.
LARGE = "drawn-far"
Arrays = Sequence[NDArray[Any]]


Keep = Callable[[NDArray[Any]], NDArray[np.float64]]


def rounded(values: NDArray[Any]) -> NDArray[np.float64]:
    return values.astype(ml_dtypes.bfloat16).astype(np.float64)


def attended(
    inputs: Arrays, *, block: int = 128, skipped: int = -1, rescales: bool = True, keep: Keep = rounded
) -> NDArray[Any]:
    """Attention with its maximum, and what `keep` does to sums and output, kept in bfloat16 from block to block."""
    q, pages = (array.astype(np.float64) for array in inputs[:2])
    out = np.zeros(q.shape)
    for sequence in NARROW._tables_of(inputs).sequences(NARROW.page_size):
        page, slot = sequence.slots(NARROW.page_size)
        for token, row in enumerate(sequence.tokens):
            keys = sequence.history + token + 1
            for head in range(NARROW.heads):
                kv = pages[page[:keys], slot[:keys]][:, 2 * (head // 2) : 2 * (head // 2) + 2]
                top, total, acc = -np.inf, 0.0, np.zeros(NARROW.head_dim)
                for place, start in enumerate(range(0, keys, block)):
                    if place == skipped and keys > block:
                        continue
                    scores = kv[start : start + block, 0] @ q[row, head] * NARROW.scale
                    new = max(top, float(rounded(scores.max())))
                    p = np.exp(scores - new)
                    factor = float(keep(np.exp(np.array(top - new)))) if rescales else 1.0
                    total = float(keep(keep(np.array(factor * total)) + keep(p.sum())))
                    acc = keep(keep(factor * acc) + keep(rounded(p) @ kv[start : start + block, 1]))
                    top = new
                out[row, head] = acc / total
    return out.astype(ml_dtypes.bfloat16)


def wide(values: NDArray[Any]) -> NDArray[np.float64]:
    """The values in float32, where numbers below its range are 0."""
    with np.errstate(under="ignore"):
        return np.asarray(values, np.float32).astype(np.float64)


def passes(problem: PagedAttention, compute: Callable[[Arrays], NDArray[Any]], family: str, seed: int = 3) -> bool:
    inputs = problem.make_inputs(family, seed)
    return check(problem, inputs, compute(inputs), family=family, mode="full", seed=seed)[1] is None


@pytest.mark.parametrize("family", FAMILIES)
def test_sums_in_bfloat16_pass_where_they_are_stated(family: str) -> None:
    assert passes(NARROW, attended, family)


def test_sums_in_bfloat16_do_not_pass_where_they_are_not() -> None:
    assert not all(passes(WIDE, attended, family) for family in FAMILIES)


@pytest.mark.long
@pytest.mark.parametrize("wrong", [{"block": 8}, {"skipped": 1}, {"rescales": False}], ids=str)
def test_what_is_wrong_fails_all_the_same(wrong: dict[str, Any]) -> None:
    assert not all(passes(NARROW, lambda inputs: attended(inputs, **wrong), family) for family in FAMILIES)


@pytest.mark.long
def test_a_maximum_in_bfloat16_loses_blocks_at_large_scores_which_only_the_statement_without_it_draws() -> None:
    assert all(passes(NARROW, attended, LARGE, seed) for seed in range(4))
    # In one draw, a query may by chance lose nothing.
    assert sum(passes(WIDE, lambda inputs: attended(inputs, keep=wide), LARGE, seed) for seed in range(4)) <= 1


def test_scores_stay_where_a_maximum_in_bfloat16_can_be_rescaled() -> None:
    most = max(abs(field.logit) for field in parsed(NARROW.recipe(LARGE, 1), Recipe).fields)
    assert most == 2.0**9
    assert NARROW.recipe(NARROW.recipe("drawn-ties", 1), 1) == NARROW.recipe("drawn-ties", 1)
    assert max(abs(field.logit) for field in parsed(WIDE.recipe(LARGE, 1), Recipe).fields) == 2.0**15


def test_what_a_statement_cannot_say_is_refused() -> None:
    refused: tuple[dict[str, Any], ...] = ({"sums": "float16"}, {"dtype": "float32"})
    for changes in refused:
        with pytest.raises(UsageError, match="expected sums to be None"):
            replace(NARROW, **changes)


def test_a_statement_without_it_is_as_it_was() -> None:
    assert "sums" not in dict(WIDE.statement().parameters)
    assert dict(NARROW.statement().parameters)["sums"] == "bfloat16"
