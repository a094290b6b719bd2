"""Edits of one constant: the advised edits, how simulating them ranks the hints, and a simulation of real ones."""

from dataclasses import replace
from pathlib import Path

import pytest
from evidence_examples import V5E, advised, evidence
from loop_fixtures import committed_contest
from rule_examples import saved

from harness import contest as contests
from harness.advice import diagnose
from harness.advice.edits import SimulatedEdits, is_made_by, saving_nothing
from harness.advice.report import report
from harness.candidate import Candidate
from harness.loop import edits
from harness.loop.bench import Bench
from harness.records import Edit
from harness.render.hints import gain_text

TEMPLATE = saved("naive-128x256-v5e")
QUERIES = Edit(window="q", axis=-2, size=128, new=512)
FIGURES = report(TEMPLATE, V5E)
KEYS = Edit(window="k", axis=-2, size=256, new=1024)


def simulate(edit: Edit, ratio: float | None, constant: str = "B") -> SimulatedEdits:
    return SimulatedEdits(constant=constant, old=str(edit.size), new=str(edit.new), edits=(edit,), time_ratio=ratio)


def test_the_query_block_is_offered_though_another_bound_leads() -> None:
    """64 times the least traffic, at a quarter of the bandwidth: latency-bound."""
    assert FIGURES.regime == "latency-bound"
    assert (FIGURES.hbm_bytes or 0) / FIGURES.minimum_hbm_bytes == pytest.approx(64.5)
    assert set(diagnose.edits(TEMPLATE, FIGURES)) == {QUERIES, KEYS}
    (hint,) = [hint for hint in advised(TEMPLATE) if hint.rule == "re-reads"]
    assert "raise the query block (rows of q's block, now 128) to 512: 4x fewer re-reads" in hint.suggestion
    assert hint.gain is None


def test_re_reads_near_the_least_or_far_above_the_ridge_are_not_offered() -> None:
    few = evidence(7e-3, bq=1024)
    assert not any(hint.rule == "re-reads" for hint in advised(few))
    assert any(hint.rule == "re-reads" for hint in advised(evidence(7e-3, bq=256)))


def test_a_simulated_edit_takes_the_place_of_a_bound_and_ranks_the_hints() -> None:
    asked = (simulate(QUERIES, 0.513, "BQ"), simulate(KEYS, 0.6, "BKV"))
    first, second, *_ = diagnose.hints(TEMPLATE, FIGURES, simulated=asked)
    assert first.rule == "re-reads"
    assert first.gain == pytest.approx(0.487)
    assert gain_text(first) == "48.7% less time (simulated edit: BQ 128 -> 512)"
    assert gain_text(second) == "40.0% less time (simulated edit: BKV 256 -> 1024)"
    assert "raise the key/value block" in second.suggestion


def test_an_edit_that_brings_nothing_is_not_offered() -> None:
    hints = diagnose.hints(TEMPLATE, FIGURES, simulated=(simulate(QUERIES, 1.02), simulate(KEYS, None)))
    assert not any(hint.rule == "re-reads" for hint in hints)
    assert any("raise the key/value block" in hint.suggestion and hint.gain is None for hint in hints)


def test_edits_that_save_nothing_are_counted_and_named() -> None:
    useless = (simulate(QUERIES, 1.011, "BQ"), simulate(KEYS, 0.997, "BKV"))
    assert saving_nothing(useless) == (
        "2 suggested edits were simulated and save nothing worth an attempt: BQ 128 -> 512 (+1.1%), "
        "BKV 256 -> 1024 (-0.3%)"
    )
    assert saving_nothing(useless[:1]).startswith("1 suggested edit was simulated and saves nothing")
    assert saving_nothing((simulate(QUERIES, 0.99), simulate(KEYS, None))) == ""


def test_a_finding_whose_edits_save_nothing_is_left_out_even_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = (simulate(QUERIES, 1.02), simulate(KEYS, 1.03))
    cases = [case for case in diagnose.findings(diagnose.observe(TEMPLATE, FIGURES, 7e-3)) if case[1].edits]
    assert cases
    monkeypatch.setattr(diagnose, "findings", lambda seen: tuple(cases))
    assert diagnose.hints(TEMPLATE, FIGURES, simulated=slower) == ()


def test_an_edit_is_made_where_the_program_has_that_block() -> None:
    assert is_made_by(Edit(window="q", axis=-2, size=64, new=128), evidence(1e-3))
    assert not is_made_by(QUERIES, evidence(1e-3))
    assert not is_made_by(QUERIES, evidence(1e-3, trace=None))
    assert not is_made_by(Edit(window="q", axis=-5, size=64, new=128), evidence(1e-3))


@pytest.mark.slow
def test_the_edits_of_the_template_are_compiled_and_simulated(tmp_path: Path) -> None:
    """BQ 128 -> 512 saves nearly half; constants are found by their effect on the blocks."""
    contest = contests.load(committed_contest(tmp_path / "contest"))
    kernel = Candidate(text=contest.candidate().text.replace(b"BKV = 256", b"BKV = 128") + b"\nOTHER = 128\n")
    base = Bench(contest=contest, checked=False).judge(kernel, "judge")
    asked = (QUERIES, replace(KEYS, size=128, new=512))
    simulated = edits.simulate(Bench(contest=contest), kernel, base, asked)
    made = {edit.constant: (edit.edits, edit.time_ratio or 0.0) for edit in simulated}
    assert made["BQ"][0] == (asked[0],)
    assert made["BKV"][0] == (asked[1],)
    assert made["OTHER"][0] == ()
    assert made["OTHER"][1] == pytest.approx(1.0)
    assert made["BQ"][1] < 0.8
    assert edits.kept_edits(contest, kernel, asked) == simulated
    # For another kernel, they are times of sets of constants.
    assert edits.timed_edits(contest, kernel) == ()
    (timed,) = edits.timed_edits(contest, Candidate(text=kernel.text + b"\n"))
    assert timed.by == "diagnose"
    assert timed.times[0] == (dict(kernel.tunable), 1.0)
    assert ({**dict(kernel.tunable), "BQ": "512"}, made["BQ"][1]) in timed.times


@pytest.mark.long
def test_what_was_simulated_is_kept_for_the_same_kernel_and_edits(tmp_path: Path) -> None:
    contest = contests.load(committed_contest(tmp_path / "contest"))
    kernel = contest.candidate()
    # No constant has these sizes, so that nothing is compiled.
    asked = (replace(QUERIES, size=100), replace(KEYS, size=200))
    assert edits.kept_edits(contest, kernel) is None
    assert edits.simulate(Bench(contest=contest), kernel, TEMPLATE, asked[:1]) == ()
    assert edits.kept_edits(contest, kernel) == edits.kept_edits(contest, kernel, asked[:1]) == ()
    assert edits.kept_edits(contest, kernel, asked) is None
    assert edits.kept_edits(contest, Candidate(text=kernel.text + b"\n"), asked[:1]) is None
    assert edits.kept_edits(contests.load(contest.directory, "v6e"), kernel) is None
