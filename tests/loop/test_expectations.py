"""Expected against got: what many attempts say, and what few do not."""

import pytest
from ledger_fixtures import attempt, row
from screen_examples import shown

from harness.loop.expectations import calibration
from harness.records import Row
from harness.render.results import results_table
from harness.render.review import calibration_line


def tried(number: int, expected: float | None, got: float | None) -> Row:
    one = row(attempt(number))
    changes = {"expected_time_ratio": expected, "time_ratio": got}
    return Row(**{**{name: getattr(one, name) for name in Row.__dataclass_fields__}, **changes})


def test_gains_are_compared_not_ratios_of_time() -> None:
    rows = [
        tried(1, None, None),
        tried(2, 0.5, 0.5),
        tried(3, 0.9, 0.7),
        tried(4, 0.95, 1.02),
        tried(5, 0.8, 0.9),
        # It failed: nothing to compare with. An expectation of nothing: no multiple of it.
        tried(6, 0.9, None),
        tried(7, 1.0, 0.98),
    ]
    found = calibration(rows)
    assert (found.stated, found.compared, found.same_sign, found.within_factor) == (6, 5, 3, 2)
    # Gains got / expected: 1, 3, -0.4, 0.5.
    assert found.median_ratio == pytest.approx(0.75)
    assert "median: 0.75 of the expected" in calibration_line(found)


def test_too_few_to_say() -> None:
    few = calibration([tried(1, 0.5, 0.5), tried(2, 0.5, 0.6)])
    assert few.median_ratio is None
    assert calibration_line(few).endswith("too few to say how good they are")
    assert calibration_line(calibration([tried(1, None, 0.5)])) == ""


def test_the_table_ends_with_it_and_marks_an_accept_that_is_on_no_branch() -> None:
    one = tried(1, 0.5, 0.5)
    lost = Row(**{**{name: getattr(one, name) for name in Row.__dataclass_fields__}, "is_on_branch": False})
    text = results_table(shown([lost], None), width=140)
    assert "accept, not on branch" in text
    assert text.splitlines()[-2].startswith("expected gains: 1 stated, 1 compared: too few")
