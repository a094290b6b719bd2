"""The sentences of undo: what to do first if kernel.py is not the champion's, and how to judge the same text again."""

from pathlib import Path

import pytest
from ledger_fixtures import run_attempt
from loop_fixtures import committed_contest, copy_of, git
from refusals import refused

from harness import contest as contests
from harness.ledger import Ledger, history
from harness.loop.undo import checkout, undo
from harness.records import Policy

pytestmark = pytest.mark.long


def two_wins(top: Path) -> Path:
    """Baseline 1, wins 2 and 3 of a real contest."""
    ledger = Ledger.open(committed_contest(top / "mine"))
    for block in (128, 256, 512):
        text = ledger.place.kernel_path.read_text()
        ledger.place.kernel_path.write_text(f"{text}# {block}\n")
        run_attempt(ledger)
    return ledger.place.kernel_path.parent


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(copy_of(two_wins, tmp_path / "top"))


def refusal(ledger: Ledger) -> str:
    with refused("unsaved-kernel", "expected the champion's text") as caught:
        undo(contests.load(ledger.place.kernel_path.parent), Policy())
    return str(caught.value)


def test_after_a_checkout_the_way_out_is_named_and_works(ledger: Ledger) -> None:
    folder = ledger.place.kernel_path.parent
    checkout(Ledger.open(folder), 1, force=False)
    assert "got that of attempt 1: ./ratchet.sh checkout 3, then undo" in refusal(ledger)
    checkout(Ledger.open(folder), 3, force=False)
    result = undo(contests.load(folder), Policy())
    assert any("./ratchet.sh checkout 3, then an experiment with --again" in sentence for sentence in result)
    assert ledger.place.kernel_path.read_bytes() == history.candidate(ledger.place, 2).text


def test_a_change_of_ones_own_is_not_lost_by_what_is_named(ledger: Ledger) -> None:
    folder = ledger.place.kernel_path.parent
    ledger.place.kernel_path.write_text("mine = 1\n")
    assert "got a text that neither HEAD nor any attempt has" in refusal(ledger)
    git(folder, "commit", "-qam", "My own")
    assert "got that of the last commit: ./ratchet.sh checkout 3, then undo" in refusal(ledger)
    checkout(Ledger.open(folder), 3, force=False)
    undo(contests.load(folder), Policy())
    assert ledger.place.kernel_path.read_bytes() == history.candidate(ledger.place, 2).text
