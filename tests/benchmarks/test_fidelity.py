"""The statistics behind benchmarks/FIDELITY.md, on made-up measurements; and the claims in code against the page."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.hardware import chip
from harness.judge.simulate import machine_variants
from harness.judge.simulate.machine import machine_of
from harness.judge.simulate.profiled import Measurement

ROOT = Path(__file__).parents[2]
statistics = pytest.importorskip("fidelity_statistics")
fidelity = pytest.importorskip("fidelity")

ROW = {
    "chip_dir": "tpu_v5",
    "Dqk": "128",
    "causal": "0",
    "layouts": "111",
    "exp_sched": "0",
    "spread_pct": "0.1",
}
SHARED = statistics.KINDS[statistics.REFERENCE]


def made_up(how: Measurement, rows: int = 30) -> tuple[list[dict[str, str]], list[object]]:
    """Rows whose published times follow exactly from their simulations under `how`."""
    random = np.random.default_rng(0)
    published, results = [], []
    for _ in range(rows):
        seconds, copy, border = random.uniform(1e-4, 5e-3), random.uniform(0, 2e-4), random.uniform(1e-5, 4e-4)
        results.append(
            statistics.Result(
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


def times(published: list[dict[str, str]], factors: list[float]) -> list[dict[str, str]]:
    """The rows with each published time multiplied."""
    return [
        row | {"median_ms": str(float(row["median_ms"]) * factor)}
        for row, factor in zip(published, factors, strict=True)
    ]


def test_the_measurements_constants_are_found_again() -> None:
    how = Measurement(boundary_passes=1.3, fixed_seconds=30e-6, argument_copy_share=0.2)
    table = statistics.compare(*made_up(how))
    assert table.fitted.boundary_passes == pytest.approx(1.3, rel=0.01)
    assert table.fitted.fixed_seconds == pytest.approx(30e-6, abs=1e-6)
    assert table.fitted.argument_copy_share == pytest.approx(0.2)
    assert np.abs(table.errors(held_out=True)).max() < 1e-6
    assert np.abs(table.errors()).max() > 1e-3, "the constants in use are others"


def test_a_row_that_is_far_off_does_not_move_the_others() -> None:
    published, results = made_up(Measurement())
    published[3]["median_ms"] = str(float(published[3]["median_ms"]) * 2)
    table = statistics.compare(published, results)
    errors = np.abs(table.errors(held_out=True))
    assert errors[3] == pytest.approx(0.5, abs=0.01)
    assert np.delete(errors, 3).max() < 1e-6


def test_a_row_counts_the_less_the_worse_its_samples_repeat() -> None:
    published, results = made_up(Measurement())
    published[3]["spread_pct"] = "8.9"
    weights = statistics.columns(published, results).weights
    assert weights[3] < 0.1 * weights[4]
    assert weights.mean() == pytest.approx(1)


def test_pairs_share_their_common_error() -> None:
    published, results = made_up(Measurement())
    table = statistics.compare(times(published, [1.3] * len(published)), results)
    found = statistics.pairs(table, published, SHARED)
    assert len(found.errors) == 30 * 29 / 2
    assert found.within(0.9) == pytest.approx(0, abs=1e-9)


def test_pairs_show_the_errors_that_are_not_common() -> None:
    published, results = made_up(Measurement())
    factors = list(np.exp(np.random.default_rng(1).normal(0, 0.02, len(published))))
    table = statistics.compare(times(published, factors), results)
    found = statistics.pairs(table, published, SHARED)
    # Of two independent normal errors of 2 % each.
    assert found.within(statistics.ONE_DEVIATION) == pytest.approx(0.02 * 2**0.5, rel=0.3)
    low, high = statistics.interval(found, statistics.ONE_DEVIATION, draws=200)
    assert low < found.within(statistics.ONE_DEVIATION) < high < 0.06
    held_out = statistics.coverage_without(found, statistics.leave_row_out(found), statistics.ONE_DEVIATION)
    assert held_out == pytest.approx(statistics.ONE_DEVIATION, abs=0.1)


def test_rows_of_different_kinds_make_no_pair() -> None:
    published, results = made_up(Measurement(), rows=4)
    for row, layouts in zip(published, ("111", "111", "121", "222"), strict=True):
        row["layouts"] = layouts
    found = statistics.pairs(statistics.compare(published, results), published, SHARED)
    assert [(int(i), int(j)) for i, j in zip(found.first, found.second, strict=True)] == [(1, 0)]


def test_weighted_quantiles() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0])
    assert statistics.quantile(values, weights, 0.5) == 2
    assert statistics.quantile(values, np.array([9.0, 0.5, 0.5]), 0.5) > 2.5


@pytest.mark.parametrize("name", ["v5p", "v6e", "v7x"])
@pytest.mark.parametrize("constant", machine_variants.CONSTANTS)
def test_every_constant_really_moves(name: str, constant: str) -> None:
    """The table of sensitivities must not show a constant as harmless that rounding left where it was."""
    machine = machine_of(chip(name))
    for factor in machine_variants.FACTORS:
        moved = machine_variants.VARIANTS[f"{constant} x{factor}"](machine)
        for field in machine_variants.CONSTANTS[constant]:
            change = getattr(moved, field) / getattr(machine, field)
            assert (change - 1) * (factor - 1) > 0
            assert abs(change - factor) < 0.1
        rest = {field: getattr(machine, field) for field in machine_variants.CONSTANTS[constant]}
        assert replace(moved, **rest) == machine


def test_every_row_of_the_page_is_a_published_one() -> None:
    page = (ROOT / "benchmarks" / "FIDELITY.md").read_text(encoding="utf-8")
    lines = page.partition("## Each row")[2]
    shown = re.findall(r"^\| (\d+) +\|.*?\| ([\d.]+) ms +\|", lines, re.MULTILINE)
    published = [(str(i), f"{float(row['median_ms']):.3f}") for i, row in enumerate(statistics.rows())]
    assert shown == published
