"""`benchmarks/calibrate.py`: planted constants are recovered, and constants that affect no program are called free."""

import dataclasses
import json
import math
from pathlib import Path

import calibrate
import pytest
from schedule_examples import NEWEST, unpack

from harness import chips
from harness.chips.row import Calibrated
from harness.dumps.llo import read_module
from harness.hardware import chip
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.module import mean_seconds, prepare

V6E = chip("v6e")
PLANTED = {**calibrate.today("v6e"), "dma_latency_seconds": 550e-9}


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> calibrate.Fit:
    """Two programs whose published times are what they take with another latency of transfers."""
    fits = []
    for name in ("v6e-1024x512-2048", "v6e-128x256-2048"):
        prepared = prepare(read_module(unpack(NEWEST, name, tmp_path_factory.mktemp(name))), V6E, fetched_before=True)
        case = calibrate.Case(row=name, kind=name, chip="v6e", prepared=prepared, measured_seconds=1.0)
        measured = math.exp(calibrate.error(case, PLANTED))
        fits.append(calibrate.Case(row=name, kind=name, chip="v6e", prepared=prepared, measured_seconds=measured))
    return calibrate.Fit(fits, jobs=1)


def test_constants_of_today_are_those_of_the_simulator(tmp_path: Path) -> None:
    prepared = prepare(read_module(unpack(NEWEST, "v6e-128x256-2048", tmp_path)), V6E, fetched_before=True)
    seconds = mean_seconds(prepared, machine_of(V6E), 60.0)
    assert seconds is not None
    case = calibrate.Case(row="r", kind="k", chip="v6e", prepared=prepared, measured_seconds=seconds)
    assert calibrate.error(case, calibrate.today("v6e")) == pytest.approx(0)


@pytest.mark.long
def test_a_planted_latency_is_nearer_than_todays(fit: calibrate.Fit) -> None:
    best, left_out = fit.best(fit.prior)
    planted = PLANTED["dma_latency_seconds"]
    assert max(map(abs, fit.errors(PLANTED))) == pytest.approx(0, abs=1e-9)
    assert fit.unlikely(fit.errors(best)) + fit.far(best) < fit.unlikely(fit.errors(fit.prior))
    assert set(left_out) == {"v6e-1024x512-2048", "v6e-128x256-2048"}
    assert abs(best["dma_latency_seconds"] - planted) < abs(fit.prior["dma_latency_seconds"] - planted)


def test_what_holds_a_constant_is_said_and_what_none_feels_goes_as_far_as_the_prior(fit: calibrate.Fit) -> None:
    low, high, holder = fit.interval("dma_latency_seconds")
    # Published times are those of a shorter latency, so that today's can be moved further down than up.
    assert low < PLANTED["dma_latency_seconds"] < fit.prior["dma_latency_seconds"] < high
    assert holder == "v6e-128x256-2048"
    assert fit.is_likely({"dma_latency_seconds": low})
    assert not fit.is_likely({"dma_latency_seconds": 1.1 * high})
    low, high, holder = fit.interval("transfer_bytes_per_cycle")
    assert (low, high) == calibrate.prior_interval("transfer_bytes_per_cycle", 1024)
    assert holder == ""


@pytest.mark.long
def test_the_page_has_every_constant_and_operation(fit: calibrate.Fit) -> None:
    result = calibrate.calibrate(fit)
    text = calibrate.page({"v6e": {**result, "intervals": calibrate.intervals(fit, result["constants"])}})
    assert all(f"| `{name}`" in text for name in calibrate.SPACE)
    assert "| v6e-128x256-2048 " in text
    assert set(result["operations"]["v6e-128x256-2048"]) == {"rows", "today", "fitted", "left out", "matmul_queue 0"}


def test_the_page_is_what_its_figures_give() -> None:
    results = json.loads(calibrate.RESULTS.read_text(encoding="utf-8"))
    assert calibrate.page(results) == calibrate.PAGE.read_text(encoding="utf-8")
    # The fitted constants are not the ones in use: the page compares both.
    for chip_name, result in results.items():
        todays = {name: value for name, value in calibrate.today(chip_name).items() if name in calibrate.SPACE}
        assert {name: constant["today"] for name, constant in result["constants"].items()} == todays


@pytest.mark.parametrize("name", [name for name in chips.names() if chips.row(name).units is not None])
def test_what_a_verdict_doubts_is_what_the_fit_leaves_open(name: str) -> None:
    """The intervals of a chip's row are the page's; those of a chip without published times are the prior's."""
    intervals = dataclasses.asdict(chips.row(name).intervals)
    results = json.loads(calibrate.RESULTS.read_text(encoding="utf-8")).get(name)
    assert (results is not None) == (chips.row(name).calibrated is not None)
    for constant, value in dataclasses.asdict(Calibrated()).items():
        if constant in calibrate.SWITCHES:
            value = getattr(chips.row(name).calibrated or Calibrated(), constant)
            is_open = results is None or results["intervals"]["switches"][constant]
            expected = calibrate.SWITCHES[constant] if is_open else (value, value)
        elif results is None:
            expected = calibrate.prior_interval(constant, value)
        else:
            ends = results["intervals"]["constants"][constant]
            expected = ends["low"], ends["high"]
        assert intervals[constant] == pytest.approx(expected, rel=0.005), constant
