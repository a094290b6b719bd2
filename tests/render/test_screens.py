"""Every screen as a person sees it: the wording of each stands in one file of `__snapshots__`.

A better sentence is one change there: `./ratchet.sh test tests/render/test_screens.py --snapshot-update -n 0`.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import verb_examples
from breakdown_examples import breakdown
from evidence_examples import V5E, advised, evidence, failed, measured
from narrowing import present
from screen_examples import CHAMPION, better, judged, printed, shown, status, story, table, taken_apart
from state_examples import KERNEL, row, seen
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from harness.advice.report import advise, report
from harness.candidate import Candidate
from harness.judge.verdict.decision import decide
from harness.loop.search_state import search_state
from harness.records import Audit, Finding, Policy, ScreenedSetting, Sweep, SweepResult
from harness.records.selftest import Planted, PlantedResult, PlantedVerdict, Refusal
from harness.render import champions, gate, hints, lines, review, validation
from harness.render.ablation import ablation_blocks
from harness.render.comparison import bisection_blocks, comparison_blocks
from harness.render.report_text import View, judge_blocks, report_blocks, show_blocks
from harness.render.results import results_table
from harness.render.search_state import search_state_blocks
from harness.render.sections import screen
from harness.render.selftest import selftest_blocks
from harness.render.status_text import status_blocks
from harness.render.sweep import sweep_blocks

SOURCE = "import jax\n\nscores = dot(q, k)\n\n    weights = exp(scores - new_max)\n"
DIFF = "--- a/kernel.py\n+++ b/kernel.py\n-BQ = 128\n+BQ = 2048\n"


class Screens(SingleFileSnapshotExtension):
    """One text file for each screen."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


def baseline() -> str:
    attempt, judged_report = judged(CHAMPION, None, number=1, kind="baseline", champion=None, hypothesis="first")
    return screen(report_blocks(attempt, judged_report, advise(attempt.evidence, judged_report), None), 100)


def with_lines(full: bool) -> str:
    attempt, judged_report = judged(taken_apart())
    view = View(files=Candidate(text=SOURCE.encode()).lines, full=full)
    return screen(report_blocks(attempt, judged_report, advise(attempt.evidence, judged_report), None, view), 100)


def show() -> str:
    attempt, judged_report = judged(better(), settings=(("BQ", "2048"),))
    return screen(show_blocks(attempt, judged_report, advise(attempt.evidence, judged_report), DIFF), 100)


def judged_alone(source: str) -> str:
    candidate = measured(2.16e-3, simulation=None)
    if source == "cpu":
        candidate = replace(candidate, latency=replace(present(candidate.latency), source="measured cpu"))
    computed, verdict = report(candidate, V5E), decide(candidate, None, None, Policy(), V5E)
    return screen(judge_blocks(candidate, computed, advise(candidate, computed), verdict), 100)


def next_step() -> str:
    rows = [row(1, "accept", kind="baseline"), row(2), row(3, "failed", None, failure_kind="vmem-exceeded")]
    kernels = {1: KERNEL, 2: KERNEL.replace(b"BQ = 128", b"BQ = 256"), 3: KERNEL.replace(b"BKV = 256", b"BKV = 4096")}
    return screen(search_state_blocks(search_state(seen(rows, kernels))), 100)


def swept() -> str:
    times = {("128", "256"): 4e-3, ("128", "512"): 2e-3, ("256", "256"): 1e-3, ("256", "512"): None}
    screened = tuple(
        ScreenedSetting(
            settings=(("BQ", bq), ("BKV", bkv)),
            seconds=seconds,
            failure_kind="" if seconds else "vmem-exceeded",
            message="" if seconds else "the kernel needs 18.2 MiB of VMEM, 16 MiB are there",
        )
        for (bq, bkv), seconds in times.items()
    )
    sweep = Sweep(
        parameters=(("BQ", ("128", "256")), ("BKV", ("256", "512"))),
        source="simulated",
        chip="v5e",
        screened=screened,
        champion=2,
        champion_seconds=0.0009,
    )
    outcome = SweepResult(
        hypothesis="larger",
        sweep=sweep,
        best=(("BQ", "256"), ("BKV", "256")),
        attempt=3,
        outcome="accept",
        why_none="",
        seconds=12.0,
        least_gain=0.036,
    )
    return screen(sweep_blocks(outcome), 100)


def audited(*findings: Finding) -> str:
    audit = Audit(
        contest="root",
        log_commits=4,
        records=4,
        kernels=4,
        accepts=2,
        files=4,
        findings=findings,
        notes=("the log is on no remote",),
    )
    return screen(review.audit_blocks(audit), 100)


def selftested() -> str:
    bad = Planted(
        name="halved", what="Halves the result.", row="1", expected=(Refusal(stage="correctness", kind="wrong-result"),)
    )
    good = Planted(name="plain", what="A plain kernel.", row="-", expected=())
    wrong = PlantedVerdict(outcome="accept", refusal=None, message="")
    results = [
        PlantedResult(planted=kernel, judgement=wrong, seconds=time) for kernel, time in ((good, 6.0), (bad, 7.0))
    ]
    return screen(selftest_blocks(results, 13.0), 100)


TROUBLED = status(champion=None, dirty_judge_files=("prepare.py",), log="not pushed", messages=("recovered attempt 5",))
SCREENS: dict[str, Callable[[], str]] = {
    "accepted": lambda: printed(better(), expected_time_ratio=0.7),
    "accepted_full": lambda: printed(better(warnings=("tiling claim: grid (8, 64) stated",)), full=True),
    "baseline": baseline,
    "rejected": lambda: printed(evidence(2.17e-3)),
    "inconclusive": lambda: printed(evidence(None)),
    "failed": lambda: printed(failed(detail="\n".join(f"line {number}" for number in range(30)))),
    "lines_in_the_report": lambda: with_lines(full=False),
    "lines_in_the_full_report": lambda: with_lines(full=True),
    "show": show,
    "judge_measured": lambda: judged_alone("v5e"),
    "judge_on_the_cpu": lambda: judged_alone("cpu"),
    "results": lambda: results_table(shown(tuple(table()), 2), width=100),
    "results_empty": lambda: results_table(shown((), None)),
    "results_story": lambda: results_table(shown(story()[0], 8, story()[1]), width=100),
    "results_all": lambda: results_table(shown(story()[0], 8, story()[1], has_all=True, has_then=True), width=120),
    "status": lambda: screen(status_blocks(status()), 100),
    "status_with_troubles": lambda: screen(status_blocks(TROUBLED), 100),
    "next": next_step,
    "lines": lambda: screen(
        lines.listing(
            taken_apart().simulation,  # type: ignore[arg-type]
            breakdown(),
            Candidate(text=SOURCE.encode()).lines,
            "kernel.py",
        ),
        100,
    ),
    "diagnose": lambda: screen(hints.diagnosis_blocks("kernel.py", report(better(), V5E), advised(better()), ()), 100),
    "sweep": swept,
    "fsck_clean": audited,
    "fsck_finding": lambda: audited(
        Finding(kind="row-differs", where="log commit 0123456789ab", what="two rows differ", remedy="fetch the log")
    ),
    "selftest": selftested,
    "diff": lambda: screen(comparison_blocks(verb_examples.comparison(), full=False), 100),
    "diff_full": lambda: screen(comparison_blocks(verb_examples.comparison(), full=True), 100),
    "bisect": lambda: screen(bisection_blocks(verb_examples.bisection(), full=False), 100),
    "ablate": lambda: screen(ablation_blocks(verb_examples.ablation()), 140),
    "ablate_narrow": lambda: screen(ablation_blocks(verb_examples.ablation()), 80),
    "ci": lambda: screen(gate.gate_blocks(verb_examples.gate()), 100),
    "ci_summary": lambda: gate.markdown(verb_examples.gate()),
    "champions": lambda: screen(champions.champions_blocks(verb_examples.champions()), 100),
    "champions_page": lambda: champions.champions_page(verb_examples.champions()),
    "replay": lambda: screen(review.replay_blocks(verb_examples.replay()), 100),
    "validate": lambda: screen(validation.validation_blocks(verb_examples.validation()), 100),
    "validate_page": lambda: validation.page(verb_examples.validation()),
}


@pytest.mark.parametrize("screen", SCREENS)
def test_screen(screen: str, snapshot: SnapshotAssertion) -> None:
    assert SCREENS[screen]() + "\n" == snapshot(extension_class=Screens)
