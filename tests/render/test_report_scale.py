"""Page, pictures and show on the scale of the table: the whole way, folded checks, recorded figures next to it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from browsing import launched, opened
from command_line import Shell
from evidence_examples import KEY, evidence
from ledger_fixtures import NAIVE, new_repository, run_attempt
from pages import overview
from screen_examples import timed

from harness.ledger import Ledger, history, notes
from harness.ledger.table import scaled
from harness.records import Champion, Verdict
from harness.render.series import groups, opening
from harness.shell.main import main
from harness.verbs.parts import stories

pytestmark = pytest.mark.long

NEWEST = replace(KEY, judge="refitted twice")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A baseline, a win, a loss, and two checks of the champion under later keys; nothing is timed again."""
    contest = new_repository(tmp_path_factory.mktemp("scale") / "contest")
    new_ledger = Ledger.open(contest)
    run_attempt(new_ledger, hypothesis="baseline", evidence=evidence(8e-3))
    (contest / "kernel.py").write_bytes(NAIVE.replace(b"128", b"512"))
    won = Verdict(outcome="accept", reasons=("less",), time_ratio=0.25)
    first = Champion(attempt=1, commit="", score=None, seconds=8e-3)
    run_attempt(new_ledger, hypothesis="larger", evidence=evidence(2e-3), verdict=won, champion=first)
    (contest / "kernel.py").write_bytes(NAIVE.replace(b"128", b"64"))
    second = Champion(attempt=2, commit="", score=None, seconds=2e-3)
    run_attempt(new_ledger, "reject", hypothesis="smaller", evidence=evidence(4e-3), champion=second)
    (contest / "kernel.py").write_bytes(NAIVE.replace(b"128", b"512"))
    for key in (replace(KEY, judge="refitted"), NEWEST):
        again = Verdict(outcome="accept", reasons=("the same",))
        run_attempt(
            new_ledger,
            hypothesis="again",
            evidence=evidence(3e-3),
            key=key,
            kind="rebaseline",
            champion=second,
            verdict=again,
        )
    return new_ledger


@pytest.fixture(scope="module")
def rescaled(ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """A copy of the ledger, with its baseline timed again."""
    target = tmp_path_factory.mktemp("rescaled") / "contest"
    shutil.copytree(ledger.place.root, target)
    copied = Ledger.open(target)
    notes.keep(copied.place, [timed(history.rows(copied.place)[0][0], NEWEST, 12e-3, after=5)])
    return copied


def test_the_page_tells_the_whole_way_on_one_scale(rescaled: Ledger, tmp_path: Path) -> None:
    assert main(["report", "-C", str(rescaled.place.root), "--out", str(tmp_path / "page.html")]) == 0
    shown = overview((tmp_path / "page.html").read_text(encoding="utf-8"))
    (group,) = shown["groups"]
    assert [(step["n"], step["s"]) for step in group["steps"]][:2] == [(1, 12e-3), (2, 3e-3)]
    assert shown["gain"].startswith("12.000 -> 3.000 ms [simulated v5e], 4.00 times as fast, in 3 attempts, 2 accepted")
    assert [bool(row["recheck"]) for row in shown["rows"]] == [False, False, False, True, True]
    assert shown["rows"][3]["recheck"].startswith("4-5* judge changed: attempt 2 checked again 2 times")
    assert [row["values"]["seconds"] for row in shown["rows"]] == [12e-3, 3e-3, None, 3e-3, 3e-3]
    # A time recorded under another key has no uncertainty here, and its rate follows from the time on the scale.
    assert shown["rows"][0]["pm"] is None
    assert shown["rows"][2]["says"] == "rejected: not timed on this scale"
    (note,) = shown["notes"]
    assert note.startswith("1 attempt is not timed on this scale: ./ratchet.sh -C ")
    assert note.endswith(" rescale --all times it")
    rates = [row["flops"] for row in shown["rows"][:2]]
    assert rates[1] / rates[0] == pytest.approx(4)


def test_no_chart_opens_on_one_point_while_another_key_has_more(ledger: Ledger, tmp_path: Path) -> None:
    entries, champion = stories.entries_of(ledger, scaled(ledger), tmp_path, tmp_path)
    by_key = groups(entries)
    assert len(by_key) == 3
    assert champion == "5"
    first = opening(by_key, champion)
    assert first is by_key[0]
    assert first.timed == 3


def test_a_run_of_checks_is_a_row_that_opens(rescaled: Ledger, tmp_path: Path) -> None:
    assert main(["report", "-C", str(rescaled.place.root), "--out", str(tmp_path / "page.html")]) == 0
    with launched() as browser, opened(browser, (tmp_path / "page.html").as_uri()) as page:
        assert page.locator("#table tr[data-id]").count() == 3
        assert page.locator("#progress .points path.point").count() == 2 * 2 + 1
        page.click("#table tr.fold button")
        assert page.locator("#table tr[data-id]").count() == 5
        page.click("#row-4 a")
        page.wait_for_selector("#attempt[open] h3")


def test_show_says_what_an_attempt_takes_today(rescaled: Ledger, shell: Shell) -> None:
    text = " ".join(shell.printed("show", "1", "-C", rescaled.place.root).split())
    assert "On today's scale: 12.00 ms [simulated v5e], key " in text
    assert "; 8.00 ms recorded then" in text
    text = " ".join(shell.printed("show", "3", "-C", rescaled.place.root).split())
    assert "On today's scale: not timed on this scale; 4.00 ms recorded then" in text
    without = shell.printed("show", "5", "-C", rescaled.place.root)
    assert "On today's scale" not in without
    # `judge` has the option, so it is accepted here.
    assert shell.printed("show", "5", "--full", "-C", rescaled.place.root) == without


def test_plot_draws_the_scale_and_a_key_of_then(rescaled: Ledger, tmp_path: Path) -> None:
    assert main(["plot", "-C", str(rescaled.place.root), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "progress.png").is_file()
    old = scaled(rescaled).rows[0].then.key_digest
    assert main(["plot", "-C", str(rescaled.place.root), "--out", str(tmp_path), "--key", old[:8]]) == 0
