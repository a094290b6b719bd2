"""How problems and candidates of benchmarks/TABLES.md are chosen, and the page against its figures."""

import dataclasses
import json
from pathlib import Path

import fidelity_rows
import pytest
import tables_candidates as candidates
import tables_page
import tables_statistics as statistics
from fidelity_rows import Row
from tables_candidates import Space
from tables_statistics import Predicted, Problem, Published

PROBLEMS = statistics.problems()
TUNED = [problem for problem in PROBLEMS if not problem.is_rivalry]
TILES = {"tile_m": 256, "tile_k": 512, "tile_n": 1024, "input_buffer_count": 2}
FORMS = (
    {"tile_m": 128},
    {"tile_k": 1024},
    {"tile_n": 512},
    {"tile_m": 512},
    {"tile_m": 512, "tile_k": 1024},
    {"input_buffer_count": 4},
    {"tile_m": 1024, "tile_k": 1024, "tile_n": 2048},
    {"tile_m": 1024, "tile_n": 2048, "input_buffer_count": 4},
    {"tile_m": 512, "tile_k": 2048, "tile_n": 2048},
    {"tile_m": 256, "tile_k": 2048, "tile_n": 2048},
    {"tile_m": 128, "tile_k": 2048, "tile_n": 2048},
)
SPACE = Space(
    configs=tuple(candidates.text_of(TILES | form) for form in ({}, *FORMS)),
    default=candidates.text_of(TILES | {"tile_m": 128, "tile_k": 128, "tile_n": 128}),
)
KEY = {"lhs": "bf16[4096,4096]", "activation": None, "preferred_element_type": None, "return_residuals": False}
ROW = Row(
    chip_dir="tpu_v6_lite",
    operation="pallas_mosaic_tpu_ragged_dot",
    key=json.dumps(KEY),
    config=candidates.text_of(TILES),
)
PREDICTED = Predicted(
    chip="v6e",
    operation=ROW.operation,
    role="published",
    row="a",
    seconds=1.1,
    waits_for_transfers=0.1,
    waits_for_units=0.2,
    config="{}",
    reason="",
)


def problem(*seconds: float | None, roles: str = "published near drawn") -> Problem:
    """A problem with this many candidates."""
    rows = zip("abc", seconds, roles.split(), strict=False)
    return Problem(rows=tuple(dataclasses.replace(PREDICTED, row=n, seconds=s, role=r) for n, s, r in rows))


def published(**seconds: float) -> dict[str, Published]:
    """Times of rows."""
    return {name: Published(seconds=value, spread=0.0, problem="") for name, value in seconds.items()}


def test_beside_the_published_one_lie_those_that_differ_in_one_value_by_one_step() -> None:
    near = candidates.near(TILES, SPACE.configs)
    assert sorted(near) == sorted(candidates.text_of(TILES | form) for form in FORMS if len(form) == 1)
    farther = [*SPACE.configs, candidates.text_of(TILES | {"tile_m": 1024})]
    assert candidates.near(TILES, farther) == near


def test_candidates_begin_with_the_published_and_the_untuned_one_and_hold_none_twice() -> None:
    chosen = candidates.candidates(ROW, SPACE)
    assert [candidate.role for candidate in chosen] == [
        "published",
        "default",
        "near",
        "near",
        "near",
        "drawn",
        "drawn",
    ]
    assert len({candidate.row.config for candidate in chosen}) == len(chosen)
    assert chosen == candidates.candidates(ROW, dataclasses.replace(SPACE, configs=SPACE.configs[::-1]))


def test_where_few_lie_beside_more_are_drawn() -> None:
    lone = dataclasses.replace(ROW, config=candidates.text_of(TILES | {"tile_m": 1024, "tile_k": 4096}))
    assert [candidate.role for candidate in candidates.candidates(lone, SPACE)][2:] == ["drawn"] * 5


def test_tiles_that_cannot_fit_are_no_candidates() -> None:
    assert candidates.is_possible(ROW)
    large = dataclasses.replace(ROW, config=candidates.text_of(TILES | {"tile_k": 4096, "tile_n": 4096}))
    assert candidates.vmem_share(large) > 1
    assert not candidates.is_possible(large)
    assert not candidates.is_likely(dataclasses.replace(ROW, config=SPACE.default))


def test_problems_are_taken_in_turns_by_hash() -> None:
    rows = [dataclasses.replace(ROW, key=f"{n}", chip_dir=chip) for n in range(5) for chip in ("tpu7x", "tpu_v5")]
    order = candidates.in_turns(rows)
    assert [row.chip for row in order] == ["v5p", "v7x"] * 5
    assert order == candidates.in_turns(rows[::-1])


def test_rivals_are_one_problem_whatever_it_says_of_residuals() -> None:
    keys = (json.dumps(KEY | {"return_residuals": residuals, "n": n}) for n in range(40) for residuals in (False, True))
    rivals = candidates.rivals(
        dataclasses.replace(ROW, key=key, operation=operation)
        for key in keys
        for operation in (ROW.operation, candidates.V2)
    )
    assert rivals
    for here in rivals:
        assert here[0].purpose == "validation"
        assert [row.operation for row in here].count(candidates.V2) == 1
        assert len(here) == 2
        assert all(row.purpose != "untouched" for row in here)


def test_flops_of_attention_count_both_products() -> None:
    key = {"q": "bf16[2,1024,8,128]", "k": "bf16[2,2048,8,128]", "v": "bf16[2,2048,8,64]"}
    row = dataclasses.replace(ROW, operation="pallas_mosaic_tpu_flash_attention", key=json.dumps(key))
    assert candidates.flops(row) == 2 * 2 * 8 * 1024 * 2048 * (128 + 64)
    key = {"q": "bf16[8,1024,128]", "k": "bf16[2,2048,128]", "v": "bf16[2,2048,64]"}
    splash = dataclasses.replace(row, operation="pallas_mosaic_tpu_splash_attention_vjp", key=json.dumps(key))
    assert candidates.flops(splash) == 2.5 * 2 * 8 * 1024 * 2048 * (128 + 64)
    assert candidates.flops(ROW) == 0


def test_gaps_and_losses() -> None:
    close = problem(1.1, 1.0, None)
    assert close.gap == pytest.approx(0.1)
    assert close.margin == pytest.approx(1 / 1.1 - 1)
    assert close.over_pick("drawn") is None
    assert problem(None, 1.0).gap is None
    assert problem(None, None).pick is None
    assert close.loss(published(a=1.0)) is None
    rivals = problem(1.1, 1.0, roles="rival rival")
    assert rivals.is_rivalry
    assert rivals.loss(published(a=1.0, b=1.2)) == pytest.approx(0.2)
    assert rivals.loss(published(a=1.0, b=0.9)) == 0
    assert statistics.share([0.01, 0.02, 0.04, 0.5], 0.03) == 0.5


def test_every_published_candidate_was_predicted_before_its_time_was_read() -> None:
    predicted = fidelity_rows.predicted()
    assert len(TUNED) == candidates.KEYS
    for tuned in TUNED:
        published_ones = [row for row in tuned.rows if row.is_published]
        assert published_ones == [tuned.rows[0]]
        assert tuned.rows[0].seconds is None or tuned.rows[0].row in predicted


def test_the_page_shows_its_figures() -> None:
    text = " ".join((Path(__file__).parents[2] / "benchmarks" / "TABLES.md").read_text(encoding="utf-8").split())
    gaps = [problem.gap for problem in TUNED if problem.gap is not None]
    within = f"{100 * statistics.share(gaps, tables_page.WITHIN):.1f} %"
    assert (
        f"On {within} of {len(gaps)} problems, the simulated time of the published configuration is within 3 %" in text
    )
