"""The report, line by line: complete, failed, unknown and baseline attempts; widths, scripts and colour."""

import io
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from evidence_examples import V5E, evidence, failed, pallas_call
from narrowing import present
from rich.cells import cell_len
from rule_examples import rowwise, with_parts, with_slots
from screen_examples import CHAMPION, WIDE, better, is_tidy, judged, line, printed, status, taken_apart

from harness.advice.report import report
from harness.advice.simulated_rates import matmul_share, passing_gap
from harness.candidate import Candidate
from harness.judge.evaluate.stages import STAGES
from harness.records import Verdict
from harness.render import layout, report_sections, roofline
from harness.render.layout import wants_colour
from harness.render.progress import STAGE_WORDS, Progress
from harness.render.report_text import View, judge_blocks, report_blocks, show_blocks
from harness.render.sections import screen
from harness.render.status_text import status_blocks
from harness.units import percent


def test_published_lines_are_exact() -> None:
    lines = printed(CHAMPION, champion=None).splitlines()
    assert "RESULT: score=1509.9  latency=2.16ms  util=32.6%  tflops=64.3   [simulated v5e]" in lines
    assert "REGIME: MEMORY-BOUND  BW=61.2%  intensity=128 FLOPs/byte" in lines


def test_a_time_that_assumes_something_says_so() -> None:
    candidate = better()
    words = "assumed, not known: code that depends on a scalar never runs"
    assert words not in printed(candidate)
    assumed = replace(candidate, simulation=replace(present(candidate.simulation), unknown=("vsmask.f32", words)))
    assert f"time {words}" in printed(assumed).splitlines()


def test_default_report_is_one_screen_and_ends_with_hints() -> None:
    lines = printed(better()).splitlines()
    assert len(lines) <= 40
    assert lines[-1] == "the whole report: again --full"
    assert "What to try next:" in lines
    assert not any(line.startswith(("Bandwidth:", "Utilisation:", "Judged in:", "Work in Pallas")) for line in lines)


def test_the_report_says_where_the_cycles_go_in_parts_lines_and_spills() -> None:
    kernel = "import jax\n\nscores = dot(q, k)\n\n    weights = exp(scores - new_max)\n"
    candidate, report = judged(taken_apart())
    files = Candidate(text=kernel.encode()).lines
    glance, lines = (
        screen(report_blocks(candidate, report, (), None, View(files=files, full=full)), 100).splitlines()
        for full in (False, True)
    )
    start = next(place for place, text in enumerate(lines) if text.startswith("Simulated cycles:"))
    shares = [float(number) for number in re.findall(r"(\d+\.\d)%", " ".join(lines[start : start + 2]))]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))
    assert not any(text.startswith("Simulated time:") for text in lines)
    start = next(place for place, text in enumerate(glance) if text.startswith("Simulated cycles:"))
    assert not any("spills executed" in text for text in glance[start:]), "what spilling costs has been said"
    assert len(glance) <= 40
    assert is_tidy("\n".join(glance), 100)


def test_without_a_kernel_the_hottest_lines_are_still_named() -> None:
    lines = printed(taken_apart(), full=True).splitlines()
    assert "Hottest lines:         50.0%  kernel.py:3" in lines
    assert any(text.startswith("schedule  spills executed") for text in lines), "the whole report has every counter"


def test_an_unknown_latency_has_no_counts_of_a_run_that_stopped_half_way() -> None:
    text = printed(evidence(None))
    assert "executed" not in text
    assert "Simulated issue slots" not in text
    assert "    Actual       unknown" in printed(evidence(None), full=True)


def test_a_failure_shows_kind_sentence_details_and_what_to_do() -> None:
    detail = "\n".join(f"line {number}" for number in range(30)) + '\n  File "kernel.py"\n\x1b[31mboom\n' + "x" * 300
    lines = printed(failed(detail=detail)).splitlines()
    assert lines[2:4] == ["    (21 lines before these: --full)", "    | line 21"]
    assert '    |   File "kernel.py"' in lines
    assert "    | [31mboom" in lines
    assert lines[14].endswith("…")
    assert cell_len(lines[14]) == 100
    assert "    | line 0" in printed(failed(detail=detail), full=True).splitlines()


def test_a_detail_of_one_line_has_no_frame() -> None:
    lines = printed(failed(detail="7 of 9 compared elements are outside their tolerance")).splitlines()
    assert lines[2] == "    7 of 9 compared elements are outside their tolerance"


def test_an_all_but_exact_honest_computation_is_no_measure_of_an_error() -> None:
    passing = evidence(1e-3)
    check = replace(passing.checks[0], error=2e-3, honest_error=1e-5, tolerance=4e-3)
    words = " ".join(printed(replace(passing, checks=(check,))).split())
    assert f"nearest to its tolerance: {check.family} ({check.mode_words}), 50.0% of it" in words
    words = " ".join(printed(replace(passing, checks=(replace(check, honest_error=1e-3),))).split())
    assert "largest error: 2.00 times an honest computation's (limit 4.00)" in words


def test_a_whole_report_is_offered_only_where_it_has_more() -> None:
    def last_line(detail: str, **changes: Any) -> str:
        judged_ = replace(failed("contract", "syntax-error", detail), **changes)
        verdict = Verdict(outcome="failed", reasons=(), failure=judged_.failure)
        blocks = judge_blocks(judged_, report(judged_, V5E), (), verdict, View(whole="again --full"))
        return screen(blocks, 100).splitlines()[-1]

    whole = "the whole report: again --full"
    assert last_line("    x = (", trace=None) == "Correctness:           no check was made"
    assert last_line("a line\n" * 30, trace=None) == whole
    assert last_line("    x = (") == whole


def test_of_a_failed_evaluation_the_checks_that_were_not_run_are_not_passed_over() -> None:
    passing = evidence(1e-3)
    failure = present(failed().failure)
    bad = replace(passing, failure=failure, checks=(passing.checks[0], replace(passing.checks[1], passed=False)))
    assert "1 check failed, 1 passed, the checks after the failure were not run" in printed(bad)
    assert "2 checks passed, the checks after the failure were not run" in printed(replace(bad, checks=passing.checks))
    tampered = replace(passing, failure=replace(failure, kind="tampered"))
    assert "all 2 checks passed" in printed(tampered)


def test_a_failure_comes_before_what_was_judged() -> None:
    kernel = failed()
    failure = present(kernel.failure)
    verdict = Verdict(outcome="failed", reasons=("compile",), failure=failure)
    text = screen(judge_blocks(kernel, report(kernel, V5E), (), verdict, View()), 200)
    assert text.splitlines()[:2] == [
        f"FAILED  compile, vmem-exceeded: {failure.message}",
        f"  {kernel.problem.title}; nothing is recorded",
    ]


def test_figures_of_the_matrix_unit_are_left_out_for_a_problem_without_products() -> None:
    kernel = rowwise(0.2e-3)
    figures = report(kernel, V5E)
    for blocks in (roofline.roofline(kernel, figures), roofline.glance(kernel, figures)):
        assert re.search(r"Compute-only +- \(no matmuls\)", screen(blocks, 200))
    assert "no matmuls" not in screen(roofline.glance(CHAMPION, report(CHAMPION, V5E)), 200)


def test_the_gap_is_stated_at_the_rates_of_the_simulator_too() -> None:
    kernel = with_slots(evidence(0.78e-3, bq=2048, bkv=512), MXU=0.95)
    figures = report(kernel, V5E)
    passing = passing_gap(kernel, figures, V5E)
    useful = kernel.problem.work.matmul_flops / V5E.peak_bf16_flops_per_second
    assert passing == pytest.approx(1 - useful / matmul_share(V5E) / 0.78e-3)
    words = f"{percent(present(figures.gap_fraction))} of actual: small; {percent(present(passing))} at the"
    for blocks in (roofline.roofline(kernel, figures), roofline.glance(kernel, figures)):
        assert words in screen(blocks, 200)
    # A measured time is not compared with the simulator.
    assert "simulator's rates" not in screen(roofline.glance(kernel, replace(figures, source="measured")), 200)


def test_an_impossible_latency_shows_the_figures_that_it_was_refused_on() -> None:
    text = printed(evidence(0.6e-3))
    assert text.startswith("FAILED  attempt 2")
    assert "latency, impossible: 137.4 GFLOP of useful matmul work in 600.000 us" in text
    assert "RESULT: score=" in text


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_long_family_name_costs_no_figure(width: int) -> None:
    original = better()
    name = "columns of x, each block of 512 in rows of its own,\nand then some more words about it"
    checks = tuple(replace(check, family=name) for check in original.checks)
    lines = printed(replace(original, checks=checks), full=True, width=width).splitlines()
    assert any(line.split()[-4:] == ["shape", "error", "error", "tolerance"] for line in lines)
    assert any(re.search(r"columns of .*  512,128 +1.20e-03 +1.90e-03 +5.70e-03  passed$", line) for line in lines)


def test_uncertainty_is_shown_where_it_is_stated() -> None:
    original = evidence(2.16e-3)
    text = printed(replace(original, latency=replace(present(original.latency), plus_minus_seconds=0.12e-3)))
    assert "Actual 2.16 ms ± 0.12 ms" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
@pytest.mark.parametrize("full", [False, True])
def test_every_line_fits_and_has_no_trailing_blanks(width: int, full: bool) -> None:
    shown = [better(warnings=(WIDE * 3,)), taken_apart(), evidence(None), CHAMPION, failed(detail="y" * 300)]
    for candidate in shown:
        assert is_tidy(printed(candidate, full=full, width=width, hypothesis=WIDE * 4), width), candidate.failure


def test_colour_is_a_second_signal_only() -> None:
    plain, coloured = printed(better()), printed(better(), colour=True)
    assert "\x1b" not in plain
    assert coloured.startswith("\x1b[32mACCEPTED\x1b[0m")
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    assert printed(failed(), colour=True).startswith("\x1b[31mFAILED")


def test_hypotheses_cannot_steer_the_terminal() -> None:
    text = printed(better(), hypothesis="a\nb\x1b]0;owned\x07\x1b[2J \u202eevil")
    assert text.splitlines()[0] == "ACCEPTED  attempt 2: a b]0;owned[2J evil"


def test_show_colours_the_diff_and_says_if_there_is_none() -> None:
    candidate, report = judged(better())
    coloured = screen(show_blocks(candidate, report, (), "-BQ = 128\n+BQ = 2048\n"), 100, colour=True)
    assert "\x1b[32m+BQ = 2048\x1b[0m" in coloured
    unchanged = screen(show_blocks(candidate, report, (), ""), 100)
    assert unchanged.endswith("kernel.py: no change against the champion's")


def test_memory_that_a_kernel_allocates_itself_is_said_to_be_left_out() -> None:
    call, judgement, words = pallas_call(), report(CHAMPION, V5E), "(run_scoped, emit_pipeline) is not counted"
    assert words not in screen(report_sections.vmem(judgement, (call,), full=False), 200)
    by_hand = replace(call, windows=(*call.windows[:-1], replace(call.windows[-1], fetches=None, hbm_bytes=None)))
    assert words in screen(report_sections.vmem(judgement, (by_hand,), full=False), 200)


def test_buffers_that_fill_the_limit_and_no_more_are_told_from_buffers_that_exceed_it() -> None:
    judgement = report(CHAMPION, V5E)
    for more, words in ((0, "16.00 MiB (100.0%), from"), (8192, "16.00 MiB (100.0%, 8,192 bytes too many), from")):
        full = replace(judgement, vmem_bytes=judgement.vmem_limit_bytes + more)
        assert words in screen(report_sections.vmem(full, (), full=False), 200)


def test_counters_table_alone() -> None:
    lines = screen(report_sections.counters(report(CHAMPION, V5E), None), 100).splitlines()
    assert lines[0].split() == ["level", "counter", "count", "expected"]
    assert len(lines) == 2 + len(report(CHAMPION, V5E).counters)
    nothing = report(evidence(hlo=None, mosaic=None, simulation=None), V5E)
    assert not [*report_sections.counters(nothing, None), *report_sections.counters_at_a_glance(nothing, None)]


# --- status, progress, layout ------------------------------------------------------------------


def test_status_says_who_checked_the_champion_again_and_where_the_log_is() -> None:
    checked = screen(status_blocks(status(champion=line(5, "judge the champion again"))), 200)
    words = "attempt 2 (attempt 5 checked it again), score 1509.9, 2.16 ms [simulated v5e], BQ 128 -> 2048"
    assert f"Champion:     {words}\n" in checked
    assert "Log:          kept here only" in screen(status_blocks(status(log="no remote")), 100)
    assert "Log:          pushed" in screen(status_blocks(status(log="pushed")), 100)


def test_progress_explains_every_stage_of_an_evaluation() -> None:
    assert {stage.name for stage in STAGES} == set(STAGE_WORDS)


def test_progress_prints_plain_lines_off_a_terminal_and_nothing_when_quiet() -> None:
    stream = io.StringIO()
    with Progress(stream=stream) as progress:
        progress("trace", "start", 0.0)
        progress("trace", "done", 1.23)
        progress("compile", "start", 0.0)
        progress("simulate", "start", 0.0)
        progress("compile", "vmem-exceeded", 0.4)
        progress("reduced shapes", "not needed", 0.5)
    stages, total = stream.getvalue().rsplit("  total ", 1)
    assert stages == (
        "  trace                     1.2 s  kernel.py becomes a program\n"
        "  compile                400.0 ms  vmem-exceeded\n"
        "  reduced shapes         500.0 ms  ended early: the outcome is known\n"
    )
    assert re.fullmatch(r" +[\d.]+ .?s  stages run side by side\n", total)
    stream = io.StringIO()
    with Progress(stream=stream) as progress:
        for step in ("first", "second"):
            progress(step, "start", 0.0)
            progress(step, "done", 1.0)
    assert "side by side" not in stream.getvalue()
    stream = io.StringIO()
    with Progress(quiet=True, stream=stream) as progress:
        progress("trace", "done", 1.23)
    assert stream.getvalue() == ""


def test_progress_names_what_is_running_after_each_silence() -> None:
    stream = io.StringIO()
    with Progress(stream=stream, silence_seconds=0.05) as progress:
        progress.expect({}, 0.01, "")
        progress("compile", "start", 0.0)
        while stream.getvalue().count("  running ") < 2:
            time.sleep(0.01)
        with progress.during("simulation"):
            while "simulation" not in stream.getvalue():
                time.sleep(0.01)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("  running ")]
    assert re.fullmatch(r"  running +[\d.]+ .?s  compile [\d.]+ .?s; 10.0 ms were expected", lines[0])
    with_both = next(line for line in lines if "simulation" in line)
    # The expected time is named once.
    assert re.search(r"  compile [\d.]+ .?s, simulation [\d.]+ .?s$", with_both)


def test_progress_says_what_the_last_attempts_took(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with Progress(stream=stream) as progress:
        progress.expect({"trace": 1.5}, 4.2, "the last attempt")
    assert stream.getvalue() == "  expected                  4.2 s  the last attempt\n"
    stream = io.StringIO()
    with Progress(stream=stream) as progress:
        progress.expect({"trace": 1.5, "screening": 20.0}, 24.2, "the last attempt")
    parts = "screening 20.0 s and one attempt 4.2 s, from the last attempt"
    assert stream.getvalue() == f"  expected                 24.2 s  {parts}\n"
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Progress(stream=stream) as progress:
        progress.expect({"trace": 1.5}, None, "")
        progress("trace", "start", 0.0)
    assert "trace (of about 1.5 s) 0:00:00" in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", stream.getvalue())


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_live_and_leaves_the_finished_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Progress(stream=stream) as progress:
        progress("trace", "start", 0.0)
        progress("compile", "start", 0.0)
        progress("trace", "done", 1.23)
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", stream.getvalue())
    assert "  trace                     1.2 s" in text
    assert "compile 0:00:00" in text, "what still runs is shown with its time so far"
    assert stream.getvalue().endswith("\x1b[2K"), "what was still running leaves no line"


def test_colour_only_on_a_terminal_without_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(Terminal())


def test_terminal_width_comes_from_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "73")
    assert layout.terminal_width() == 73
    monkeypatch.setenv("COLUMNS", "3")
    assert layout.terminal_width() == layout.NARROWEST


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("short", 5, "short"), ("longer", 5, "long…"), ("日本語", 5, "日本…"), ("日本語", 6, "日本語"), ("日本", 1, "…")],
)
def test_cut(text: str, width: int, expected: str) -> None:
    assert layout.cut(text, width) == expected
    assert cell_len(layout.cut(text, width)) <= width


def test_wrap_chops_only_what_no_line_can_hold() -> None:
    assert layout.wrap("one two three", 9, "- ") == ["- one two", "  three"]
    assert layout.wrap("abcdefghij", 6, "- ") == ["- abcd", "  efgh", "  ij"]
    assert layout.wrap("", 6, "- ") == ["-"]
    assert layout.wrap("日本語日本語", 8, "- ") == ["- 日本語", "  日本語"]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((("operand wait", "k", 0.04),), "(by the roofline; simulated: issuing 96.0% of cycles)"),
        (
            (("unit stall", "XLU busy", 0.4), ("operand wait", "k", 0.03), ("fill and drain", "q", 0.01)),
            "(by the roofline; simulated: waiting for transfers 4.0% of cycles)",
        ),
        ((("operand wait", "k", 0.3),), ""),
    ],
)
def test_a_regime_that_the_simulation_contradicts_says_so(parts: tuple[Any, ...], words: str) -> None:
    _, report = judged(with_parts(rowwise(0.25e-3), *parts), None)
    line = screen(report_sections.result(report), 100).splitlines()[1]
    assert line.startswith("REGIME: MEMORY-BOUND  BW=")
    assert line.partition("FLOPs/byte")[2].strip() == words


@pytest.mark.parametrize(
    ("stalls", "words"), [(0.05, "(by the roofline; simulated: issuing 95.0% of cycles)"), (0.3, "")]
)
def test_a_latency_bound_kernel_that_always_issues_says_so(stalls: float, words: str) -> None:
    _, report = judged(with_parts(rowwise(0.9e-3, block=64), ("unit stall", "XLU busy", stalls)), None)
    line = screen(report_sections.result(report), 120).splitlines()[1]
    assert line.startswith("REGIME: LATENCY-BOUND  BW=")
    assert line.partition("ridge point)")[2].strip() == words
