"""Contests around other packages' kernels: each is a row's and gets its operator's arrays; how outcomes are counted."""

import ast
from pathlib import Path
from typing import Any

import known_judged
import known_kernels
import pytest
from known_contests import CONTESTS, Contest
from known_readings import READ, UNTRIED, Reading

from harness import contest as contests
from harness.operators import Suite

_EVERY = {(origin, case): contest for origin, cases in CONTESTS.items() for case, contest in cases.items()}


def test_each_contest_is_of_a_row_and_each_reading_of_a_contest() -> None:
    rows = set(known_kernels.kernels())
    assert not _EVERY.keys() - rows
    assert not UNTRIED.keys() - rows
    assert not READ.keys() - _EVERY.keys()
    assert not UNTRIED.keys() & _EVERY.keys()


@pytest.mark.long
@pytest.mark.parametrize("like", sorted({(contest.like, contest.arrays) for contest in _EVERY.values()}))
def test_a_contest_gets_the_arrays_of_its_operation(tmp_path: Path, like: tuple[str, tuple[str, ...]]) -> None:
    same = [contest for contest in _EVERY.values() if (contest.like, contest.arrays) == like]
    first = same[0]
    known_judged.make(first, tmp_path / "one", ("vllm",))
    made = contests.load(tmp_path / "one")
    assert not isinstance(made.problem, Suite)
    names = [array.name for array in made.problem.statement().inputs]
    assert (made.stubs, made.chip.name) == (("vllm",), first.chip)
    for contest in same:
        function = ast.parse(contest.kernel).body[-1]
        assert isinstance(function, ast.FunctionDef)
        assert [argument.arg for argument in function.args.args] == names


def _document(outcome: str, failure: dict[str, str] | None, **more: Any) -> dict[str, Any]:
    verdict = {"outcome": outcome, "failure": failure, "reasons": ["slower"]}
    return {"verdict": verdict, "evidence": {"latency": {"seconds": 2e-6}}, **more}


def test_an_outcome_is_a_fault_only_if_this_kind_of_refusal_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    case = "deciax", "flash"
    race = _document("failed", {"kind": "race", "message": "two | writes"})
    assert known_judged.outcome(*case, _document("accept", None)) == ("right", "2.000 us", "")
    assert known_judged.outcome(*case, race)[0] == "failed, not looked into"
    monkeypatch.setitem(READ, case, Reading(kind="race", is_fault=True, why="Line 3"))
    assert known_judged.outcome(*case, race) == ("refused rightly", "2.000 us", "race: two / writes. Line 3")
    assert known_judged.outcome(*case, _document("reject", None))[0] == "reject, not looked into"
    assert known_judged.outcome(*case, {"error": "it took too long"})[0] == "not judged"
    monkeypatch.setitem(READ, case, Reading(kind="race", is_fault=False, why="Line 3"))
    assert known_judged.outcome(*case, race)[0] == "refused wrongly"


def test_the_page_counts_what_was_tried() -> None:
    rows = [["a", "b", "matmul", "right", "1 us", ""], ["a", "c", "", "not stated", "", ""]]
    assert "Of 2 kernels 1 were tried: 1 right." in known_judged.render(rows, "")


def test_a_contest_is_five_lines_around_a_function() -> None:
    contest = Contest(like="matmul", settings={}, module="forge.products", function="product", call="existing(a, b)")
    assert contest.kernel.splitlines()[2:] == [
        "from forge.products import product as existing",
        "",
        "",
        "def kernel_fn(a, b):",
        "    return existing(a, b)",
    ]


def test_the_committed_page_has_every_row_and_says_how_many_were_judged_right() -> None:
    page = (known_kernels.HERE / "KNOWN_KERNELS_JUDGED.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")][2:]
    assert [tuple(row[:2]) for row in rows] == list(known_judged.chosen(""))
    assert known_judged.summary(rows) in page


def test_rows_of_a_page_are_kept_and_judged_ones_take_their_places(tmp_path: Path) -> None:
    kernels = [kernel for kernel in known_kernels.kernels() if kernel in _EVERY][:3]
    rows = [[*kernel, "matmul", "right", "2.000 us", ""] for kernel in kernels]
    page = tmp_path / "page.md"
    page.write_text(known_judged.render(rows, "--page page.md"), encoding="utf-8")
    assert list(known_judged.kept_rows(page)) == rows
    anew = [*kernels[1], "matmul", "refused rightly", "", "race: two / writes"]
    assert known_judged.in_order([*known_judged.kept_rows(page), anew]) == [rows[0], anew, rows[2]]
