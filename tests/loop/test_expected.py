"""Expected durations: a search is expected to take its screening and one attempt."""

import pytest

from harness.loop.expected import Expected, of_screening

ATTEMPT = Expected(
    attempts=2,
    stages={"trace": 3.0, "compile": 5.0, "simulate": 2.0, "correctness": 30.0},
    start_seconds=6.0,
    total_seconds=50.0,
)


@pytest.mark.parametrize(
    ("settings", "jobs", "screening"),
    # Processes start once, then settings are screened in rounds of 10 s.
    [(1, 2, 16.0), (2, 2, 16.0), (3, 2, 26.0), (8, 2, 46.0), (8, 16, 16.0)],
)
def test_a_search_takes_its_screening_and_one_attempt(settings: int, jobs: int, screening: float) -> None:
    search = of_screening(ATTEMPT, settings, jobs)
    assert search.stages["screening"] == screening
    assert search.total_seconds == screening + 50.0
    assert search.stages["correctness"] == 30.0
    assert search.attempts == 2


def test_a_search_with_a_time_limit_ends_with_the_settings_that_run_then() -> None:
    assert of_screening(ATTEMPT, 100, 2, longest_seconds=60.0).stages["screening"] == 70.0
    assert of_screening(ATTEMPT, 2, 2, longest_seconds=60.0).stages["screening"] == 16.0


def test_without_attempts_nothing_is_expected() -> None:
    assert of_screening(Expected(), 8, 2) == Expected()
