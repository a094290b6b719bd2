"""Advice in reports: edits that an attempt or a sweep of the ledger has tried are marked or left out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_examples import V5E, evidence
from ledger_fixtures import NAIVE, WRONG, candidate, new_repository, run_attempt
from refusals import refused
from rule_examples import good, with_counts

from harness.advice import diagnose
from harness.advice.report import report
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.ledger import Ledger
from harness.loop.ledger_advice import advice_and_left_out, advice_here, least_gain, set_constants
from harness.loop.sweep import on_another_text
from harness.records import Edit, Evidence, Hint, ScreenedSetting, Sweep
from harness.units import percent

pytestmark = pytest.mark.long

LARGER = Edit(window="q", axis=-2, size=128, new=256, constants=("BQ",))
LARGEST = Edit(window="q", axis=-2, size=128, new=512, constants=("BQ",))
ADVICE = (
    Hint(observation="short steps", suggestion="a larger block", edits=(LARGER, LARGEST)),
    Hint(observation="spills", suggestion="a smaller tile"),
)
CHAMPION = Candidate(text=NAIVE)


@pytest.fixture
def contest(tmp_path: Path) -> Path:
    folder = new_repository(tmp_path / "contest")
    ledger = Ledger.open(folder)
    run_attempt(ledger)
    candidate(folder, 256)
    run_attempt(ledger, "reject")
    return folder


def sweep(*values: str) -> Sweep:
    screened = tuple(ScreenedSetting(settings=(("BQ", value),), seconds=1e-3) for value in values)
    return Sweep(parameters=(("BQ", values),), source="simulated", chip="v5e", screened=screened)


def test_what_was_tried_is_marked_and_given_no_place_where_nothing_is_left(contest: Path) -> None:
    first, second = advice_here(ADVICE, evidence(), CHAMPION, contest)
    assert first.suggestion == "a larger block (sweep with --set BQ=256,512); tried already: BQ=256 by attempt 2"
    assert second == ADVICE[1]
    candidate(contest, 1024)
    run_attempt(Ledger.open(contest), "reject", sweep=sweep("512", "1024"))
    assert advice_here(ADVICE, evidence(), CHAMPION, contest) == ADVICE[1:]


def test_a_sweep_that_no_attempt_recorded_counts_in_its_own_report(contest: Path) -> None:
    assert advice_here(ADVICE, evidence(), CHAMPION, contest, sweep("512")) == ADVICE[1:]
    # With one edit tried and the other slower, the hint comes last.
    (_, last) = advice_here(ADVICE, evidence(), Candidate(text=NAIVE + b"\n\nX = 1\n"), contest, sweep("512"))
    assert "BQ=512 by this sweep" in last.suggestion
    assert "slower in another kernel, by attempt 2: BQ=256" in last.suggestion


def test_if_all_advice_was_tried_the_hint_says_so(contest: Path) -> None:
    candidate(contest, 1024)
    run_attempt(Ledger.open(contest), "reject", sweep=sweep("512"))
    (hint,), (left_out,) = advice_and_left_out(ADVICE[:1], evidence(), CHAMPION, contest)
    assert hint.observation.startswith("all changes that rules find were tried; up to ")
    assert left_out.startswith("advice left out, because it was tried by attempt 2, the sweep of attempt 3: a larger")


def test_what_was_slower_with_another_body_is_marked_and_kept(contest: Path) -> None:
    candidate(contest, 1024)
    times = tuple(
        ScreenedSetting(settings=(("BQ", value),), seconds=seconds)
        for value, seconds in (("128", 1.00e-3), ("256", 1.011e-3), ("512", 0.9e-3), ("1024", None))
    )
    run_attempt(Ledger.open(contest), "reject", sweep=replace(sweep(), screened=times))
    text = NAIVE.replace(b"return q", b"return q + 0")
    kernel = Candidate(text=text)
    (first, second) = advice_here(ADVICE, evidence(), kernel, contest)
    assert first.suggestion == (
        "a larger block (sweep with --set BQ=256,512); slower in another kernel, by the sweep of attempt 3: BQ=256 "
        "(1.1% more time)"
    )
    assert second == ADVICE[1]
    # The record says nothing of a kernel with another value of another constant.
    other = Candidate(text=text.replace(b"BKV = 256", b"BKV = 512"))
    assert "slower" not in advice_here(ADVICE, evidence(), other, contest)[0].suggestion
    # Nor of another chip's kernel.
    elsewhere = replace(evidence(), chip="v6e")
    assert "slower" not in advice_here(ADVICE, elsewhere, kernel, contest)[0].suggestion


def test_an_attempt_that_changed_one_constant_and_lost_is_named_too(contest: Path) -> None:
    kernel = Candidate(text=NAIVE.replace(b"return q", b"return q + 0"))
    (first, _) = advice_here(ADVICE, evidence(), kernel, contest)
    assert first.suggestion.endswith("; slower in another kernel, by attempt 2: BQ=256 (5.0% more time)")


def test_a_gain_below_the_threshold_with_another_body_is_stated(contest: Path) -> None:
    candidate(contest, 1024)
    times = tuple(
        ScreenedSetting(settings=(("BQ", value),), seconds=seconds)
        for value, seconds in (("128", 1.000e-3), ("256", 0.999e-3), ("512", 0.998e-3))
    )
    run_attempt(Ledger.open(contest), "reject", sweep=replace(sweep(), screened=times))
    kernel, least = Candidate(text=NAIVE.replace(b"return q", b"return q + 0")), least_gain(evidence())
    (first, last) = advice_here(ADVICE, evidence(), kernel, contest)
    assert first == ADVICE[1]
    assert last.suggestion.endswith(
        f"; below the threshold of {percent(least)} in another kernel, by the sweep of attempt 3: "
        "BQ=256 (0.1% less time), BQ=512 (0.2% less time)"
    )
    assert least_gain(evidence(latency=None)) == 0


def code_hints(champion: Evidence, contest: Path, text: Candidate = CHAMPION) -> list[str]:
    advice = diagnose.hints(champion, report(champion, V5E))
    hints = advice_here(advice, champion, text, contest)
    return [hint.suggestion for hint in hints if hint.rule == "recomputed exp"]


def test_a_hint_on_code_names_the_attempts_that_followed_it(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "contest")
    ledger, champion = Ledger.open(folder), with_counts(evidence(), exp=10)
    run_attempt(ledger, evidence=champion)
    (before,) = code_hints(champion, folder)

    def lose(body: bytes, **changes: Any) -> None:
        (folder / "kernel.py").write_bytes(NAIVE.replace(b"return q", body))
        run_attempt(ledger, "reject", **changes)

    slower = evidence(1.05 * 2.16e-3)
    # The exponentials are computed again as before.
    lose(b"return q + 0", evidence=with_counts(slower, exp=10))
    assert code_hints(champion, folder) == [before]
    lose(b"return q + 1", evidence=slower)
    lose(b"return q + 2", evidence=with_counts(slower, exp=10), hypothesis="no Recomputed exp: keep the weights")
    # A change of another kind follows no hint on the body.
    candidate(folder, 512)
    run_attempt(ledger, "reject", hypothesis="recomputed exp")
    # A failed attempt has no time.
    lose(b"return q + 3", hypothesis="recomputed exp", evidence=evidence(failure=WRONG))
    gone = "in attempt 3 (body) this is gone: 5.0% more time"
    named = "attempt 4 names this in its hypothesis: 5.0% more time"
    assert code_hints(champion, folder) == [f"{before}; {gone}; {named}"]
    # They say nothing of another kernel.
    assert code_hints(champion, folder, Candidate(text=NAIVE + b"\n\nX = 1\n")) == [before]


def test_a_hint_names_an_attempt_without_any_finding(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "contest")
    ledger, champion = Ledger.open(folder), with_counts(good(), exp=10)
    run_attempt(ledger, evidence=champion)
    (before,) = code_hints(champion, folder)
    (folder / "kernel.py").write_bytes(NAIVE.replace(b"return q", b"return q + 0"))
    run_attempt(ledger, "reject", evidence=good())
    (after,) = code_hints(champion, folder)
    assert after.startswith(f"{before}; in attempt 2 (body) this is gone: ")


def test_without_a_ledger_nothing_was_tried(tmp_path: Path) -> None:
    first, second = advice_here(ADVICE, evidence(), CHAMPION, tmp_path)
    assert first.suggestion == "a larger block (sweep with --set BQ=256,512)"
    assert second == ADVICE[1]


def test_edits_of_one_constant_that_was_tried_are_named_once(contest: Path) -> None:
    both = Hint(observation="x", suggestion="a larger block", edits=(LARGER, replace(LARGER, window="k"), LARGEST))
    (hint,) = advice_here((both,), evidence(), CHAMPION, contest)
    assert hint.suggestion.count("tried already: BQ=256 by attempt 2") == 1
    assert hint.suggestion.count("by attempt 2") == 1


def test_a_constant_that_only_an_earlier_kernel_has_is_said_to_be_there(contest: Path) -> None:
    other = Candidate(text=b"TILE = 8\n\n\ndef kernel_fn(q, k, v):\n    return q\n")
    assert set_constants(CHAMPION, (("BQ", "512"),), contest) == CHAMPION.set((("BQ", "512"),))
    with refused("unknown-constant", r"constants there: TILE.*attempt 2 has .*checkout 2, then"):
        set_constants(other, (("BQ", "512"), ("BKV", "8")), contest)
    # No attempt has both.
    with pytest.raises(RatchetError, match=r"constants there: TILE$"):
        set_constants(other, (("BQ", "512"), ("TILES", "8")), contest)


def test_a_sweep_over_the_kernel_of_an_earlier_attempt_says_what_may_come_of_it(contest: Path) -> None:
    ledger = Ledger.open(contest)
    candidate(contest, 1024)
    run_attempt(ledger, "accept")
    champion = Candidate(text=(contest / "kernel.py").read_bytes())
    assert on_another_text(ledger, champion) == ""
    sentence = on_another_text(ledger, CHAMPION)
    assert sentence.startswith("kernel.py is that of attempt 1: its best setting is recorded")
    assert sentence.endswith("only if it takes less time than attempt 3")
    assert on_another_text(ledger, Candidate(text=NAIVE + b"# edited\n")) == ""


def test_several_values_for_a_constant_of_one_are_refused(contest: Path) -> None:
    with refused("bad-setting", r"expected one value, because BQ = .*, got 64, 256; .*sweep"):
        set_constants(CHAMPION, (("BQ", "64, 256"),), contest)
    kernel = Candidate(text=b"CHUNKS = (256, 512)\n")
    assert set_constants(kernel, (("CHUNKS", "(128, 256)"),), contest).constants == (("CHUNKS", "(128, 256)"),)
