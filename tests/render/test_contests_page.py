"""The page and the picture over several contests: the records of their ledgers, the peers, and a readable page."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from browsing import TEXTS, contrast, opened
from command_line import Shell
from evidence_examples import KEY, evidence
from ledger_fixtures import NAIVE, PREPARE, git, run_attempt
from loop_fixtures import PROJECT as PROJECT_FOLDER
from pages import check_policy, overview
from playwright.sync_api import Browser
from report_examples import HOSTILE
from screen_examples import timed

from harness.ledger import Ledger, history, notes
from harness.records import Champion, Verdict
from harness.shell.main import main
from harness.verbs.parts import contests_page

pytestmark = pytest.mark.long

PROJECT = Path(PROJECT_FOLDER)
PEERS = f"# from elsewhere\ncontest\tpeer\tseconds\tratio\tnote\n.\tsplash {HOSTILE}\t1.6e-3\t0.938\tboth simulated\n"


@pytest.fixture(scope="module")
def repository(ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contest at the top with eight attempts, one below it whose judge was changed, and one without attempts."""
    folder = shutil.copytree(ledger.place.root, tmp_path_factory.mktemp("contests") / "made")
    for name in ("examples/refitted", "examples/untouched"):
        (folder / name).mkdir(parents=True)
        (folder / name / "kernel.py").write_bytes(NAIVE)
        (folder / name / "prepare.py").write_bytes(PREPARE)
    git(folder, "add", "examples")
    git(folder, "commit", "-qm", "two more contests")
    refitted = Ledger.open(folder / "examples" / "refitted")
    common = {"contest": refitted.place.name, "key": KEY}
    run_attempt(refitted, hypothesis="baseline", evidence=evidence(8e-3), **common)
    (folder / "examples/refitted/kernel.py").write_bytes(NAIVE.replace(b"128", b"512"))
    won = Verdict(outcome="accept", reasons=("less",), time_ratio=0.25, time_ratio_low=0.24, time_ratio_high=0.26)
    first = Champion(attempt=1, commit="", score=None, seconds=8e-3)
    run_attempt(refitted, hypothesis="larger", evidence=evidence(2e-3), verdict=won, champion=first, **common)
    again = {**common, "key": replace(KEY, judge="refitted"), "kind": "rebaseline"}
    second = Champion(attempt=2, commit="", score=None, seconds=None)
    run_attempt(refitted, hypothesis="again", evidence=evidence(3e-3), champion=second, **again)
    first_row = history.rows(refitted.place)[0][0]
    notes.keep(refitted.place, [timed(first_row, replace(KEY, judge="refitted"), 12e-3, after=3)])
    (folder / "peers.tsv").write_text(PEERS)
    return folder


@pytest.fixture(scope="module")
def index(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pages") / "index.html"
    words = ["report", "--all", "-C", str(repository), "--peers", str(repository / "peers.tsv"), "--out", str(target)]
    assert main(words) == 0
    return target


def test_a_contest_that_is_called_as_the_page_has_one_of_its_own(repository: Path, tmp_path: Path) -> None:
    target = tmp_path / "examples+refitted.html"
    assert main(["report", "--all", "-C", str(repository), "--out", str(target)]) == 0
    own_page = tmp_path / "examples+refitted+.html"
    assert "examples%2Brefitted%2B.html" in target.read_text(encoding="utf-8")
    assert "Contests of made" in target.read_text(encoding="utf-8")
    assert "Contests of made" not in own_page.read_text(encoding="utf-8")


def test_each_contest_with_attempts_has_a_row_and_a_page(index: Path) -> None:
    page = index.read_text(encoding="utf-8")
    check_policy(page)
    shown = overview(page)
    assert [(row["contest"], row["label"], row["page"]) for row in shown["rows"]] == [
        ("root", "measured v5e", "root.html"),
        ("refitted", "simulated v5e", "examples%2Brefitted.html"),
    ]
    assert sorted(path.name for path in index.parent.iterdir()) == ["examples+refitted.html", "index.html", "root.html"]
    assert shown["notes"] == ["no attempts yet: examples/untouched"]
    # Nothing is drawn with the library of charts: the page is small.
    assert len(page) < 100_000
    assert HOSTILE not in page


def test_the_first_champions_time_and_the_gain_are_of_one_scale(index: Path) -> None:
    top, refitted = overview(index.read_text(encoding="utf-8"))["rows"]
    assert (refitted["texts"]["baseline"], refitted["texts"]["champion"]) == ("12.000 ms", "3.000 ms")
    # The judge's change from 2 to 3 ms is no loss.
    assert refitted["texts"]["gain"] == "4.00x"
    assert refitted["baseline_limit"] == pytest.approx(refitted["values"]["limit"] / 4)
    assert refitted["spark"] == [[1, 1.0], [2, 0.25], [3, 0.25]]
    assert refitted["peer"] is None
    assert top["peer"]["ratio"] == "ours / theirs 0.938"
    assert top["peer"]["time"] == "1.6 ms"


def test_it_can_be_read_and_walked(browser: Browser, index: Path) -> None:
    with opened(browser, index.as_uri()) as page:
        assert page.locator("#table .spark path").count() == 2
        assert page.locator("#table .share .own").count() >= 1
        page.click("th[data-key=gain] button")
        assert page.locator("#table tr[data-id] td.problem .block").all_inner_texts() == ["refitted", "root"]
        page.focus("#row-2 a")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.closest('tr').dataset.id") == "1"


def test_without_peers_there_is_no_column_of_them(
    browser: Browser, index: Path, repository: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "index.html"
    assert main(["report", "--all", "-C", str(repository), "--out", str(alone)]) == 0
    for page_of, heads in ((index, 1), (alone, 0)):
        with opened(browser, page_of.as_uri()) as page:
            assert page.locator("th[data-key=peer]").count() == heads
            assert page.locator("#table tr[data-id]").count() == 2


def test_the_templates_are_no_contests_without_attempts() -> None:
    assert contests_page._is_contest(PROJECT / "examples/attention-gpu")
    assert not contests_page._is_contest(PROJECT / "harness/operators/products/templates/matmul")


def test_a_row_opens_the_page_of_its_contest(browser: Browser, index: Path) -> None:
    page = browser.new_page()
    page.goto(index.as_uri())
    page.focus("#row-2 a")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"examples(%2B|\+)refitted\.html$"))
    page.wait_for_selector("html[data-charts=drawn]", state="attached")
    assert "12.000 -> 3.000 ms [simulated v5e], 4.00 times as fast, in 2 attempts" in page.inner_text("#gain")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1400])
def test_every_text_has_enough_contrast_and_nothing_runs_off(
    browser: Browser, index: Path, scheme: str, width: int
) -> None:
    with opened(browser, index.as_uri(), color_scheme=scheme, viewport={"width": width, "height": 900}) as page:
        texts = page.evaluate(TEXTS)
        assert len(texts) > 40
        assert [(name, ink, paper) for name, ink, paper in texts if contrast(ink, paper) < 4.5] == []
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_the_picture_has_every_contest(repository: Path, tmp_path: Path, shell: Shell) -> None:
    assert "2 contests" in shell.printed("plot", "--all", "-C", repository, "--out", tmp_path)
    (picture,) = tmp_path.iterdir()
    assert picture.name == "gallery.png"
    first = picture.read_bytes()
    assert first[:8] == b"\x89PNG\r\n\x1a\n"
    shell.run("plot", "--all", "-C", repository, "--out", tmp_path, "--dark")
    assert picture.read_bytes() != first


def test_a_folder_below_shows_its_own_contests_alone(repository: Path, tmp_path: Path) -> None:
    target = tmp_path / "index.html"
    assert main(["report", "--all", "-C", str(repository / "examples"), "--out", str(target)]) == 0
    assert [row["contest"] for row in overview(target.read_text(encoding="utf-8"))["rows"]] == ["refitted"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["report", "--peers", "peers.tsv"], "expected --all with --peers"),
        (["report", "--all", "--table", "tables"], "expected --table DIR without -C and --all"),
        (["report", "--all", "--peers", "kernel.py"], "expected tab-separated lines in kernel.py"),
        (["report", "--all", "--peers", "nowhere.tsv"], "expected tab-separated lines in nowhere.tsv"),
        (["plot", "--all", "--key", "a"], "expected --all or --key"),
        (["report", "--all", "-C", "examples/untouched"], "expected contests with attempts in"),
    ],
)
def test_what_does_not_fit_is_said(
    repository: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell, words: list[str], complaint: str
) -> None:
    monkeypatch.chdir(repository)
    assert complaint in shell.complaint(*words, code=(2, 4))
