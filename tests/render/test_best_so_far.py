"""The best time so far over all keys: joined where a champion was judged again, moved by what the verdicts used."""

from dataclasses import replace
from typing import Any

import pytest
from evidence_examples import KEY, evidence
from ledger_fixtures import NAIVE, attempt, row

from harness.records import Champion, Trace, Verdict
from harness.render.best_so_far import best_so_far
from harness.render.page.story import story_plain
from harness.render.series import Entry

OTHER = replace(KEY, judge="refitted")
NEWER = replace(OTHER, libtpu="0.0.99")
FASTER = NAIVE + b"# faster\n"


def entry(number: int, seconds: float, kernel: bytes = NAIVE, program: str = "", **changes: Any) -> Entry:
    found = evidence(seconds)
    assert isinstance(found.trace, Trace)
    trace = replace(found.trace, fingerprint=program or f"program of {len(kernel)}")
    made = attempt(number, kernel, evidence=replace(found, trace=trace), **{"key": KEY, **changes})
    return Entry(id=str(number), row=row(made), attempt=made)


def champion(number: int, seconds: float | None = None) -> Champion:
    return Champion(attempt=number, commit="", score=None, seconds=seconds)


def accepted(ratio: float) -> Verdict:
    return Verdict(
        outcome="accept",
        reasons=("less time",),
        time_ratio=ratio,
        time_ratio_low=ratio - 0.02,
        time_ratio_high=ratio + 0.02,
    )


BASELINE = entry(1, 4e-3, kind="baseline")
WIN = entry(2, 2e-3, FASTER, kind="experiment", champion=champion(1, 4e-3), verdict=accepted(0.5))
# A refitted simulator takes the same kernel for half as slow again.
AGAIN = entry(3, 3e-3, FASTER, kind="rebaseline", champion=champion(2), key=OTHER, verdict=accepted(1.5))


def test_a_change_of_the_judge_moves_nothing() -> None:
    rejected = replace(accepted(1.1), outcome="reject")
    lost = entry(4, 3.3e-3, key=OTHER, kind="experiment", champion=champion(3, 3e-3), verdict=rejected)
    won = entry(5, 1.5e-3, key=OTHER, kind="experiment", champion=champion(3, 3e-3), verdict=accepted(0.5))
    found = best_so_far((BASELINE, WIN, AGAIN, lost, won))
    assert [(one.number, one.share, one.begins) for one in found.levels] == [
        (1, 1, True),
        (2, 0.5, False),
        (5, 0.25, False),
    ]
    shares = {one.entry: (one.share, one.low, one.high) for one in found.shares}
    assert shares["3"] == (0.5, None, None)
    # The interval that decided, around the champion's share.
    assert shares["4"] == pytest.approx((0.55, 0.54, 0.56))
    assert shares["5"] == pytest.approx((0.25, 0.24, 0.26))
    (change,) = found.changes
    assert (change.number, change.short, change.champion) == (3, "judge", 2)
    assert (change.before_seconds, change.after_seconds) == (2e-3, 3e-3)


def test_an_experiment_under_a_new_key_is_joined_through_its_champions_evidence() -> None:
    won = entry(3, 2.4e-3, key=NEWER, kind="experiment", champion=champion(2, 3e-3), verdict=accepted(0.8))
    found = best_so_far((BASELINE, WIN, won))
    assert found.levels[-1].share == pytest.approx(0.4)
    (change,) = found.changes
    assert (change.short, change.before_seconds, change.after_seconds) == ("judge, compiler", 2e-3, 3e-3)
    assert "libtpu 0.0.42 to 0.0.99" in change.words


def test_the_same_program_in_other_words_is_the_same_program() -> None:
    program = f"program of {len(FASTER)}"
    reworded = entry(3, 3e-3, FASTER + b"# words\n", program, kind="rebaseline", champion=champion(2), key=OTHER)
    assert best_so_far((BASELINE, WIN, reworded)).levels[-1].share == 0.5


def test_another_program_under_another_key_begins_again() -> None:
    other = entry(3, 1e-3, NAIVE + b"# another\n", kind="rebaseline", champion=champion(2), key=OTHER)
    found = best_so_far((BASELINE, WIN, other))
    assert [(one.number, one.share, one.begins) for one in found.levels][-1] == (3, 1.0, True)
    assert found.first == found.last
    assert "begins again at 100%" in str(story_plain((BASELINE, WIN, other))["words"])


def test_what_fails_under_a_later_judge_is_not_in_the_line() -> None:
    back = entry(3, 4e-3, kind="revoke", champion=champion(2), key=OTHER)
    entries = (BASELINE, replace(WIN, is_revoked=True), replace(back, again="1"))
    found = best_so_far(entries)
    assert [(one.number, one.share) for one in found.levels] == [(1, 1)]
    assert {one.entry: one.share for one in found.shares} == {"1": 1, "2": 0.5, "3": 1}


def test_rows_without_a_record_are_held_against_the_champion_before_them() -> None:
    found = best_so_far([replace(one, attempt=None) for one in (BASELINE, WIN)])
    assert found.levels[-1].share == 0.5


def test_no_champion_is_said() -> None:
    failed = entry(1, 4e-3, kind="baseline", verdict=Verdict(outcome="reject", reasons=()))
    assert story_plain((failed,))["words"] == ["No accepted attempt has a latency yet."]
