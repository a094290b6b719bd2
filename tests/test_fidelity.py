"""The statistics behind docs/FIDELITY.md, on made-up measurements; and the claims in code against the page."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.records import Simulation
from harness.simulate.module import RELATIVE_ERROR
from harness.simulate.profiled import Measurement

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
fidelity = pytest.importorskip("fidelity")

ROW = {"chip_dir": "tpu_v5", "Dqk": "128", "causal": "0", "layouts": "111", "exp_sched": "0", "spread_pct": "0.1"}


def made_up(how: Measurement, rows: int = 30) -> tuple[list[dict[str, str]], list[object]]:
    """Rows whose published times follow exactly from their simulations under `how`."""
    random = np.random.default_rng(0)
    published, results = [], []
    for _ in range(rows):
        seconds, copy, border = random.uniform(1e-4, 5e-3), random.uniform(0, 2e-4), random.uniform(1e-5, 4e-4)
        results.append(
            fidelity.Result(
                seconds=seconds + copy,
                result_copy_seconds=0.0,
                argument_copy_seconds=copy,
                boundary_pass_seconds=border,
                steps=1,
                unknown=(),
            )
        )
        measured = seconds + how.fixed_seconds + how.argument_copy_share * copy + how.boundary_passes * border
        published.append(ROW | {"median_ms": str(measured * 1e3)})
    return published, results


def test_the_measurements_constants_are_found_again() -> None:
    how = Measurement(boundary_passes=1.3, fixed_seconds=30e-6, argument_copy_share=0.2)
    table = fidelity.compare(*made_up(how))
    assert table.fitted.boundary_passes == pytest.approx(1.3, rel=0.01)
    assert table.fitted.fixed_seconds == pytest.approx(30e-6, abs=1e-6)
    assert table.fitted.argument_copy_share == pytest.approx(0.2)
    assert np.abs(table.errors(held_out=True)).max() < 1e-6
    assert np.abs(table.errors()).max() > 1e-3, "the constants in use are others"


def test_a_row_that_is_far_off_does_not_move_the_others() -> None:
    published, results = made_up(Measurement())
    published[3]["median_ms"] = str(float(published[3]["median_ms"]) * 2)
    table = fidelity.compare(published, results)
    errors = np.abs(table.errors(held_out=True))
    assert errors[3] == pytest.approx(0.5, abs=0.01)
    assert np.delete(errors, 3).max() < 1e-6


def test_pairs_share_their_common_error() -> None:
    published, results = made_up(Measurement())
    for row in published:
        row["median_ms"] = str(float(row["median_ms"]) * 1.3)
    table = fidelity.compare(published, results)
    assert fidelity.pair_error(table, published) == pytest.approx(0, abs=1e-9)


def test_weighted_quantiles() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0])
    assert fidelity.quantile(values, weights, 0.5) == 2
    assert fidelity.quantile(values, np.array([9.0, 0.5, 0.5]), 0.5) > 2.5


def test_what_the_code_claims_is_what_the_page_shows() -> None:
    page = (ROOT / "docs" / "FIDELITY.md").read_text(encoding="utf-8")
    held_out = page.partition("Cross-validated")[2]
    overall = re.search(r"\| all +\| +66 +\| +([\d.]+) % +\| +([\d.]+) % ", held_out)
    assert overall is not None
    assert float(overall[2]) / 100 <= RELATIVE_ERROR
    pairs = re.search(r"is predicted to ([\d.]+) %", page)
    assert pairs is not None
    (default,) = (f.default for f in Simulation.__dataclass_fields__.values() if f.name == "relative_uncertainty")
    assert float(pairs[1]) / 100 == pytest.approx(default, abs=0.003)
