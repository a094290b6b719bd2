"""Contests that cannot tell right from wrong: answers that lack an operator's property fail, or it is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness import contest as contests
from harness.errors import RatchetError
from harness.loop.new_contest import new
from harness.operators import (
    Attention,
    AttentionBackward,
    GroupedMatmul,
    GroupedMatmulTransposed,
    Matmul,
    Member,
    PagedAttention,
    Problem,
    QuantizedMatmul,
    RMSNorm,
    Suite,
    SwiGLU,
    controls,
)
from harness.operators.controls import every_answer, require_strong, weaknesses

SMALL = Attention(sequence=512, head_dim=64)


def silent(*_: object) -> None:
    return None


@pytest.mark.long
@pytest.mark.parametrize(
    ("problem", "answer"),
    [
        (replace(SMALL, scale=1e-9), "every key weighs alike"),
        (replace(SMALL, soft_cap=1e9), "no soft cap"),
        (RMSNorm(rows=512, columns=256, eps=1e30, residual=False), "the variance for the mean square"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.statement().title,
)
def test_constants_that_hide_a_property_are_named(problem: Problem, answer: str) -> None:
    assert answer in weaknesses(problem)
    with pytest.raises(RatchetError, match=answer) as refused:
        require_strong(problem)
    assert refused.value.kind == "weak-contest"


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        (replace(SMALL, causal=True, window=64, soft_cap=30.0), {"no mask", "no window", "no soft cap"}),
        (replace(SMALL, causal=True, segments=4), {"no mask", "sequences not kept apart", "no maximum subtracted"}),
        (replace(SMALL, heads=4, kv_heads=2), {"the first head's keys and values for all"}),
        (GroupedMatmul(m=512, groups=4, k=256, n=256), {"groups of equal size", "the first group's matrix for all"}),
        (
            PagedAttention(
                tokens=64,
                heads=4,
                kv_heads=2,
                head_dim=64,
                sequences=8,
                pages=60,
                page_size=16,
                pages_per_sequence=8,
                update=True,
            ),
            {"no page table", "dense: every sequence as long as it can be", "newest keys and values not written"},
        ),
        (Matmul(m=512, n=256, k=256, dtype="float32"), {"one pass of bfloat16", "sums kept in bfloat16"}),
    ],
    ids=lambda value: "" if isinstance(value, set) else value.statement().title,
)
def test_each_property_has_a_control_and_all_of_them_fail(problem: Problem, names: set[str]) -> None:
    assert names | {"zeros", "the mean of all rows in each", "the first block repeated"} <= {*every_answer(problem)}
    assert weaknesses(problem) == ()


@pytest.mark.parametrize(
    "problem",
    [
        Matmul(m=1, n=256, k=64),
        Matmul(m=8, n=1, k=128, dtype="float32"),
        QuantizedMatmul(m=1, n=128, k=128),
        QuantizedMatmul(m=4, n=256, k=512, activations="int8"),
        QuantizedMatmul(m=4, n=256, k=512, activations="float8_e4m3fn", weights="float8_e4m3fn"),
        QuantizedMatmul(m=1, n=128, k=128, weights="float8_e4m3fn"),
        GroupedMatmul(m=64, groups=2, k=64, n=64),
        GroupedMatmulTransposed(m=128, groups=3, k=64, n=64),
        SwiGLU(tokens=1, model=128, hidden=64),
        SwiGLU(tokens=64, model=64, hidden=128, down=True),
        RMSNorm(rows=1, columns=128),
        RMSNorm(rows=64, columns=512, residual=False, dtype="float32"),
        Attention(sequence=64, head_dim=32),
        Attention(sequence=128, head_dim=64, heads=2, kv_heads=1, causal=True, dtype="float32"),
        Attention(sequence=256, kv_sequence=1024, head_dim=64, causal=True, window=32),
        Attention(sequence=256, head_dim=64, scale=0.01),
        AttentionBackward(sequence=64, head_dim=32),
        AttentionBackward(heads=4, kv_heads=2, sequence=64, head_dim=32, causal=True),
        PagedAttention(heads=1, kv_heads=1, head_dim=64, sequences=2, pages=8, page_size=16, pages_per_sequence=2),
        PagedAttention(
            tokens=4, heads=2, kv_heads=1, head_dim=64, sequences=4, pages=20, page_size=16, pages_per_sequence=2
        ),
    ],
    ids=lambda value: value.statement().title,
)
def test_small_and_odd_contests_are_no_weaker(problem: Problem) -> None:
    assert weaknesses(problem) == ()


def test_what_has_no_such_property_has_no_such_control() -> None:
    assert not {"no mask", "no window", "no soft cap"} & {*every_answer(SMALL)}
    # exp of scores up to 30 is far from float32's end.
    assert "no maximum subtracted" not in every_answer(replace(SMALL, soft_cap=30.0))
    assert "the first group's matrix for all" not in every_answer(GroupedMatmul(m=256, groups=1, k=64, n=64))


def test_an_input_of_the_outputs_shape_is_passed_on() -> None:
    names = {*every_answer(SMALL)}
    assert {"the input q passed on", "the input k passed on", "the input v passed on"} <= names
    inputs = SMALL.make_inputs("normal", 1)
    rows = np.array([3, 5])
    np.testing.assert_array_equal(
        every_answer(SMALL)["the input v passed on"](inputs, rows), inputs[2][rows].astype(np.float64)
    )


def test_the_member_of_a_suite_is_named() -> None:
    members = (Member(name="right", problem=SMALL), Member(name="flat", problem=replace(SMALL, scale=1e-9)))
    with pytest.raises(RatchetError, match=r"flat: .* every key weighs alike"):
        require_strong(Suite(members=members))


@pytest.mark.long
def test_a_contest_that_was_strong_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[object] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(controls, "require_strong", problems.append)
    made = contests.load(Path(__file__).parents[2] / "examples" / "rmsnorm")
    for _ in range(2):
        made.require_conforming()
    assert problems == [made.problem]
    other = replace(made, problem=RMSNorm(rows=512, columns=256))
    other.require_conforming()
    assert problems == [made.problem, other.problem]

    def weak(_: object) -> None:
        raise RatchetError("weak-contest", "zeros pass")

    monkeypatch.setattr(controls, "require_strong", weak)
    for _ in range(2):
        with pytest.raises(RatchetError, match="zeros pass"):
            replace(made, problem=RMSNorm(rows=1024, columns=256)).require_conforming()


@pytest.mark.long
def test_no_such_contest_is_made(tmp_path: Path) -> None:
    with pytest.raises(RatchetError, match="no soft cap") as refused:
        new(tmp_path / "mine", "attention-causal", (("SOFT_CAP", "1e9"), ("WINDOW", "64")), silent)
    assert refused.value.kind == "weak-contest"
    assert not (tmp_path / "mine").exists()
