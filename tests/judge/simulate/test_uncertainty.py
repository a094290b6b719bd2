"""The simulator's claims about its own errors: compared with the published times they come from, and on unused rows."""

from dataclasses import replace

import fidelity_statistics as statistics
import pytest
from fidelity_statistics import Point

from harness.judge.simulate import uncertainty
from harness.records import Simulation

POINTS = statistics.points()
UNFITTED = statistics.unfitted(POINTS)
VALIDATION = [point for point in POINTS if point.purpose == "validation"]
CHIPS = sorted({point.chip for point in UNFITTED})
LONG = 1.0


def claimed(point: Point, factor: float = 1) -> float:
    """The judge's uncertainty of the row, times `factor`."""
    return factor * uncertainty.relative_uncertainty(point.chip, point.operation_seconds)


@pytest.fixture(scope="module")
def earned() -> tuple[statistics.Spread, float, float]:
    """The errors of rows that nothing was fitted to, and bounds for 68 % and 95 % of them, each left out."""
    scored = statistics.scores(UNFITTED)
    once, mostly = (statistics.expected(scored, part) for part in (statistics.ONE_DEVIATION, statistics.TWO_DEVIATIONS))
    return statistics.spread(UNFITTED), once, mostly


@pytest.mark.slow
def test_what_is_claimed_is_what_rows_earn_that_nothing_was_fitted_to(
    earned: tuple[statistics.Spread, float, float],
) -> None:
    spread, once, mostly = earned
    for chip in CHIPS:
        least = 0.02 if chip == "v5e" else 0
        what = max(least, once * spread.by_chip[chip])
        assert uncertainty.relative_uncertainty(chip, LONG) == pytest.approx(what, abs=0.001)
    short = uncertainty.relative_uncertainty("v6e", 1e-6)
    assert short == pytest.approx(
        once * spread.of(replace(UNFITTED[0], chip="v6e", simulated_seconds=1e-6, calls=1)), abs=0.01
    )
    assert pytest.approx(mostly / once, abs=0.1) == uncertainty.DEVIATIONS_OF_95_PERCENT


def test_rows_that_were_not_used_are_covered_about_as_claimed() -> None:
    assert 0.5 <= statistics.covered(VALIDATION, claimed) <= 0.9
    often = uncertainty.DEVIATIONS_OF_95_PERCENT
    assert 0.85 <= statistics.covered(VALIDATION, lambda point: claimed(point, often)) <= 1


@pytest.mark.parametrize("factor", [0.3, 6])
def test_a_wrong_claim_is_found_out(factor: float) -> None:
    assert not 0.5 <= statistics.covered(VALIDATION, lambda point: claimed(point, factor)) <= 0.9


def test_programs_of_short_operations_are_less_certain() -> None:
    long, short = (uncertainty.relative_uncertainty("v7x", seconds) for seconds in (LONG, 0.5e-6))
    assert 2 * long < short < 1


def test_an_unseen_chip_is_no_more_certain_than_any() -> None:
    assert "v4" not in CHIPS
    assert uncertainty.relative_uncertainty("v4", LONG) == pytest.approx(
        max(map(uncertainty.relative_uncertainty, CHIPS))
    )


def test_old_records_without_the_number_keep_theirs() -> None:
    (default,) = (f.default for f in Simulation.__dataclass_fields__.values() if f.name == "relative_uncertainty")
    assert default == 0.02


def test_what_is_not_understood_doubles_the_plus_minus() -> None:
    understood = uncertainty.plus_minus_seconds(1e-3, 0.05, is_understood=True)
    assert understood == pytest.approx(1.2 * 0.05 * 1e-3)
    assert uncertainty.plus_minus_seconds(1e-3, 0.05, is_understood=False) == 2 * understood
