"""The report of an attempt for people, verdict first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.advice.buffers import with_compiled_sizes
from harness.advice.kernel_ops import with_shown_names
from harness.records import Attempt, Evidence, Hint, Outcome, Report, Verdict
from harness.records.report_words import less_time
from harness.render import report_sections, roofline
from harness.render.cycle_breakdown import cycles
from harness.render.hints import hints
from harness.render.layout import NO_FILES, Files, Style
from harness.render.review import revocation
from harness.render.sections import GAP, Block, Diff, Items, Line, Words, apart, named, named_items
from harness.units import decimal, percent, quantity

_WORDS: dict[Outcome, tuple[str, Style]] = {
    "accept": ("ACCEPTED", "good"),
    "reject": ("REJECTED", "doubt"),
    "inconclusive": ("INCONCLUSIVE", "doubt"),
    "failed": ("FAILED", "bad"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Options of a report.

    - `files`: the candidate's files, from which the lines that the report names are quoted.
    - `full`: print everything.
    - `whole`: the command that prints everything. It is shown if something is left out.
    """

    files: Files = field(default_factory=lambda: NO_FILES)
    full: bool = False
    whole: str = ""


_PLAIN = View()


def report_blocks(
    attempt: Attempt, report: Report, advice: Sequence[Hint], champion_report: Report | None, view: View = _PLAIN
) -> Iterator[Block]:
    """The report of `attempt`: verdict, reasons, RESULT and REGIME, about one screen of details, hints."""
    word, style = _WORDS[attempt.verdict.outcome]
    kind = "" if attempt.kind == "experiment" else f" ({attempt.kind})"
    if attempt.kind == "revoke":
        word, style = "REVOKED", "bad"
    lead = f"{word}  attempt {attempt.number}{kind}: "
    yield from _outcome(attempt.verdict, lead, attempt.hypothesis, word, style, full=view.full)
    yield from _against_champion(attempt, report)
    yield from report_sections.moved(attempt.verdict.changes, full=view.full)
    yield GAP
    yield from _findings(attempt.evidence, report, advice, champion_report, attempt.verdict, view)
    yield from _rest(view)


def judge_blocks(
    evidence: Evidence, report: Report, advice: Sequence[Hint], verdict: Verdict, view: View = _PLAIN
) -> Iterator[Block]:
    """The report of a kernel judged on its own: nothing was compared and nothing recorded."""
    word, style = _WORDS[verdict.outcome]
    word = "PASSED" if verdict.outcome == "accept" else word
    about = f"{evidence.problem.title}; nothing is recorded"
    yield from _outcome(verdict, f"{word}  ", about, word, style, full=view.full)
    yield GAP
    yield from _findings(evidence, report, advice, None, verdict, view)
    # Before the trace there is nothing but the failure, and the reasons above show all of it.
    is_all = evidence.trace is None and report_sections.is_shown(verdict.failure)
    yield from () if is_all else _rest(view)


def _rest(view: View) -> list[Block]:
    return [] if view.full or not view.whole else [GAP, Line(f"the whole report: {view.whole}", is_whole=True)]


def show_blocks(
    attempt: Attempt,
    report: Report,
    advice: Sequence[Hint],
    diff: str,
    files: Files = NO_FILES,
    *,
    revoked: str = "",
    scaled: str = "",
) -> Iterator[Block]:
    """Everything about a recorded attempt, then its change of kernel.py.

    `revoked` is a sentence on how the attempt lost its title. `scaled` is its time under today's timing key, in words.
    """
    where, key = attempt.evidence.environment, attempt.key
    if revoked:
        yield Words(revoked, lead="REVOKED  ", rest="    ", style="bad", painted="REVOKED")
    if scaled:
        # The figures of the report are the recorded ones.
        yield named("On today's scale", scaled)
        yield GAP
    yield from report_blocks(attempt, report, advice, None, View(files=files, full=True))
    yield GAP
    if attempt.revocation:
        yield from revocation(attempt.revocation)
    yield named("Run", f"{attempt.started} to {attempt.finished}, contest {attempt.contest}")
    champion = f"attempt {attempt.champion.attempt}" if attempt.champion else "no champion"
    yield named("Judged against", f"{champion}, at commit {attempt.judged_against[:12]}")
    versions = [f"jax {key.jax}", f"jaxlib {key.jaxlib}", f"libtpu {key.libtpu or 'none'}", f"Python {where.python}"]
    yield named_items("Versions", versions)
    yield named_items("Machine", [where.machine, where.platform])
    yield from (named("Certificate", words) for words in _certificates(attempt.evidence))
    yield named_items("Key", [f"judge {key.judge}", f"problem {key.problem}", f"chip {key.chip}"])
    if attempt.settings:
        yield named_items("Settings", [f"--set {name}={value}" for name, value in attempt.settings])
    yield GAP
    yield Diff(diff) if diff else Line("kernel.py: no change against the champion's", is_whole=True)


def _certificates(evidence: Evidence) -> Iterator[str]:
    """A sentence for each certificate that the checked program is the compiled one: digest, numbers of operations."""
    for name, program in evidence.programs:
        if (certificate := program.certificate) is not None:
            operations = quantity(sum(count for _, count in certificate.primitives), "operation")
            primitives = quantity(len(certificate.primitives), "JAX primitive")
            of_member = f"{name}: " if name else ""
            yield (
                f"{of_member}the checked program is the program compiled for {certificate.platform}, "
                f"{certificate.sha256[:16]}: {operations}, {primitives}"
            )


def _findings(
    evidence: Evidence, report: Report, advice: Sequence[Hint], champion: Report | None, verdict: Verdict, view: View
) -> Iterator[Block]:
    """Everything below the verdict."""
    full, failed = view.full, evidence.failure
    checked = report_sections.checks(evidence, verdict, full=full)
    stages = report_sections.stages(evidence) if full else ()
    last = (stages, report_sections.warnings(evidence), hints(advice, full=full))
    if evidence.problem.members is not None:
        # The details of a member are shown only by a command with --member.
        mean = () if failed else (report_sections.result(report)[0], *report_sections.mean_of_suite(report))
        return apart(mean, report_sections.members(report, verdict), checked, *last)
    timing: tuple[Block, ...] = ()
    times: tuple[Block, ...] = ()
    if failed is None:
        timing = (
            *report_sections.result(report),
            *report_sections.timing_inputs(evidence),
            *report_sections.unknowns(evidence, report),
        )
        times = tuple(roofline.roofline(evidence, report) if full else roofline.glance(evidence, report))
    machine = (
        *report_sections.measured(evidence, report),
        *cycles(evidence, report, view.files, full=full),
        *report_sections.units(report, full=full),
    )
    # Most kernels that do not compile are too large, so the buffers are shown.
    does_not_fit = failed is not None and failed.stage == "compile"
    trace = with_compiled_sizes(evidence).trace
    calls = trace.pallas_calls if trace else ()
    memory = report_sections.vmem(report, calls, full=full or does_not_fit)
    if not full:
        counts = report_sections.counters_at_a_glance(report, champion)
        return apart(timing, times, (*machine, *memory, *checked, *counts), *last)
    counters = report_sections.counters(report, champion)
    run = evidence.simulation
    ops = report_sections.ops(with_shown_names(run, view.files) if run else None)
    return apart(timing, times, machine, counters, ops, memory, (*_work_in_kernels(evidence), *checked), *last)


def _work_in_kernels(evidence: Evidence) -> Iterator[Block]:
    """The share of the traced floating-point work in Pallas calls."""
    trace = evidence.trace
    if trace is not None and trace.pallas_flops + trace.outside_flops:
        total = trace.pallas_flops + trace.outside_flops
        outside = decimal(trace.outside_flops, "FLOP")
        share = f"{percent(trace.pallas_flops / total, 2)} of the traced FLOPs, {outside} outside"
        yield named("Work in Pallas calls", share)


def _outcome(verdict: Verdict, lead: str, about: str, word: str, style: Style, *, full: bool) -> Iterator[Block]:
    """The outcome `word`, which begins `lead`, with what was judged (`about`) and the reasons; a failure is first."""
    if verdict.failure is None:
        yield Words(about, lead=lead, rest="    ", style=style, painted=word)
        yield from (Words(reason, lead="  ", rest="    ") for reason in verdict.reasons)
    else:
        yield from report_sections.failure(
            verdict.failure, full=full, lead=lead, about=about, style=style, painted=word
        )


def _against_champion(attempt: Attempt, report: Report) -> Iterator[Block]:
    champion, ratio, expected = attempt.champion, attempt.verdict.time_ratio, attempt.expected_time_ratio
    parts = []
    is_passed = attempt.verdict.failure is None
    if is_passed and champion is not None and champion.score is not None and report.score is not None:
        parts.append(f"score {report.score:.1f} against {champion.score:.1f} of attempt {champion.attempt}")
    if expected is not None:
        got = "no time to compare" if ratio is None else less_time(ratio)
        parts.append(f"expected {less_time(expected)}, got {got}")
    if parts:
        yield Items(parts, lead="  ", separator="; ")
