"""Rows on one scale: the scale, the rows with a time on it, and why the others have none."""

from dataclasses import replace
from typing import Any

import pytest
from evidence_examples import evidence
from ledger_fixtures import LATER_KEY, NAIVE, attempt, note, row
from narrowing import present

from harness.judge.key import key_digest
from harness.ledger import scale
from harness.records import NOT_YET, Attempt, Note, Row, Verdict


def made(number: int, seconds: float | None, outcome: str = "accept", **changes: Any) -> Attempt:
    kernel = NAIVE + b"# %d\n" % number
    verdict = Verdict(outcome=outcome, reasons=("a reason",))  # type: ignore[arg-type]
    changes.setdefault("kind", "baseline" if number == 1 else "experiment")
    return attempt(number, kernel, evidence=evidence(seconds), verdict=verdict, **changes)


ATTEMPTS = (made(1, 4e-3), made(2, 2e-3), made(3, 3e-3, "reject"))
ROWS = tuple(map(row, ATTEMPTS))


def later(of: Attempt, seconds: float | None, **changes: Any) -> Note:
    """A note on today's scale, which is one key whatever the time."""
    taken_note = note(of, seconds, after=3, **changes)
    return replace(taken_note, key=LATER_KEY, key_digest=key_digest(LATER_KEY))


def scaled(rows: tuple[Row, ...], notes: tuple[Note, ...]) -> list[tuple[float | None, str]]:
    on = present(scale.scale_of(rows, notes, 2))
    return [(scaled.row.seconds, scaled.why_unknown) for scaled in scale.on_scale(rows, notes, on)]


def test_without_notes_the_scale_is_that_of_the_champion() -> None:
    on = present(scale.scale_of(ROWS, (), 2))
    assert (on.key_digest, on.accepted, on.timed) == (ROWS[1].key_digest, 2, 2)
    assert scaled(ROWS, ()) == [(4e-3, ""), (2e-3, ""), (3e-3, "")]


def test_a_time_of_the_champion_under_a_new_key_makes_that_the_scale() -> None:
    notes = (later(ATTEMPTS[1], 2.5e-3),)
    on = present(scale.scale_of(ROWS, notes, 2))
    assert (on.key_digest, on.accepted, on.timed) == (key_digest(LATER_KEY), 2, 1)
    assert scaled(ROWS, notes) == [(None, NOT_YET), (2.5e-3, ""), (None, NOT_YET)]


def test_ratios_are_those_of_times_on_the_scale_and_recorded_ones_elsewhere() -> None:
    rows = (*ROWS[:2], replace(ROWS[2], time_ratio=1.5))
    notes = (later(ATTEMPTS[0], 5e-3), later(ATTEMPTS[1], 2.5e-3))
    on_scale = scale.on_scale(rows, notes, present(scale.scale_of(rows, notes, 2)))
    assert on_scale[1].row.time_ratio == pytest.approx(0.5)
    assert (on_scale[2].row.seconds, on_scale[2].row.time_ratio) == (None, 1.5)
    assert [scaled.then for scaled in on_scale] == list(rows)


def test_a_kernel_that_has_no_time_on_the_scale_says_why() -> None:
    failing = later(ATTEMPTS[0], None, failure_kind="compile-error", reason="the compiler refuses it")
    notes = (later(ATTEMPTS[1], 2.5e-3), failing)
    assert scaled(ROWS, notes)[0] == (None, "compile-error: the compiler refuses it")


def test_a_failed_attempt_keeps_no_time_and_needs_none() -> None:
    rows = (*ROWS, replace(row(made(4, None, "failed")), outcome="failed", failure_kind="wrong-result"))
    assert scaled(rows, ())[3] == (None, "")
    assert all(entry.number != 4 for entry in scale.untimed(rows, (), "another", only_accepted=False))


def test_another_chip_or_source_keeps_its_own_figures() -> None:
    other = replace(ROWS[2], chip="v6e", key_digest="of v6e")
    rows = (*ROWS[:2], other)
    notes = (later(ATTEMPTS[1], 2.5e-3), later(ATTEMPTS[0], 5e-3))
    assert scale.on_scale(rows, notes, present(scale.scale_of(rows, notes, 2)))[2].row == other


def test_what_is_untimed_is_one_row_a_kernel_the_newest_first() -> None:
    again = replace(ROWS[1], number=4, kind="rebaseline")
    rows = (*ROWS, again)
    assert [entry.number for entry in scale.untimed(rows, (), "today", only_accepted=True)] == [4, 1]
    assert [entry.number for entry in scale.untimed(rows, (), "today", only_accepted=False)] == [4, 3, 1]
    later_notes = (later(ATTEMPTS[1], 2.5e-3), later(ATTEMPTS[0], None, failure_kind="unsupported"))
    today = key_digest(LATER_KEY)
    assert [entry.number for entry in scale.untimed(rows, later_notes, today, only_accepted=False)] == [3]


def test_nothing_accepted_has_no_scale() -> None:
    assert scale.scale_of(ROWS[2:], (), None) is None
    assert scale.scale_of((), (), None) is None
