"""Expected and actual gains: many attempts give a calibration, few do not."""

from dataclasses import replace

import pytest
from ledger_fixtures import attempt, row
from screen_examples import shown

from harness.loop.gain import calibration
from harness.records import Row
from harness.render.results import results_table
from harness.render.review import calibration_line


def row_with(number: int, expected: float | None, got: float | None) -> Row:
    return replace(row(attempt(number)), expected_time_ratio=expected, time_ratio=got)


def test_gains_are_compared_not_ratios_of_time() -> None:
    rows = [
        row_with(1, None, None),
        row_with(2, 0.5, 0.5),
        row_with(3, 0.9, 0.7),
        row_with(4, 0.95, 1.02),
        row_with(5, 0.8, 0.9),
        # The first failed, so there is nothing to compare. The second expected no change, which has no multiple.
        row_with(6, 0.9, None),
        row_with(7, 1.0, 0.98),
    ]
    result = calibration(rows)
    assert (result.stated, result.compared, result.same_sign, result.within_factor) == (6, 5, 3, 2)
    # Gains got / expected: 1, 3, -0.4, 0.5.
    assert result.median_ratio == pytest.approx(0.75)
    assert "median: 0.75 of the expected gain" in calibration_line(result)


def test_too_few_to_say() -> None:
    few = calibration([row_with(1, 0.5, 0.5), row_with(2, 0.5, 0.6)])
    assert few.median_ratio is None
    assert calibration_line(few).endswith("too few to judge the expectations")
    assert calibration_line(calibration([row_with(1, None, 0.5)])) == ""


def test_the_table_ends_with_it_and_marks_an_accept_that_is_on_no_branch() -> None:
    off_branch = replace(row_with(1, 0.5, 0.5), is_on_branch=False)
    text = results_table(shown([off_branch], None), width=140)
    assert "accept, not on branch" in text
    assert text.splitlines()[-2].startswith("expected gains: 1 stated, 1 compared: too few")
