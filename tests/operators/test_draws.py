"""Draws as text and back, and which of an earlier evaluation can be repeated."""

import re
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import PROJECT

from harness.errors import UsageError
from harness.judge.evaluate.draws import repeatable, shape
from harness.loop import draw_text, scaffold
from harness.operators import Attention, Suite
from harness.operators.formula import Formula
from harness.prepare import data
from harness.records import Check, Draw

PROBLEM = Attention(sequence=2048, head_dim=128)


def draw(**changes: Any) -> Draw:
    words: dict[str, Any] = {"mode": "full", "shape": (2048, 128), "family": PROBLEM.families(full=True)[0]}
    return Draw(**{**words, "seed": 7, **changes})


@pytest.mark.parametrize(
    "stated",
    [
        draw(),
        draw(family=""),
        draw(mode="interpret", shape=(4,), seed=0),
        draw(family='recipe {"a": [1, 2], "b": "x:y"}', seed=2**31),
    ],
)
def test_a_draw_goes_through_a_command_line(stated: Draw) -> None:
    assert draw_text.parse(draw_text.text(stated)) == stated


@pytest.mark.parametrize("text", ["", "full", "full:1x2:far", "half:1x2:far:3", "full:1,2:far:3", "full:1x2::3"])
def test_what_is_no_draw_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="MODE:SHAPE:FAMILY:SEED"):
        draw_text.parse(text)


def test_a_probe_is_repeated_by_its_seed_alone() -> None:
    made = Check(
        family="keys 256 to 511 changed",
        mode="reduced",
        shape=(256, 128),
        seed=3,
        elements=8,
        error=1.0,
        honest_error=None,
        tolerance=0.0,
        passed=False,
        criterion="dependence",
    )
    assert made.draw == draw(mode="reduced", shape=(256, 128), family="", seed=3)
    assert draw_text.options([made.draw]) == " --draw reduced:256x128:probe:3"


def test_what_has_no_family_mode_or_shape_now_is_not_repeated() -> None:
    small = shape(PROBLEM, 0)
    assert small is not None
    family = PROBLEM.families(full=False)[0]
    there = draw(mode="reduced", shape=small, family=family)
    recipe = draw(mode="reduced", shape=small, family="recipe {}")
    others = [draw(), draw(mode="reduced"), draw(mode="reduced", shape=small, family="no such family")]
    result = repeatable([there, recipe, there, *others], PROBLEM, "reduced", reduced=0)
    assert result == (there, recipe)
    assert repeatable(others, PROBLEM, "full", reduced=None) == (others[0],)
    second = shape(PROBLEM, 0, is_second=True)
    assert second not in (None, small)
    assert repeatable([there], PROBLEM, "reduced", reduced=0, is_second=True) == ()


def test_every_name_of_inputs_is_explained_on_a_page() -> None:
    names = set(Formula.own_families)
    for template in scaffold.templates():
        stated = data.read(scaffold.text(template, "prepare.py"))
        assert stated is not None
        problem = stated[0]
        members = [member.problem for member in problem.members] if isinstance(problem, Suite) else [problem]
        names |= {name for member in members for full in (True, False) for name in member.families(full)}
    assert len(names) > 50
    page = Path(PROJECT, "docs", "DECIDING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|([^|]*)\|", page.partition("## Names of inputs")[2].partition("\n## ")[0], re.MULTILINE)
    assert names == {name for row in rows for name in re.findall("`([^`]+)`", row)}
