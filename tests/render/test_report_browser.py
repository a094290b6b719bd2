"""The report page in a real browser: it draws, sorts, filters and opens attempts, asks for nothing, and can be read."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from browsing import TEXTS, Watched, contrast, luminance, opened
from playwright.sync_api import Browser, Page, expect
from report_examples import HOSTILE, tuned_rows

from harness.ledger import Ledger
from harness.ledger.table import scaled
from harness.render.page import Story
from harness.render.page import page as page_of
from harness.shell.main import main
from harness.verbs.parts import stories

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def watched(browser: Browser, path: Path) -> Iterator[Watched]:
    watched_page = Watched(browser, path.as_uri())
    yield watched_page
    watched_page.context.close()


@pytest.fixture
def shown(watched: Watched) -> Iterator[Page]:
    """The page as it is when it has just been opened; loading it for every test would take longer than the tests."""
    page = watched.page
    if page.locator("#attempt[open]").count():
        page.keyboard.press("Escape")
    page.fill("#find", "")
    for box in page.locator("#outcomes input").all():
        box.check()
    page.select_option("#keys", index=0)
    page.select_option("#group", index=1)
    page.click("th[data-key=verdict] button")
    page.click("th[data-key=n] button")
    if page.get_attribute("th[data-key=n]", "aria-sort") == "descending":
        page.click("th[data-key=n] button")
    yield page
    watched.check()


def numbers(page: Page) -> list[str]:
    """The attempts that the table shows, in its order."""
    shown_numbers: list[str] = page.eval_on_selector_all(
        "#table tr[data-id]", "rows => rows.map(row => row.dataset.id)"
    )
    return shown_numbers


# --- charts --------------------------------------------------------------------------------------


def test_charts_are_drawn_for_one_key_at_a_time(shown: Page) -> None:
    points = shown.locator("#progress .points path.point")
    expect(points).to_have_count(2 * 2)
    expect(shown.locator("#roofline .points path.point")).to_have_count(2)
    assert "measured v5e" in shown.inner_text("#progress-words")
    shown.select_option("#group", index=0)
    # Five with a latency in both panels, and the failure above them.
    expect(points).to_have_count(11)
    assert "5 of 6 attempts with a latency" in shown.inner_text("#progress-words")
    assert "compute-only 704.5 us" in (shown.text_content("#progress") or "")
    words = shown.text_content("#roofline") or ""
    assert "compute roof 197 TFLOP/s" in words
    assert "ridge 241 FLOP/B" in words
    assert shown.locator("#progress .errorbar").count() > 0


def test_a_point_opens_its_attempt(shown: Page) -> None:
    box = shown.locator("#roofline .points path.point").first.bounding_box()
    assert box is not None
    shown.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown.wait_for_selector("#roofline .hoverlayer .hovertext")
    shown.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    shown.wait_for_selector("#attempt[open] h3")
    assert re.search(r"#attempt-[78]$", shown.url)


# --- the table -----------------------------------------------------------------------------------


def test_it_sorts_within_each_key(shown: Page) -> None:
    assert numbers(shown) == ["1", "2", "3", "4", "5", "6", "7", "8"]
    time = shown.locator("th[data-key=seconds]")
    time.locator("button").click()
    assert time.get_attribute("aria-sort") == "ascending"
    # The failure has no time, so it is last in both directions.
    assert numbers(shown) == ["5", "2", "3", "1", "6", "4", "7", "8"]
    time.locator("button").press("Enter")
    assert time.get_attribute("aria-sort") == "descending"
    assert numbers(shown) == ["1", "6", "3", "2", "5", "4", "8", "7"]
    assert shown.evaluate("document.activeElement.closest('th').dataset.key") == "seconds"


def test_it_filters(shown: Page) -> None:
    shown.fill("#find", "measured")
    assert numbers(shown) == ["7", "8"]
    assert shown.inner_text("#shown") == "2 of 8 attempts"
    shown.fill("#find", "vmem-exceeded")
    assert numbers(shown) == ["4"]
    shown.fill("#find", "")
    shown.uncheck("#outcomes input[value=accept]")
    assert numbers(shown) == ["3", "4", "5", "8"]
    shown.select_option("#keys", index=2)
    assert numbers(shown) == ["8"]


# --- one attempt ---------------------------------------------------------------------------------


def test_a_click_opens_an_attempt_and_shows_its_diff(shown: Page) -> None:
    shown.click("#row-2 .score")
    shown.wait_for_selector("#attempt[open] .diff")
    words = shown.inner_text("#attempt")
    assert HOSTILE in words
    added = shown.locator("#attempt .diff .added .code").all_inner_texts()
    assert added[0] == "# </script><script>alert(3)</script>"
    assert shown.locator("#attempt .diff .added").first.locator(".sign").inner_text().startswith("+")
    assert shown.locator("#attempt .diff .code-c").count() > 0
    # The bar of time is drawn, and its table says the same in words.
    shown.wait_for_selector("#attempt .barlayer .point path")
    assert "that only spill" in words
    assert "operand wait `k`" in words


def test_the_keyboard_is_enough(shown: Page) -> None:
    shown.focus("#find")
    order = []
    for _ in range(22):
        shown.keyboard.press("Tab")
        order.append(
            shown.evaluate("document.activeElement.closest('tr')?.dataset.id ?? document.activeElement.tagName")
        )
    # One row is in the tab order, after the filters and the heads of the columns.
    assert [name for name in order if name.isdigit()] == ["1"]
    shown.focus("#row-1 a")
    shown.keyboard.press("ArrowDown")
    shown.keyboard.press("ArrowDown")
    assert shown.evaluate("document.activeElement.closest('tr').dataset.id") == "3"
    style = shown.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert style == "solid"
    shown.keyboard.press("Enter")
    shown.wait_for_selector("#attempt[open] h3")
    assert shown.url.endswith("#attempt-3")
    assert shown.evaluate("document.activeElement.id") == "attempt-title"
    shown.keyboard.press("ArrowRight")
    shown.wait_for_selector("#attempt[open][data-id='4']")
    shown.keyboard.press("Escape")
    # The browser tells of the close after the dialog is gone.
    expect(shown.locator("#attempt")).not_to_have_attribute("open", "")
    expect(shown).not_to_have_url(re.compile("#"))
    assert shown.evaluate("document.activeElement.closest('tr').dataset.id") == "4"


def test_an_address_opens_its_attempt(browser: Browser, path: Path) -> None:
    with opened(browser, f"{path.as_uri()}#attempt-4") as page:
        page.wait_for_selector("#attempt[open] h3")
        words = page.inner_text("#attempt")
        assert "compile, vmem-exceeded" in words
        assert "no simulated latency" in words
        page.evaluate("location.hash = '#attempt-1'")
        page.wait_for_selector("#attempt[open][data-id='1']")
        assert "four sums" in page.inner_text("#attempt")


def test_lines_carry_their_heat(shown: Page) -> None:
    shown.click("#row-2 .score")
    shown.wait_for_selector("#attempt[open] .heat")
    hot = shown.locator("#attempt .heat").filter(has_text="50.0%")
    assert hot.evaluate("cell => getComputedStyle(cell).getPropertyValue('--heat')") == "100.0%"
    assert "linear-gradient" in hot.evaluate("cell => getComputedStyle(cell).backgroundImage")


# --- a search ------------------------------------------------------------------------------------


def test_a_search_is_drawn_and_its_trials_sorted(shown: Page) -> None:
    shown.click("#row-3 .score")
    shown.wait_for_selector("#attempt[open] [data-trials] .points path.point")
    # Four trials, one of which has no latency; one constant has more than one value.
    expect(shown.locator("[data-trials] .points path.point")).to_have_count(4)
    expect(shown.locator("[data-constant]")).to_have_count(1)
    expect(shown.locator("[data-constant] .points path.point")).to_have_count(4)
    words = shown.text_content("[data-trials]") or ""
    assert "champion then, attempt 2: 2.000 ms" in words
    assert "best so far" in words
    first = "#attempt .trials tbody td:first-child"
    assert shown.locator(first).all_inner_texts() == ["2", "3", "4", "1"]
    # The charts are not in the way of the keyboard: region, then heads.
    shown.focus("#attempt .scroll:has(.trials)")
    shown.keyboard.press("Tab")
    shown.keyboard.press("Enter")
    assert shown.locator(first).all_inner_texts() == ["1", "2", "3", "4"]
    assert shown.evaluate("document.activeElement.closest('th').dataset.key") == "n"
    rows = shown.locator("#attempt .trials tbody tr").all_inner_texts()
    assert f"vmem-exceeded: {HOSTILE}" in rows[0]
    assert f"judged, fails: wrong-result: 2.0 times the tolerance {HOSTILE}" in rows[1]
    assert f'"{HOSTILE}"' in rows[3]


# --- a table of tuned constants ------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    (folder / "rows.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, tuned_rows())))
    assert main(["report", "--table", str(folder)]) == 0
    return folder / "report.html"


def test_a_table_shows_what_the_fallback_costs_and_opens_its_searches(browser: Browser, table: Path) -> None:
    with opened(browser, table.as_uri()) as page:
        expect(page.locator("#ratios .points path.point")).to_have_count(4)
        assert numbers(page) == ["1", "2", "3", "4", "5"]
        page.focus("th[data-key=fallback_ratio] button")
        page.keyboard.press("Enter")
        # Rows without a ratio are last.
        assert numbers(page) == ["2", "1", "3", "4", "5"]
        page.focus("#row-2 a")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_selector("#search[open] [data-trials] .points path.point")
        expect(page.locator("#search [data-trials] .points path.point")).to_have_count(4)
        assert HOSTILE in page.inner_text("#search .trials")
        assert "the fallback: 4.000 ms" in (page.text_content("[data-trials]") or "")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#search[open][data-id='3']")
        assert "made before trials were kept" in page.inner_text("#search")
        page.evaluate("location.hash = '#search-5'")
        page.wait_for_selector("#search[open][data-id='5'] .trials")
        assert page.locator("#search [data-trials]").count() == 0
        page.keyboard.press("Escape")
        expect(page.locator("#search")).not_to_have_attribute("open", "")
        expect(page).not_to_have_url(re.compile("#"))
        assert page.evaluate("document.activeElement.closest('tr').dataset.id") == "5"


# --- light, dark, narrow -------------------------------------------------------------------------


def test_contrast_itself_is_computed_right() -> None:
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("address", "ready", "least"),
    [
        ("path#attempt-2", ".diff", 200),
        ("path#attempt-3", "[data-trials] .legend", 200),
        ("table#search-1", "[data-trials] .legend", 120),
    ],
)
def test_every_text_has_enough_contrast(
    browser: Browser, path: Path, table: Path, scheme: str, address: str, ready: str, least: int
) -> None:
    file, sign, name = address.partition("#")
    with opened(browser, f"{(path if file == 'path' else table).as_uri()}{sign}{name}", color_scheme=scheme) as page:
        page.wait_for_selector(f"dialog[open] {ready}")
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        texts = page.evaluate(TEXTS)
        assert len(texts) > least
        assert [(name, ink, paper) for name, ink, paper in texts if contrast(ink, paper) < 4.5] == []
        paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (luminance(paper) > 0.5) is (scheme == "light")


def test_the_button_turns_the_page_and_its_charts_dark(shown: Page) -> None:
    ink = "getComputedStyle(document.querySelector('#progress .xtick text')).fill"
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    before = shown.evaluate(ink), shown.evaluate(paper)
    shown.click("#theme")
    assert shown.get_attribute("#theme", "aria-pressed") == "true"
    expect(shown.locator("#progress .xtick text").first).not_to_have_css("fill", before[0])
    assert luminance(shown.evaluate(paper)) < 0.05 < 0.5 < luminance(before[1])
    shown.click("#theme")
    assert shown.evaluate(paper) == before[1]


@pytest.mark.parametrize(
    ("file", "link", "ready"),
    [("path", "#row-2 a", ".diff"), ("path", "#row-3 a", ".trials"), ("table", "#row-1 a", ".trials")],
)
def test_a_narrow_screen_needs_no_sideways_scrolling(
    browser: Browser, path: Path, table: Path, file: str, link: str, ready: str
) -> None:
    address = (path if file == "path" else table).as_uri()
    with opened(browser, address, viewport={"width": 400, "height": 800}) as page:
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
        page.click(link)
        page.wait_for_selector(f"dialog[open] {ready}")
        assert page.locator("dialog[open]").evaluate("dialog => dialog.scrollWidth - dialog.clientWidth") <= 0
        if ready == ".trials":
            page.wait_for_selector("[data-trials] .points path.point")
            region = page.locator(".scroll:has(.trials)")
            assert region.evaluate("region => region.scrollWidth - region.clientWidth") <= 0


# Pairs of things in the charts that cover each other: the champion's words over points, the score over its ticks.
_COVERED = """() => {
  const boxes = (selector) => [...document.querySelectorAll(selector)].map((one) => one.getBoundingClientRect());
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const words = [...document.querySelectorAll("#roofline .annotation-text-g")];
  const own = words.find((one) => one.textContent.startsWith("champion")).getBoundingClientRect();
  const others = words.map((one) => one.getBoundingClientRect()).filter((box) => box.top !== own.top);
  const [title] = boxes("#progress .y2title");
  return [others.length, ...[...boxes("#roofline .points path"), ...others].filter((box) => meet(own, box)),
    ...boxes("#progress .y2tick text").filter((box) => meet(title, box))];
}"""


@pytest.mark.parametrize("width", [500, 1400])
def test_words_in_the_charts_cover_nothing(browser: Browser, path: Path, width: int) -> None:
    with opened(browser, path.as_uri(), viewport={"width": width, "height": 900}) as page:
        assert page.evaluate(_COVERED) == [4]


def test_the_verdict_is_not_said_by_colour_alone(shown: Page) -> None:
    badges = shown.locator("#table .badge").all_inner_texts()
    assert badges[0] == "● baseline"
    assert badges[2:5] == ["◇ rejected", "✕ failed", "○ inconclusive"]


def test_a_long_ledger_begins_with_its_newest_attempts(browser: Browser, ledger: Ledger, tmp_path: Path) -> None:
    entries, _ = stories.entries_of(ledger, scaled(ledger), tmp_path, tmp_path)
    many = tuple(
        replace(entries[number % 3], id=str(number), row=replace(entries[number % 3].row, number=number))
        for number in range(1, 251)
    )
    target = tmp_path / "long.html"
    target.write_bytes(page_of(Story(contest="root", branch="main", made="now", entries=many, champion="250")))
    with opened(browser, target.as_uri()) as page:
        assert numbers(page) == [str(number) for number in range(250, 50, -1)]
        page.click("#more")
        assert len(numbers(page)) == 250
        assert not page.locator("#more").is_visible()
        # There is one key, so there is nothing to choose.
        assert not page.locator("#group-choice").is_visible()
        assert page.locator("#table .star").count() == 1
        assert "drawn for accepted attempts only" in page.inner_text("#progress-words")
        # The attempt lies in another compressed piece than the newest.
        page.evaluate("location.hash = '#attempt-7'")
        page.wait_for_selector("#attempt[open][data-id='7'] h3")
        assert page.inner_text("#attempt-title").startswith("Attempt 7")
