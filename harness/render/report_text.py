"""What a person reads: the report of an attempt, verdict first."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.records import Attempt, Evidence, Hint, Outcome, Report, Verdict
from harness.render import report_sections, roofline
from harness.render.cycle_breakdown import cycles
from harness.render.hints import hints
from harness.render.layout import (
    NO_FILES,
    Files,
    Style,
    clean,
    diff_text,
    flow,
    joined,
    paint,
    terminal_width,
    wrap,
)
from harness.render.review import revocation_lines
from harness.units import decimal, percent

_WORDS: dict[Outcome, tuple[str, Style]] = {
    "accept": ("ACCEPTED", "good"),
    "reject": ("REJECTED", "doubt"),
    "inconclusive": ("INCONCLUSIVE", "doubt"),
    "failed": ("FAILED", "bad"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How a report is shown.

    `files` are the candidate's, for the lines that the report names. `full` prints all there is; `whole` is the command
    that does, named where not all is printed. Lines fit `width` columns (None: the terminal's), but for the RESULT and
    REGIME lines, whose form is fixed.
    """

    files: Files = field(default_factory=lambda: NO_FILES)
    full: bool = False
    colour: bool = False
    width: int | None = None
    whole: str = ""

    @property
    def columns(self) -> int:
        """The columns that lines fit."""
        return terminal_width() if self.width is None else self.width


_PLAIN = View()


def report_text(
    attempt: Attempt,
    report: Report,
    advice: Sequence[Hint],
    champion_report: Report | None,
    view: View = _PLAIN,
) -> str:
    """The report of `attempt`: verdict, why, RESULT and REGIME, about one screen of what is behind them, hints."""
    width, colour = view.columns, view.colour
    word, style = _WORDS[attempt.verdict.outcome]
    kind = "" if attempt.kind == "experiment" else f" ({attempt.kind})"
    if attempt.kind == "revoke":
        word, style = "REVOKED", "bad"
    lines = wrap(clean(attempt.hypothesis), width, f"{word}  attempt {attempt.number}{kind}: ", "    ")
    lines[0] = lines[0].replace(word, paint(word, style, colour), 1)
    lines += _reasons(attempt.verdict, width, full=view.full)
    lines += _against_champion(attempt, report, width)
    lines += report_sections.moved(attempt.verdict.changes, width, full=view.full)
    lines += ["", *_findings(attempt.evidence, report, advice, champion_report, attempt.verdict, view)]
    return joined([*lines, *_rest(view)])


def judge_text(
    evidence: Evidence,
    report: Report,
    advice: Sequence[Hint],
    verdict: Verdict,
    view: View = _PLAIN,
) -> str:
    """The report of a kernel judged on its own: nothing was compared and nothing recorded."""
    width = view.columns
    word, style = _WORDS[verdict.outcome]
    word = "PASSED" if verdict.outcome == "accept" else word
    lines = [f"{paint(word, style, view.colour)}  {evidence.problem.title}; nothing is recorded"]
    lines += _reasons(verdict, width, full=view.full)
    lines += ["", *_findings(evidence, report, advice, None, verdict, view)]
    return joined([*lines, *_rest(view)])


def _rest(view: View) -> list[str]:
    return [] if view.full or not view.whole else ["", f"the whole report: {view.whole}"]


def show_text(
    attempt: Attempt,
    report: Report,
    advice: Sequence[Hint],
    diff: str,
    view: View = _PLAIN,
    *,
    revoked: str = "",
    scaled: str = "",
) -> str:
    """Everything about a recorded attempt, then its change of kernel.py.

    `revoked` says how it lost its title, `scaled` what it takes on today's scale.
    """
    width, colour = view.columns, view.colour
    where, key = attempt.evidence.environment, attempt.key
    versions = [f"jax {key.jax}", f"jaxlib {key.jaxlib}", f"libtpu {key.libtpu or 'none'}", f"Python {where.python}"]
    settings = [f"--set {name}={value}" for name, value in attempt.settings]
    lost = wrap(clean(revoked), width, "REVOKED  ", "    ") if revoked else []
    lines = [
        *(line.replace("REVOKED", paint("REVOKED", "bad", colour), 1) for line in lost[:1]),
        *lost[1:],
        report_text(attempt, report, advice, None, replace(view, full=True, whole="")),
        "",
        *(revocation_lines(attempt.revocation, width) if attempt.revocation else []),
        *wrap(
            f"{attempt.started} to {attempt.finished}, contest {clean(attempt.contest)}",
            width,
            "Run:                   ",
        ),
        *wrap(_judged_against(attempt), width, "Judged against:        "),
        *(wrap(clean(scaled), width, "On today's scale:      ") if scaled else []),
        *flow(versions, width, "Versions:              "),
        *flow([where.machine, where.platform], width, "Machine:               "),
        *flow([f"judge {key.judge}", f"problem {key.problem}", f"chip {key.chip}"], width, "Key:                   "),
        *(flow(settings, width, "Settings:              ") if settings else []),
    ]
    if not diff:
        return joined([*lines, "", "kernel.py: no change against the champion's"])
    # A diff is shown as it is: cutting it would hide code, and people copy from it.
    return f"{joined(lines)}\n\n" + diff_text(diff, colour)


def _judged_against(attempt: Attempt) -> str:
    champion = f"attempt {attempt.champion.attempt}" if attempt.champion else "no champion"
    return f"{champion}, at commit {attempt.judged_against[:12]}"


def _findings(
    evidence: Evidence,
    report: Report,
    advice: Sequence[Hint],
    champion: Report | None,
    verdict: Verdict,
    view: View,
) -> list[str]:
    """Everything below the verdict."""
    if evidence.problem.members is not None:
        return _of_suite(evidence, report, advice, verdict, view)
    width, full = view.columns, view.full
    calls = evidence.trace.pallas_calls if evidence.trace else ()
    found: list[Sequence[str]] = []
    if evidence.failure is None:
        timing = report_sections.timing_inputs(evidence, width)
        found.append([*report_sections.result(report), *timing, *report_sections.unknowns(evidence, report, width)])
        found.append(roofline.roofline(evidence, report, width) if full else roofline.glance(report, width))
    machine = [
        *report_sections.measured(evidence, report, width),
        *cycles(evidence, report, view.files, width, full=full),
        *report_sections.units(report, width, full=full),
    ]
    # What does not compile is mostly too large: the buffers are what one looks at then.
    does_not_fit = evidence.failure is not None and evidence.failure.stage == "compile"
    memory = report_sections.vmem(report, calls, width, full=full or does_not_fit)
    checked = report_sections.checks(evidence, verdict, width, full=full)
    if full:
        found += [machine, report_sections.counters(report, champion, width)]
        found += [report_sections.ops(evidence.simulation, width), memory]
        found += [[*_work_in_kernels(evidence, width), *checked], report_sections.stages(evidence, width)]
    else:
        found += [[*machine, *memory, *checked, *report_sections.counters_at_a_glance(report, champion, width)]]
    found += [report_sections.warnings(evidence, width), hints(advice, width, view.colour, full=full)]
    return [line for lines in found if lines for line in (*lines, "")]


def _of_suite(evidence: Evidence, report: Report, advice: Sequence[Hint], verdict: Verdict, view: View) -> list[str]:
    """The same of a suite: each member in a line, what is behind it where somebody asks for that member alone."""
    width, full = view.columns, view.full
    found: list[Sequence[str]] = []
    if evidence.failure is None:
        found.append([*report_sections.result(report)[:1], *report_sections.mean_of_suite(report, width)])
    found.append(report_sections.members(report, verdict, width))
    found.append(report_sections.checks(evidence, verdict, width, full=full))
    if full:
        found.append(report_sections.stages(evidence, width))
    found += [report_sections.warnings(evidence, width), hints(advice, width, view.colour, full=full)]
    return [line for lines in found if lines for line in (*lines, "")]


def _work_in_kernels(evidence: Evidence, width: int) -> list[str]:
    """Which share of the traced floating-point work the Pallas calls do."""
    trace = evidence.trace
    if trace is None or not trace.pallas_flops + trace.outside_flops:
        return []
    total = trace.pallas_flops + trace.outside_flops
    outside = decimal(trace.outside_flops, "FLOP")
    share = f"{percent(trace.pallas_flops / total, 2)} of the traced FLOPs, {outside} outside"
    return wrap(share, width, "Work in Pallas calls:  ")


def _reasons(verdict: Verdict, width: int, *, full: bool) -> list[str]:
    if verdict.failure is not None:
        return report_sections.failure(verdict.failure, width, full=full)
    return [line for reason in verdict.reasons for line in wrap(clean(reason), width, "  ", "    ")]


def _against_champion(attempt: Attempt, report: Report, width: int) -> list[str]:
    champion, ratio, expected = attempt.champion, attempt.verdict.time_ratio, attempt.expected_time_ratio
    parts = []
    is_passed = attempt.verdict.failure is None
    if is_passed and champion is not None and champion.score is not None and report.score is not None:
        parts.append(f"score {report.score:.1f} against {champion.score:.1f} of attempt {champion.attempt}")
    if expected is not None:
        got = "no time to compare" if ratio is None else _less_time(ratio)
        parts.append(f"expected {_less_time(expected)}, got {got}")
    return flow(parts, width, "  ", "; ") if parts else []


def _less_time(ratio: float) -> str:
    return f"{percent(abs(1 - ratio))} {'more' if ratio > 1 else 'less'} time"
