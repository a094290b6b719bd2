"""Expected durations: an attempt takes as long as whole attempts on a machine like this; a search also screens."""

from dataclasses import replace
from pathlib import Path

import pytest
from evidence_examples import ENVIRONMENT, KEY, attempt, evidence
from loop_fixtures import committed_contest

from harness import contest as contests
from harness.ledger import Ledger, history
from harness.loop import expected
from harness.loop.expected import Expected, keep_screening, of_screening, screening_seconds
from harness.records import StageTime, Verdict
from harness.sandbox import environment as environments

ROOT = Path(__file__).parents[2]

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


def test_an_attempt_takes_longer_than_its_stages() -> None:
    """The runs under uncertain constants, for example, are no stage of the record."""
    judged = replace(evidence(1e-3), stages=(StageTime(stage="trace", start_seconds=2.0, seconds=18.0),))
    times = {"started": "2026-01-01T00:00:00+00:00", "finished": "2026-01-01T00:00:50+00:00"}
    alone = attempt(judged, Verdict(outcome="accept", reasons=()), **times)
    assert expected._candidate_seconds(alone) == 50.0
    # The champion was judged again in the same attempt.
    assert expected._candidate_seconds(replace(alone, champion_evidence=judged)) == 30.0
    assert expected._candidate_seconds(replace(alone, finished=times["started"])) == 20.0


def test_attempts_on_such_machines_count_first_and_the_champion_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    contest = contests.load(ROOT / "examples" / "rmsnorm")
    place = Ledger.open(contest.directory).place
    newest = history.attempt(place, history.rows(place)[0][-1].number).evidence.environment
    for environment, is_here in ((newest, True), (replace(ENVIRONMENT, machine="no such machine"), False)):
        monkeypatch.setattr(environments, "environment", lambda environment=environment: environment)
        alone = expected.of(contest, None)
        assert alone.is_here == is_here
        assert alone.source.endswith("on a machine like this" if is_here else "on other machines")
        # The example's kernel.py is the champion's: judged once, under any key.
        assert expected.of(contest, KEY, ()).champion_seconds == 0
        against = expected.of(contest, KEY)
        assert against.champion_seconds == alone.total_seconds
        assert (against.total_seconds or 0) >= 2 * against.champion_seconds > 0
        assert against.source.endswith("s for the champion first")
