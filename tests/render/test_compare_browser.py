"""Any two attempts compared on the page: the same figures and lines as `diff`, readable, and usable by keyboard."""

from dataclasses import replace
from pathlib import Path

import pytest
from browsing import TEXTS, contrast, opened
from ledger_fixtures import NAIVE, new_repository, run_attempt
from narrowing import present
from playwright.sync_api import Browser, Page, expect
from report_examples import taken_apart

from harness.advice.comparison import ComparedSide, compare
from harness.ledger import Ledger, history
from harness.records import LineTime
from harness.records.comparison import Comparison
from harness.render.comparison import notable, where
from harness.shell.main import main
from harness.units import count

pytestmark = pytest.mark.long


def as_diff_has_it(ledger: Ledger, *numbers: int) -> Comparison:
    before, after = (
        ComparedSide(
            name=str(number),
            candidate=history.candidate(ledger.place, number),
            evidence=history.attempt(ledger.place, number).evidence,
        )
        for number in numbers
    )
    return compare(before, after, "")


def table_under(page: Page, heading: str) -> list[list[str]]:
    """The cells of the first table after the heading that begins so."""
    rows: list[list[str]] = page.evaluate(
        """heading => {
          const heads = [...document.querySelectorAll("#comparison h4")];
          const from = heads.find((one) => one.textContent.startsWith(heading));
          let at = from.nextElementSibling;
          while (!at.querySelector("table")) at = at.nextElementSibling;
          return [...at.querySelectorAll("tbody tr")].map((row) => [...row.children].map((cell) => cell.textContent));
        }""",
        heading,
    )
    return rows


def test_figures_and_lines_are_those_of_diff(browser: Browser, ledger: Ledger, path: Path) -> None:
    (program,) = as_diff_has_it(ledger, 2, 3).programs
    with opened(browser, f"{path.as_uri()}#attempt-3~2") as page:
        page.wait_for_selector("#comparison h4")
        assert "2.000 ms → 2.400 ms, +20.0% [simulated v5e]" in page.inner_text("#comparison")
        figures = {row[0]: row[1:3] for row in table_under(page, "Figures")}
        assert list(figures) == [pair.name for pair in program.figures]
        for pair in program.figures:
            if pair.unit != "B" and pair.before is not None and pair.after is not None:
                assert figures[pair.name] == [count(pair.before), count(pair.after)]
        # The same cycles on the same lines: there is nothing to show.
        assert not notable(program)
        assert "simulated cycles" not in page.inner_text("#comparison")
        expect(page.locator("#comparison .barlayer .point path").first).to_be_attached()
        changed = page.locator("#comparison .diff .removed .code, #comparison .diff .added .code").all_inner_texts()
        assert changed == ["BQ = 128", "BQ = 64"]


def moved(lines: tuple[LineTime, ...]) -> tuple[LineTime, ...]:
    """The same lines one further down, with some cycles of the first at the second."""
    moved_lines = [replace(line, line=line.line + 1) if line.line in (3, 5) else line for line in lines]
    moved_lines[0] = replace(moved_lines[0], stall_cycles=moved_lines[0].stall_cycles - 2_000)
    moved_lines[1] = replace(moved_lines[1], stall_cycles=moved_lines[1].stall_cycles + 2_000)
    return tuple(moved_lines)


def test_lines_that_moved_stand_beside_their_like(browser: Browser, tmp_path: Path) -> None:
    contest = new_repository(tmp_path / "contest")
    ledger = Ledger.open(contest)
    before = taken_apart(2e-3)
    simulation = present(before.simulation)
    cycles = present(simulation.breakdown)
    run_attempt(ledger, hypothesis="baseline", evidence=before)
    (contest / "kernel.py").write_bytes(b"# a new line\n" + NAIVE)
    run = replace(simulation, breakdown=replace(cycles, lines=moved(cycles.lines)))
    run_attempt(ledger, "reject", hypothesis="other lines", evidence=replace(before, simulation=run))
    assert main(["report", "-C", str(contest)]) == 0
    (program,) = as_diff_has_it(ledger, 1, 2).programs
    expected = [
        [
            where(line).removeprefix("kernel.py:").replace("->", "→"),
            count(line.before_cycles),
            count(line.after_cycles),
            f"{line.difference:+,.0f}",
        ]
        for line in notable(program)
    ]
    assert {row[0] for row in expected} == {"3 → 4", "5 → 6"}
    with opened(browser, f"{(contest / 'profile_data/report.html').as_uri()}#attempt-2~1") as page:
        page.wait_for_selector("#comparison h4")
        assert sorted(row[:4] for row in table_under(page, "Lines")) == sorted(expected)


def test_the_other_attempt_is_chosen_by_keyboard_and_stands_in_the_address(browser: Browser, path: Path) -> None:
    with opened(browser, f"{path.as_uri()}#attempt-2") as page:
        page.wait_for_selector("#beside")
        assert page.locator("#comparison h4").count() == 0
        page.focus("#beside")
        page.keyboard.press("ArrowDown")
        page.wait_for_selector("#comparison h4")
        assert page.url.endswith("#attempt-2~1")
        assert "4.000 ms → 2.000 ms, -50.0%" in page.inner_text("#comparison")
        page.select_option("#beside", "")
        expect(page.locator("#comparison h4")).to_have_count(0)
        assert page.url.endswith("#attempt-2")
        page.keyboard.press("Escape")
        expect(page.locator("#attempt")).not_to_have_attribute("open", "")


def test_times_under_two_keys_are_not_compared(browser: Browser, path: Path) -> None:
    with opened(browser, f"{path.as_uri()}#attempt-7~1") as page:
        page.wait_for_selector("#comparison h4")
        words = page.inner_text("#comparison")
        assert "Not compared: attempt 1 was judged under key" in words


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_on_a_narrow_screen(browser: Browser, path: Path, scheme: str) -> None:
    narrow = {"width": 420, "height": 900}
    with opened(browser, f"{path.as_uri()}#attempt-3~2", color_scheme=scheme, viewport=narrow) as page:
        page.wait_for_selector("#comparison .barlayer .point path")
        assert page.locator("#attempt").evaluate("dialog => dialog.scrollWidth - dialog.clientWidth") <= 0
        assert [text for text in page.evaluate(TEXTS) if contrast(text[1], text[2]) < 4.5] == []


# The page's alignment next to that of Python's matcher: each line once, in order, like next to like.
ALIGNED: dict[tuple[str, str], list[list[int | None]]] = {
    ("abc", "abc"): [[0, 0], [1, 1], [2, 2]],
    ("abc", "axc"): [[0, 0], [1, None], [None, 1], [2, 2]],
    ("", "ab"): [[None, 0], [None, 1]],
    ("ab", ""): [[0, None], [1, None]],
    ("aXbc", "abYc"): [[0, 0], [1, None], [2, 1], [None, 2], [3, 3]],
    ("aa", "a"): [[0, 0], [1, None]],
}


def test_lines_are_aligned(browser: Browser, path: Path) -> None:
    with opened(browser, path.as_uri()) as page:
        aligned = page.evaluate(
            """pairs => pairs.map((texts) => alignedLines(...texts.map((text) => (
              { kernel: [...text].map((_, place) => place), lines: [...text].map((sign) => [["", sign]]) }))))""",
            [list(texts) for texts in ALIGNED],
        )
    assert dict(zip(ALIGNED, aligned, strict=True)) == ALIGNED
