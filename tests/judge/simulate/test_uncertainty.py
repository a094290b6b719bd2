"""The simulator's claims about its own errors: against the published times they come from, and on rows not used."""

from pathlib import Path

import fidelity_statistics as statistics
import pytest
from fidelity_statistics import Point

from harness.judge.simulate import uncertainty
from harness.records import Simulation

ROOT = Path(__file__).parents[3]
POINTS = statistics.points()
FIT = [point for point in POINTS if point.purpose == "fit"]
VALIDATION = [point for point in POINTS if point.purpose == "validation"]
CHIPS = sorted({point.chip for point in FIT})


def claimed(point: Point, factor: float = 1) -> float:
    """What the judge would say of the row, times `factor`."""
    return factor * uncertainty.relative_uncertainty(point.chip, point.waits_for_transfers)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("memory", [False, True])
def test_what_is_claimed_is_what_the_rows_for_fitting_earn(chip: str, memory: bool) -> None:
    of_chip = [point for point in FIT if point.chip == chip]
    here = [point for point in of_chip if point.leans_on_memory is memory]
    earned = statistics.earned(here if len(here) >= 8 else of_chip, statistics.ONE_DEVIATION)
    assert uncertainty.relative_uncertainty(chip, 0.5 if memory else 0.0) == pytest.approx(earned, abs=0.001)


def test_rows_that_were_not_used_are_covered_about_as_claimed() -> None:
    assert 0.5 <= statistics.covered(VALIDATION, claimed) <= 0.9
    assert 0.75 <= statistics.covered(VALIDATION, lambda point: claimed(point, 2)) <= 1


@pytest.mark.parametrize("factor", [0.3, 6])
def test_a_wrong_claim_is_found_out(factor: float) -> None:
    assert not 0.5 <= statistics.covered(VALIDATION, lambda point: claimed(point, factor)) <= 0.9


def test_an_unseen_chip_gets_what_all_chips_show() -> None:
    assert uncertainty.relative_uncertainty("v4", 0) == uncertainty.UNSEEN_ERROR
    assert pytest.approx(statistics.earned(FIT, statistics.ONE_DEVIATION), abs=0.001) == uncertainty.UNSEEN_ERROR


def test_old_records_without_the_number_keep_theirs() -> None:
    (default,) = (f.default for f in Simulation.__dataclass_fields__.values() if f.name == "relative_uncertainty")
    assert default == 0.02


def test_what_is_not_understood_doubles_the_plus_minus() -> None:
    known = uncertainty.plus_minus_seconds(1e-3, 0.05, is_understood=True)
    assert known == pytest.approx(0.05 * 1e-3)
    assert uncertainty.plus_minus_seconds(1e-3, 0.05, is_understood=False) == 2 * known
