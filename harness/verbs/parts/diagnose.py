"""The work of `diagnose`: all findings on a kernel, ranked, with their gains."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from harness import contest as contests
from harness.advice import diagnose as diagnosing
from harness.advice import dump_directory
from harness.advice import report as reporting
from harness.advice.edits import SimulatedEdits, saving_nothing
from harness.advice.simulated_rates import least_seconds
from harness.advice.whatif import answers
from harness.candidate import Candidate
from harness.errors import RatchetError
from harness.hardware import Chip, chip
from harness.ledger import history
from harness.ledger.paths import place_of
from harness.loop import edits, installed
from harness.loop.bench import Bench
from harness.loop.ledger_advice import advice_and_left_out
from harness.records import Ceiling, Edit, Evidence, Hint, Report, Row, Table
from harness.records.titles import taken_back
from harness.records.whatif import Factors
from harness.render.hints import diagnosis_blocks
from harness.shell.arguments import directory
from harness.shell.tables import TablesDocument, figures
from harness.shell.verb import Outcome
from harness.units import change, percent
from harness.verbs.parts.context import judged_kernel, progress_of, rows_of
from harness.workbench import tables
from harness.workbench.tables import columns

# Ideal machines that bound gains: one with free transfers, one with matrix units of twice the speed.
_CEILINGS: tuple[tuple[Literal["memory", "MXU"], str, Factors], ...] = (
    ("memory", "transfers that take no time", Factors(bandwidth=1000.0, dma_latency=0.0, transfer_cost=0.0)),
    ("MXU", "MXU x2", Factors(mxu=2.0)),
)
_TIMED_ONLY = "kernel.py was compiled and simulated, but its results were not checked: `judge` checks them"
_TRIED = columns("edit;time_ratio=time, new/old;why=why no time")
_COLUMNS = columns(
    "rule;gain_fraction=gain;gain_source=from;ranked_by_fraction=ranked by;kind=kind of change;observation;"
    "suggestion=what to try;because=the rule;rule_source=its source"
)


def run(arguments: Namespace) -> Outcome:
    folder, number = directory(arguments.directory).resolve(), arguments.number
    kernel = judged_kernel(arguments, number, arguments.chip, checked=False, with_lines=True)
    evidence, candidate = kernel.evidence, kernel.candidate
    target = kernel.chip if number is None else chip(evidence.chip)
    name = f"{kernel.name} at {arguments.member}" if arguments.member else kernel.name
    report = reporting.report(evidence, target)
    with progress_of(arguments) as progress, progress.during("simulation of what-ifs"):
        ceilings, note = _ceilings(folder, evidence, target)
    rows = _earlier(folder, number)
    asked = diagnosing.edits(evidence, report, rows, ceilings)
    simulated, why = _simulate_edits(arguments, folder, number, evidence, candidate, asked) if asked else ((), "")
    by_rules = diagnosing.hints(evidence, report, rows, ceilings, simulated)
    advice, left_out = advice_and_left_out(by_rules, evidence, candidate, folder)
    bound = "`at most` marks an upper bound of the gain, not the expected gain"
    failure = evidence.failure
    least = least_seconds(evidence.problem, target, report) if report.source == "simulated" else 0.0
    is_timed_only = number is None and failure is None and not evidence.all_checks
    unchecked = (_TIMED_ONLY,) if is_timed_only else ()
    notes = (bound, note, *_order(advice), *_of_edits(simulated, why), *left_out, *unchecked)
    # If the kernel failed, the table has the failure instead of the notes on the basis of the gains.
    in_table = notes if failure is None else (f"{failure.stage}, {failure.kind}: {failure.message}",)
    findings, tried_edits = _findings(name, report, advice, in_table), _edits_table(name, report, simulated)
    return Outcome(
        document=TablesDocument(command="diagnose", tables=figures([findings, tried_edits])),
        text=lambda: diagnosis_blocks(name, report, advice, () if failure else notes, failure, least),
    )


def _findings(name: str, report: Report, advice: Sequence[Hint], notes: tuple[str, ...]) -> Table:
    """The findings as a table, the most promising first."""
    rows = [
        (h.rule, h.gain, h.gain_source, h.ranked_by, h.kind, h.observation, h.suggestion, h.because, h.rule_source)
        for h in advice
    ]
    title = f"what to try next: {name}, {report.chip}"
    table = tables.table("findings", title, report.source, _COLUMNS, rows, why_empty="no rule finds anything here")
    # `tables.table` drops the notes of an empty table, but these also explain why there are no findings.
    return replace(table, notes=notes)


def _edits_table(name: str, report: Report, simulated: Sequence[SimulatedEdits]) -> Table:
    """The simulated edits, the fastest first."""
    title = f"advised edits of one constant, simulated: {name}, {report.chip}"
    rows = [(edit.words, edit.time_ratio, edit.why) for edit in simulated]
    note = "not checked for correctness: an attempt does that"
    why = "no advised edit of one constant was simulated"
    return tables.table("edits", title, "simulated", _TRIED, rows, (note,), why)


def _simulate_edits(
    arguments: Namespace,
    folder: Path,
    number: int | None,
    evidence: Evidence,
    candidate: Candidate,
    asked: Sequence[Edit],
) -> tuple[tuple[SimulatedEdits, ...], str]:
    """The advised edits of one constant, simulated, and ""; or () and the reason why no edit was simulated."""
    without = "no advised edit was simulated: "
    target = chip(evidence.chip)
    if arguments.no_edits:
        return (), f"{without}--no-edits"
    if target.platform != "tpu":
        return (), f"{without}there is no simulator of {target.name}"
    if arguments.member:
        return (), f"{without}edits for members of a suite are not simulated"
    try:
        contest = contests.load(folder, target.name)
    except RatchetError:
        # An attempt's record can be read even if its contest no longer loads.
        return (), f"{without}the contest cannot be loaded"
    if number is not None and history.attempt(place_of(folder), number).key.timed != contest.key("simulated").timed:
        return (), f"{without}attempt {number} was judged under another key"
    if number is not None and not installed.is_unchanged(evidence):
        return (), f"{without}a package that attempt {number} imports may have changed since"
    if arguments.only_reads:
        return (), f"{without}this tool only reads"
    edits_running = "simulation of the advised edits"
    with Bench(contest=contest).locked("diagnose"), progress_of(arguments) as progress, progress.during(edits_running):
        simulated = edits.simulate(Bench(contest=contest, progress=progress), candidate, evidence, asked)
    return simulated, "" if simulated else f"{without}no constant of kernel.py has the size of an advised block"


def _of_edits(simulated: Sequence[SimulatedEdits], why: str) -> tuple[str, ...]:
    """Sentences on the simulated edits and their times; without edits, the reason `why`, if any."""
    if not simulated:
        return (why,) if why else ()
    times = [
        f"{edit.words}: {edit.why.partition(':')[0] if edit.time_ratio is None else change(edit.time_ratio)}"
        for edit in simulated
        if edit.saves or edit.time_ratio is None
    ]
    words = f"time changes of simulated edits, whose results were not checked: {', '.join(times)}" if times else ""
    return tuple(sentence for sentence in (words, saving_nothing(simulated)) if sentence)


def _order(advice: Sequence[Hint]) -> tuple[str, ...]:
    """A sentence with the findings' ranks, if the findings are not in the order of their printed gains."""
    gains = [hint.gain or 0.0 for hint in advice]
    if gains == sorted(gains, reverse=True):
        return ()
    ranks = ", ".join(
        f"{number}. {'always first' if hint.ranked_by is None else percent(hint.ranked_by)}"
        for number, hint in enumerate(advice, 1)
    )
    return (
        f"findings are in the order of the expected gain: {ranks}. The expected gain is below the bound if "
        "advice of the same kind mostly fell short of its bound; a finding of unknown gain is ranked by a part of the "
        "time that its cause takes; one below the threshold comes after those that can be accepted",
    )


def _earlier(folder: Path, number: int | None) -> tuple[Row, ...]:
    """The attempts before `number` that were not revoked later; all attempts if `number` is None.

    Empty if there is no ledger yet.
    """
    rows = rows_of(folder)
    return tuple(
        row
        for row, fate in zip(rows, taken_back(rows), strict=True)
        if number is None or (row.number < number and fate != "revoked")
    )


def _ceilings(folder: Path, evidence: Evidence, target: Chip) -> tuple[tuple[Ceiling, ...], str]:
    """Bounds on the gain, from the schedule simulated on each ideal machine; a sentence on them or their absence."""
    without = "no what-if was simulated to bound gains: "
    if target.platform != "tpu" or evidence.dump_directory is None:
        return (), f"{without}there is no schedule"
    dumps = dump_directory.of(evidence, folder)
    if dumps is None:
        return (), f"{without}the schedule is not on this machine"
    scales = tuple(scale for _, _, scale in _CEILINGS)
    real, scaled = answers(dump_directory.read(dumps, target, len(scales) + 1), target, scales)
    if not scaled:
        return (), f"{without}{real.unknown[0] if real.unknown else 'the schedule has no latency'}"
    ceilings = tuple(
        Ceiling(resource=resource, time_ratio=min(1.0, answer.time_ratio), words=words)
        for (resource, words, _), answer in zip(_CEILINGS, scaled, strict=True)
    )
    bounds = ", ".join(f"{c.words}: {1 - c.time_ratio:.1%} less time" for c in ceilings)
    return ceilings, f"simulated what-ifs that bound gains: {bounds}"
