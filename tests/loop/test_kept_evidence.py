"""Kept evidence about kernel.py as it stands: a run without checks serves only verbs that look at times."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import committed_contest, copied, ratchet
from narrowing import present

from harness import contest as contests
from harness.advice import dump_directory
from harness.judge.evaluate import evaluation
from harness.ledger import history
from harness.ledger.paths import place_of
from harness.loop import bench
from harness.loop.bench import Bench
from harness.records import Evidence, Failure
from harness.records.cycle_breakdown import LineTime

pytestmark = pytest.mark.long

pytest.importorskip("libtpu", reason="the TPU compiler exists for x86-64 Linux only")


def lines_of(evidence: Evidence) -> tuple[LineTime, ...]:
    return present(present(evidence.simulation).breakdown).lines


def test_evidence_serves_callers_that_ask_for_no_more_than_it_has(tmp_path: Path) -> None:
    contest = contests.load(committed_contest(tmp_path / "contest", 256), None)
    timed = bench.evidence_here(Bench(contest=contest, checked=False))
    assert timed.all_checks == ()
    assert lines_of(timed) == ()
    assert bench.kept_evidence(contest, checked=False) == timed
    assert bench.kept_evidence(contest) is None
    assert bench.kept_evidence(contest, checked=False, with_lines=True) is None
    lined = bench.evidence_here(Bench(contest=contest, checked=False, with_lines=True))
    assert any(line.file == "kernel.py" and line.line for line in lines_of(lined))
    assert present(lined.simulation).seconds == present(timed.simulation).seconds
    # Evidence with lines also serves callers that do not ask for them.
    assert bench.kept_evidence(contest, checked=False, with_lines=True) == lined
    assert bench.kept_evidence(contest, checked=False) == lined
    assert bench.kept_evidence(contest) is None
    checked = bench.evidence_here(Bench(contest=contest))
    assert len(checked.all_checks) > 5
    # Checked evidence serves both.
    assert bench.kept_evidence(contest) == bench.kept_evidence(contest, checked=False) == checked


@pytest.mark.slow
def test_the_champion_is_not_judged_again(tmp_path: Path) -> None:
    folder = committed_contest(tmp_path / "contest", 256)
    contest = contests.load(folder, None)
    assert bench.kept_evidence(contest) is None
    ratchet(folder, "experiment: baseline", "--quiet", expect=0)
    recorded = present(bench.kept_evidence(contest, with_lines=True))
    assert len(recorded.all_checks) > 5
    assert any(line.file == "kernel.py" and line.line for line in lines_of(recorded))
    # Evidence of another text, or without its schedules, is not used.
    kernel = contest.kernel_path.read_text()
    contest.kernel_path.write_text(f"{kernel}\nMORE = 1\n")
    assert bench.kept_evidence(contest) is None
    contest.kernel_path.write_text(kernel)
    assert bench.kept_evidence(contest) == recorded
    shutil.rmtree(folder / "profile_data" / "0001")
    assert bench.kept_evidence(contest) is None
    # The champion's kernel judged again by an attempt is kept like that of `judge`.
    ratchet(folder, "experiment: the champion again", "--quiet", expect=0)
    again = present(bench.kept_evidence(contest, with_lines=True))
    assert len(again.all_checks) > 5
    assert dump_directory.of(again, folder) == (folder / "profile_data" / "judge" / "dumps").resolve()


def test_a_loser_that_was_checked_wholly_is_not_judged_again(judged_contest: Path, tmp_path: Path) -> None:
    folder = copied(judged_contest, tmp_path / "contest")
    contest = contests.load(folder, None)
    ratchet(folder, "experiment: half the block", "--set", "BR=8", "--all-checks", "--quiet", expect=1)
    ratchet(folder, "checkout", "2", expect=0)
    recorded = present(bench.kept_evidence(contest))
    assert recorded.unchecked == ()
    assert len(recorded.all_checks) == len(history.attempt(place_of(folder), 1).evidence.all_checks) > 5
    assert dump_directory.of(recorded, folder) == (folder / "profile_data" / "0002" / "dumps").resolve()


@pytest.mark.parametrize(("failures", "passes"), [(1, True), (2, False)])
def test_a_candidate_is_judged_once_more_if_a_library_of_the_cpu_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, passes: bool
) -> None:
    message = "JaxRuntimeError: INTERNAL: YNNPACK operation failed: unsupported parameter"
    failure = Failure(stage="correctness", kind="crash", message=message)
    real, judgements = evaluation.evaluate, []

    def failing(*arguments: Any) -> Evidence:
        judgements.append(real(*arguments))
        return replace(judgements[-1], failure=failure) if len(judgements) <= failures else judgements[-1]

    monkeypatch.setattr(evaluation, "evaluate", failing)
    contest = contests.load(committed_contest(tmp_path / "contest", 256), None)
    evidence = Bench(contest=contest, checked=False).judge(contest.candidate(), bench.HERE)
    assert (evidence.failure is None) == passes
    assert len(judgements) == 2
