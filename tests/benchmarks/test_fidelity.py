"""The rows and statistics behind benchmarks/FIDELITY.md: what may be looked at, and the page against its figures."""

import dataclasses
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import fidelity
import fidelity_page
import fidelity_rows
import fidelity_statistics as statistics
import numpy as np
import pytest
from fidelity_rows import Row
from fidelity_statistics import Point

from harness import chips
from harness.chips.row import Calibrated

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "benchmarks" / "FIDELITY.md").read_text(encoding="utf-8")
ROWS_PAGE = (ROOT / "benchmarks" / "FIDELITY_ROWS.md").read_text(encoding="utf-8")
POINTS = statistics.points()
POINT = Point(
    row="r",
    chip="v6e",
    operation="pallas_mosaic_tpu_ragged_dot",
    purpose="validation",
    problem="",
    measured_seconds=1e-3,
    spread=0.0,
    simulated_seconds=1.5e-3,
    predicted_seconds=1.1e-3,
    calls=2,
    waits_for_transfers=0.3,
    waits_for_units=0.1,
)


def row(number: int, operation: str = "normalization") -> Row:
    """A row with a made-up problem."""
    return Row(chip_dir="tpu7x", operation=operation, key=json.dumps({"x": f"bf16[{number}]"}), config="{}")


def test_the_digit_of_the_problems_hash_decides_what_a_row_is_for() -> None:
    purposes = {"fit": "024681", "validation": "ace3", "untouched": "579bdf"}
    seen = set()
    for number in range(200):
        each_row = row(number)
        digit = hashlib.sha256(each_row.key.encode()).hexdigest()[0]
        assert digit in purposes[each_row.purpose]
        seen.add(digit)
    assert len(seen) == 16


def test_twins_are_for_what_the_strictest_of_them_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems that differ in their reduction or residuals compile to nearly the same program."""
    name = "pallas_mosaic_tpu_linear_softmax_cross_entropy_loss"
    variants: dict[str, list[Row]] = {}
    for number in range(200):
        for reduction, residuals in (("mean", True), ("mean", False), ("sum", False)):
            problem = {"x": f"bf16[{number}]", "reduction": reduction, "return_residuals": residuals}
            twin = Row(chip_dir="tpu7x", operation=name, key=json.dumps(problem), config="{}")
            variants.setdefault(str(problem["x"]), []).append(twin)
    everything = [each_row for twins in variants.values() for each_row in twins]
    alone = {each_row.key: fidelity_rows.Row.purpose.fget(each_row) for each_row in everything}  # type: ignore[attr-defined]
    monkeypatch.setattr(fidelity_rows, "rows", lambda: iter(everything))
    fidelity_rows._twins.cache_clear()
    try:
        order = ["fit", "validation", "untouched"]
        for twins in variants.values():
            strictest = max((alone[each_row.key] for each_row in twins), key=order.index)
            assert {each_row.purpose for each_row in twins} == {strictest}
    finally:
        fidelity_rows._twins.cache_clear()
    assert len(set(alone.values())) == 3


def fit_of_attention(digit: str) -> bool:
    """True if an unknown problem whose hash begins with this digit is for fitting."""
    keys = (json.dumps({"x": number}) for number in range(999))
    key = next(key for key in keys if hashlib.sha256(key.encode()).hexdigest()[0] == digit)
    return fidelity_rows._by_digit("pallas_mosaic_tpu_flash_attention", key) == "fit"


def test_of_attention_only_the_rows_that_were_published_here_and_those_of_digit_1_are_for_fitting() -> None:
    key: dict[str, object] = {"q": "bf16[4,4096,16,128]", "k": "bf16[4,4096,16,128]", "v": "bf16[4,4096,16,128]"}
    key |= {"mask": {"causal_mask": None}, "return_residuals": False}
    config: dict[str, object] = {
        "block_q": 1024,
        "block_kv": 4096,
        "block_kv_compute": 256,
        "use_experimental_scheduler": True,
    }
    config |= {"q_layout": 1, "k_layout": 2, "v_layout": 1}
    name = "pallas_mosaic_tpu_flash_attention"
    published = Row(chip_dir="tpu_v5", operation=name, key=json.dumps(key), config=json.dumps(config))
    assert published.purpose == "fit"
    assert {digit for digit in "0123456789abcdef" if fit_of_attention(digit)} == {"1"}
    published = replace(published, key=json.dumps(key | {"dropout_rate": 0.0}))
    assert published.purpose == "fit"
    assert hashlib.sha256(published.key.encode()).hexdigest()[0] != "1"
    for changed in ({"block_q": 2048}, {"v_layout": 2}, {"use_experimental_scheduler": False}):
        assert replace(published, config=json.dumps(config | changed)).purpose != "fit"
    assert replace(published, chip_dir="tpu7x").purpose != "fit"


def test_times_that_must_not_be_read_are_refused() -> None:
    untouched = next(each_row for each_row in map(row, range(99)) if each_row.purpose == "untouched")
    validation = next(each_row for each_row in map(row, range(99)) if each_row.purpose == "validation")
    for each_row in (untouched, validation):
        with pytest.raises(PermissionError, match=each_row.purpose):
            fidelity_rows.measured(each_row)


def test_every_validation_row_of_the_page_was_predicted() -> None:
    predicted = fidelity_rows.predicted()
    shown = {point.row: point for point in POINTS if point.purpose == "validation"}
    assert shown
    assert set(shown) <= set(predicted)
    for name, point in shown.items():
        assert point.predicted_seconds == pytest.approx(predicted[name][0], rel=1e-5)
        assert predicted[name][1] == fidelity_rows.MODELS[point.chip]
        assert point.simulated_seconds == pytest.approx(predicted[name][0], rel=fidelity._AS_PREDICTED)


def test_a_validation_row_is_judged_by_its_prediction() -> None:
    assert POINT.error == pytest.approx(0.1)
    assert replace(POINT, predicted_seconds=None).error == pytest.approx(0.5)
    assert POINT.kind == "ragged dot"
    assert replace(POINT, operation="pallas_mosaic_tpu_flash_attention_vjp").kind == "attention backward"


def test_rows_to_check_come_from_each_chip_and_operation_in_turn() -> None:
    other = "pallas_mosaic_tpu_flash_attention"
    config = {"block_q": 512, "block_kv": 512, "block_kv_compute": 512}
    made = [
        Row(chip_dir="tpu_v6_lite", operation=other, key=f"{n}", config=json.dumps(config | {"block_q": 512 * n}))
        for n in (2, 1)
    ] + [row(1), row(2)]
    by_name = {each_row.name: each_row for each_row in made}
    points = [replace(POINT, row=each_row.name, operation=each_row.operation) for each_row in made]
    ordered = sorted(points, key=fidelity._turn(points, by_name))
    assert [point.row for point in ordered] == [made[place].name for place in (2, 1, 3, 0)]


def test_rows_that_todays_compiler_makes_otherwise_are_left_out() -> None:
    chunked = "chunked_xla_linear_softmax_cross_entropy_loss"
    gradient = Row(chip_dir="tpu7x", operation=chunked, key='{"return_residuals": true}', config="{}")
    assert gradient.is_compiled_otherwise
    assert not replace(gradient, key='{"return_residuals": false}').is_compiled_otherwise
    assert not replace(gradient, operation="normalization").is_compiled_otherwise
    gated = replace(gradient, operation="gated_linear_unit", key='{"x": "bf16[512,64]"}')
    assert gated.is_compiled_otherwise
    assert not replace(gated, key='{"x": "f32[512,64]"}').is_compiled_otherwise
    assert not any(point.operation == chunked and "return_residuals" in point.problem for point in POINTS)


def test_the_page_shows_its_figures() -> None:
    for purpose, title in (("validation", "## Validation rows"), ("fit", "## Rows that constants were fitted to")):
        table = f"{PAGE}{ROWS_PAGE}".partition(title)[2].partition("\n## ")[0]
        here = [point for point in POINTS if point.purpose == purpose]
        for kind, rows in statistics.grouped(here, lambda point: point.kind).items():
            chip_summary = statistics.summary(rows)
            lines = [line for line in table.splitlines() if line.startswith(f"| {kind} ")]
            # The page that people read has no sum for an operation that only one chip has.
            line = next((line for line in lines if "| all " in line), lines[0])
            assert "| all " in line or len({point.chip for point in rows}) == 1
            cells = [cell.strip() for cell in line.split("|")]
            assert cells[3] == str(chip_summary.rows)
            # The stored figures are rounded; the page rounds them once more.
            shown = [float(cell.removesuffix(" %")) for cell in cells[4:6]]
            assert shown == pytest.approx([100 * chip_summary.median, 100 * chip_summary.most], abs=0.051)


def test_the_pages_are_what_their_figures_give() -> None:
    others = statistics.others()
    assert fidelity_page.rows_page(POINTS, others) == ROWS_PAGE
    assert fidelity_page.page(POINTS, others.compiler) == PAGE


def test_every_constant_that_is_fitted_is_on_the_page_with_its_interval_on_each_chip() -> None:
    lines = {line.split("|")[1].strip(): line for line in PAGE.splitlines() if line.startswith("| `")}
    simulated = [chip for chip in map(chips.row, chips.names()) if chip.calibrated is not None]
    for field in dataclasses.fields(Calibrated):
        cells = [cell.strip() for cell in lines[f"`{field.name}`"].split("|")[2:-1]]
        scale = 1e9 if field.name.endswith("_seconds") else 1
        for cell, chip in zip(cells, simulated, strict=True):
            value, low, high = (float(number) for number in re.findall(r"[0-9.]+", cell))
            shown = [number / scale for number in (value, low, high)]
            expected = getattr(chip.calibrated, field.name), *getattr(chip.intervals, field.name)
            assert shown == pytest.approx(expected, rel=1e-3), (field.name, cell)
        assert f"| `{field.name}` " in ROWS_PAGE


def test_the_page_that_people_read_fits_into_two_screens() -> None:
    lines = PAGE.splitlines()
    assert len(lines) <= 122
    assert max(map(len, lines)) <= 120


def test_every_kind_of_rows_that_is_not_explained_has_rows() -> None:
    kinds = [(names, kind) for names, of_chips in fidelity_page._OFF_ALIKE.items() for kind in of_chips]
    assert kinds
    for names, (name, *patterns) in kinds:
        errors = fidelity_page.off_alike(POINTS, names, *patterns)
        assert errors, name
        assert f"{name} ({len(errors)}: " in " ".join(PAGE.split())


def test_sealed_errors_are_those_of_the_history() -> None:
    """The table of the history is written by hand, and so is the file that the pages are made from."""
    history = (ROOT / "benchmarks" / "CALIBRATION_HISTORY.md").read_text(encoding="utf-8")
    section = history.partition("## Predictions of times that nobody had read")[2].partition("\n## ")[0]
    whole, *errors = statistics.sealed()
    assert f"Of the device times that tokamax publishes, {whole.rows} were" in section
    assert fidelity_page._in_words(whole) in " ".join(section.split())
    assert f"{whole.within_one} % of the errors were within the uncertainty" in section
    assert f"{whole.within_two} % within twice that" in section
    for place, name in enumerate(("median", "most")):
        shown = {}
        for line in section.splitlines():
            if line.startswith("| ") and " % " in line:
                label, *cells = (cell.strip() for cell in line.strip("|").split("|"))
                operation, _, chip = label.partition(", ")
                shown[operation, chip or "all"] = cells[place].split()[0]
                by_chip = re.findall(r"(v\d\w) ([\d.]+) %", cells[place])
                shown |= {(operation, chip): error for chip, error in by_chip}
        assert shown == {(each.operation, each.chip): getattr(each, name) for each in errors}


def test_rows_of_the_pages_are_kept_where_the_others_of_their_chip_come_out_as_they_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = [replace(POINT, row=name) for name in ("a", "b")]
    monkeypatch.setattr(statistics, "points", lambda: shown)
    anew = [replace(shown[0], measured_seconds=2e-3), replace(POINT, row="c", chip="v7x")]
    assert fidelity.with_kept(anew) == [*anew, shown[1]]
    changed = [replace(shown[0], simulated_seconds=1.6e-3)]
    assert fidelity.with_kept(changed) == changed
    with pytest.raises(SystemExit, match="some rows of v6e in the cache"):
        fidelity.with_kept(anew[1:])


def test_what_has_fewer_than_five_validation_rows_is_said_to_be_unvalidated() -> None:
    rows = [replace(POINT, problem="f32[] bf16[1024,8] f32[8]")] * 5 + [
        replace(POINT, problem="f32[8]", chip="v5p")
    ] * 4
    sentence = fidelity_page._unvalidated(rows)
    few = {
        chip_name: names.split(", ") for chip_name, _, names in (part.partition(": ") for part in sentence.split("; "))
    }
    # Kinds that no chip has enough of are named once, and v6e lacks no other: it has five bfloat16 products.
    assert set(few) == {"all chips", "v5e", "v5p", "v7x"}
    assert few["v5e"] == few["v5p"] == ["everything"]
    assert {"normalization", "f32"} <= set(few["all chips"])
    assert not {"ragged dot", "bf16"} & set(few["all chips"])


def test_errors_are_summed_up() -> None:
    errors = (0.01, -0.02, 0.03, -0.04, 0.5)
    rows = [replace(POINT, measured_seconds=t, predicted_seconds=(1 + e) * t) for t, e in enumerate(errors, 1)]
    figures = statistics.summary(rows)
    assert (figures.rows, figures.median, figures.worst, figures.bias) == (5, *map(pytest.approx, (0.03, 0.5, 0.01)))
    assert statistics.covered(rows, lambda point: 0.035) == pytest.approx(0.6)


def test_the_scatter_of_errors_is_found_by_chip_and_by_operation_called() -> None:
    chance = np.random.default_rng(0)
    rows = []
    for number in range(400):
        chip_name, scale = (("v6e", 0.05), ("v7x", 0.02))[number % 2]
        calls = 1 if number % 4 < 2 else 100
        noise = np.hypot(scale, 1e-6 * calls / 1e-3) * chance.standard_t(4)
        point = replace(
            POINT, chip=chip_name, calls=calls, simulated_seconds=1e-3, measured_seconds=1e-3 / np.exp(noise)
        )
        rows.append(replace(point, predicted_seconds=None))
    scatter = statistics.spread(rows)
    assert scatter.by_chip == {"v6e": pytest.approx(0.05, rel=0.25), "v7x": pytest.approx(0.02, rel=0.25)}
    assert scatter.operation_seconds == pytest.approx(1e-6, rel=0.25)
    # However exact the rows are, short programs get their fixed part of the uncertainty.
    exact = statistics.spread([replace(point, measured_seconds=point.simulated_seconds) for point in rows])
    assert exact.operation_seconds == pytest.approx(0.25e-6)
    assert scatter.of(rows[0]) == pytest.approx(np.hypot(scatter.by_chip["v6e"], scatter.operation_seconds / 1e-3))


def test_a_left_out_operation_is_judged_by_what_the_others_let_expect() -> None:
    chance = np.random.default_rng(1)
    kinds = ("pallas_mosaic_tpu_ragged_dot", "normalization")
    rows = []
    for number in range(80):
        scale = 0.2 if number % 2 else 0.02
        seconds = 1e-3 * np.exp(scale * chance.standard_normal())
        rows.append(replace(POINT, operation=kinds[number % 2], measured_seconds=seconds, simulated_seconds=1e-3))
    rows = statistics.as_of_today(rows)
    within = {kind: [judged for judged in statistics.left_out(rows) if judged[0].operation == kind] for kind in kinds}
    assert np.mean([first for _, first, _ in within[kinds[0]]]) > 0.95
    assert np.mean([second for *_, second in within[kinds[1]]]) < 0.5


def test_a_score_that_one_more_row_keeps_within_is_no_mere_quantile() -> None:
    assert statistics.expected(np.arange(1.0, 10.0), 0.68) == 7
    assert statistics.expected(np.arange(1.0, 4.0), 0.95) == 3


def test_pairs_are_one_problem_by_two_operations_on_one_chip() -> None:
    here = replace(POINT, problem="bf16[1]")
    other = replace(here, operation="pallas_mosaic_tpu_v2_ragged_dot", predicted_seconds=1.2e-3)
    for stranger in (replace(other, chip="v7x"), replace(other, problem="bf16[2]"), here):
        assert statistics.rivals([here, stranger]) == []
    ((a, b),) = statistics.rivals([here, other])
    assert statistics.pair_error(a, b) == pytest.approx(np.log(1.1 / 1.2))
