"""Expected durations: a search is expected to take its screening and one attempt."""

from pathlib import Path

import pytest
from loop_fixtures import committed_contest

from harness import contest as contests
from harness.loop.expected import Expected, keep_screening, of_screening, screening_seconds

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


def test_the_next_search_is_expected_to_take_as_long_for_a_setting_as_the_last(tmp_path: Path) -> None:
    contest = contests.load(committed_contest(tmp_path / "contest"))
    assert screening_seconds(contest, 2) is None
    # 12 settings, 2 at a time, took 436 s; the stages of an attempt would let them take 60 s.
    keep_screening(contest, 436.0, 12, 2)
    search = of_screening(ATTEMPT, 6, 2, measured_seconds=screening_seconds(contest, 2))
    assert search.stages["screening"] == pytest.approx(3 * 436.0 / 6)
    assert screening_seconds(contest, 1) is None
    assert screening_seconds(contests.load(contest.directory, "v6e"), 2) is None
    keep_screening(contest, 1.0, 0, 2)
    (contest.directory / "profile_data" / "screening.json").write_text("[]")
    assert screening_seconds(contest, 2) is None
