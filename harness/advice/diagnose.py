"""Hints on what to try next, ranked by the share of the time that they could save."""

import math
from collections.abc import Sequence
from dataclasses import replace

from harness.advice.buffers import with_compiled_sizes
from harness.advice.edits import NOTABLE_GAIN, SimulatedEdits
from harness.advice.failure_remedies import next_step
from harness.advice.observed import Observed
from harness.advice.operands import with_callers_names
from harness.advice.rules import RULES, Rule, RuleCase, hint
from harness.advice.rules.block_edits import within_vmem
from harness.advice.rules.rule import SIMULATED_EDIT
from harness.advice.rules.stopping import STOP_TUNING
from harness.advice.source_names import name_lines
from harness.hardware import chip
from harness.judge.verdict import compare_simulated
from harness.judge.verdict.roofline import finished_run
from harness.records import Ceiling, Edit, Evidence, Hint, Policy, Report, Row, Trace
from harness.records.titles import taken_back
from harness.units import percent

# The families of inputs whose scores are beyond 2^14.
_LARGE_SCORES = ("drawn-far", "drawn-all")
# If a few thousand numbers are summed in bfloat16, the error is below this many times the tolerance of a float32 sum.
_NARROW_SUM = 64
# Other blocks need more or fewer steps, or a higher limit.
_KNOBS_OF_BLOCKS = ("block", "key block", "fewer steps", "VMEM limit")
_NOTHING_ELSE = "this change saves next to nothing, and no rule finds anything else"


def hints(
    evidence: Evidence,
    report: Report,
    previous: Sequence[Row] = (),
    ceilings: Sequence[Ceiling] = (),
    simulated: Sequence[SimulatedEdits] = (),
    *,
    is_member: bool = False,
) -> tuple[Hint, ...]:
    """The hints that the evidence supports, most promising first; for a failure, a single hint with its remedy.

    - `previous`: earlier attempts, oldest first. Only attempts with the same source of time and the same chip are used.
    - `ceilings`: bounds on the gains. Each is the simulated time ratio of the schedule if one resource costs less.
    - `simulated`: edits with their simulated times. Their gains replace bounds.
    - `is_member`: `evidence` is that of a member of a suite, whose threshold of acceptance depends on all members.
    """
    if evidence.failure is not None:
        observation = f"{evidence.failure.stage} failed: {evidence.failure.kind}"
        has_all_vmem = report.vmem_limit_bytes >= chip(report.chip).vmem_bytes
        suggestion = next_step(evidence.failure, evidence.problem.operation, has_all_vmem=has_all_vmem)
        if evidence.failure.kind == "wrong-result" and evidence.trace is not None:
            suggestion = _on_wrong_result(evidence, evidence.trace) or suggestion
        return (Hint(observation=observation, suggestion=suggestion, rule="failure"),)
    if report.seconds is None or report.impossible:
        return ()
    seen = observe(evidence, report, report.seconds, previous, ceilings)
    cases = [(finding, hint(rule, finding, seen, simulated)) for rule, finding in findings(seen)]
    # The cases are in the published order of causes. Sorting is stable, so cases with equal gains stay in this order.
    least = threshold(evidence) if report.source == "simulated" and not is_member else 0.0
    cases = [(finding, _below(each_hint, least)) for finding, each_hint in cases]
    cases.sort(key=lambda item: (not item[0].comes_first, is_below(item[1], least), -_rank(*item)))
    # A hint that saves too little for an experiment is left out, unless no other hint is left and this one gives a
    # bound instead of a simulated edit.
    notable = [
        (finding, each_hint) for finding, each_hint in cases if each_hint.gain is None or each_hint.gain >= NOTABLE_GAIN
    ]
    # The simulated edits that save nothing are named in one sentence of `diagnose` (edits.saving_nothing).
    others = [each for each in cases if not each[1].gain_source.startswith(SIMULATED_EDIT)]
    if others and not notable:
        finding, each_hint = max(others, key=lambda item: item[1].gain or 0.0)
        notable = [(finding, replace(each_hint, suggestion=f"{each_hint.suggestion}; {_NOTHING_ELSE}"))]
    notable = _without_contradictions(notable)
    # Two observations may be about the same knob, and even advise opposite changes: only the stronger one is kept.
    by_knob: dict[str, Hint] = {}
    for finding, each_hint in notable:
        by_knob.setdefault(
            finding.knob or each_hint.rule,
            replace(each_hint, ranked_by=None if finding.comes_first else _rank(finding, each_hint)),
        )
    return tuple(by_knob.values())


def threshold(evidence: Evidence) -> float:
    """The smallest gain with which one change of this kernel can be accepted by simulated times; 0 if unknown."""
    uncertainty = compare_simulated.uncertainty_of(evidence)
    return 0.0 if uncertainty is None else compare_simulated.least_gain(uncertainty, Policy())


def is_below(the_hint: Hint, least: float) -> bool:
    """True if the hint advises a change whose gain is known to stay below the threshold `least`."""
    return bool(the_hint.kind) and the_hint.gain is not None and the_hint.gain < least


def _below(the_hint: Hint, least: float) -> Hint:
    """The hint; its suggestion says so if its change alone stays below the threshold."""
    if not is_below(the_hint, least):
        return the_hint
    words = f"; below the threshold of {percent(least)}, if it is the only change"
    return replace(the_hint, suggestion=the_hint.suggestion + words)


def _without_contradictions(cases: list[tuple[RuleCase, Hint]]) -> list[tuple[RuleCase, Hint]]:
    """The cases without those that change a block, if another case advises to stop tuning blocks.

    If a simulated edit of a block gains notably, the advice to stop is left out instead.
    """
    stops = [case for case in cases if case[1].rule in STOP_TUNING]
    tunes = [case for case in cases if case[0].edits or case[1].kind == "constants" or case[0].knob in _KNOBS_OF_BLOCKS]
    wrong = stops if any(each.gain_source.startswith(SIMULATED_EDIT) for _, each in cases) else tunes
    return [case for case in cases if case not in wrong] if stops else cases


def _on_wrong_result(evidence: Evidence, trace: Trace) -> str:
    """The remedy if narrow operands, maxima or sums can explain the wrong result; else ""."""
    wrong = [check for check in evidence.all_checks if not check.passed]
    # Products of float32 numbers in one pass.
    if trace.one_pass_lines and {output.dtype for output in evidence.problem.outputs} == {"float32"}:
        read = {array.dtype for array in evidence.problem.inputs if not array.is_table}
        exact = "; an operand that the kernel cast up from bfloat16 loses nothing in one pass"
        return (
            f"pass precision='highest' to the product in {' or '.join(trace.one_pass_lines[:3])}, if an operand there "
            "needs more digits than bfloat16 has: at the default precision the chip rounds float32 operands to "
            "bfloat16 and multiplies in one pass, and so does the "
            f"check{exact if 'bfloat16' in read else ''}"
        )
    # A running maximum in bfloat16, with large scores.
    if trace.narrow_maxima and any(check.family in _LARGE_SCORES for check in wrong):
        return (
            f"keep the running maximum at {', '.join(trace.narrow_maxima[:3])} in float32: from 16,384 on, bfloat16 "
            "numbers are 128 apart, and a maximum that rises by 128 scales all earlier keys by e^-128, which is "
            f"0{_or_state_it(evidence)}"
        )
    # Sums in bfloat16 whose error is small enough to be the whole error of the results.
    is_small = (check.tolerance and (check.error or math.inf) <= _NARROW_SUM * check.tolerance for check in wrong)
    if trace.narrow_sums and wrong and all(is_small):
        return (
            f"keep the sums at {', '.join(trace.narrow_sums[:3])} in float32 (dtype=jnp.float32, or an option of the "
            "kernel's package): they are in bfloat16 now, and the tolerance assumes sums in "
            f"float32{_or_state_it(evidence)}"
        )
    return ""


def _or_state_it(evidence: Evidence) -> str:
    """Advice to allow maxima and sums in bfloat16 in prepare.py, if it has this option and does not use it; else ""."""
    problem = evidence.problem
    if problem.operation != "paged_attention" or "sums" in dict(problem.parameters):
        return ""
    return (
        "; or state SUMS = 'bfloat16' in prepare.py, which allows maxima and sums in bfloat16 and keeps the inputs' "
        "scores within 512"
    )


def findings(seen: Observed) -> tuple[tuple[Rule, RuleCase], ...]:
    """Every rule that applies to `seen`, with its case; edits that do not fit into VMEM are left out."""
    cases = ((rule, finding) for rule in RULES if (finding := rule.look(seen)) is not None)
    return tuple((rule, fitting) for rule, finding in cases if (fitting := within_vmem(seen, finding)) is not None)


def edits(
    evidence: Evidence, report: Report, previous: Sequence[Row] = (), ceilings: Sequence[Ceiling] = ()
) -> tuple[Edit, ...]:
    """The edits of block sizes that the rules advise, each once; empty for a failure or an impossible time."""
    if evidence.failure is not None or report.seconds is None or report.impossible:
        return ()
    seen = observe(evidence, report, report.seconds, previous, ceilings)
    return tuple(dict.fromkeys(edit for _, finding in findings(seen) for edit in finding.edits))


def _rank(finding: RuleCase, the_hint: Hint) -> float:
    """The sorting key of a hint, as a share of the time.

    The first of these numbers that is known:

    1. the gain of a simulated edit;
    2. the bound on the gain, times the weight;
    3. the cost of the cause, times the weight.
    """
    if the_hint.gain is None:
        return finding.cost * finding.weight
    return the_hint.gain if the_hint.gain_source.startswith(SIMULATED_EDIT) else the_hint.gain * finding.weight


def observe(
    evidence: Evidence,
    report: Report,
    latency_seconds: float,
    previous: Sequence[Row] = (),
    ceilings: Sequence[Ceiling] = (),
) -> Observed:
    """The input of the rules, in which the kernel's arrays have the problem's names."""
    evidence = with_callers_names(with_compiled_sizes(evidence))
    calls = evidence.trace.pallas_calls if evidence.trace else ()
    return Observed(
        evidence=evidence,
        report=report,
        seconds=latency_seconds,
        call=calls[0] if len(calls) == 1 else None,
        run=name_lines(evidence, finished_run(evidence)),
        previous=tuple(
            row
            for row, fate in zip(previous, taken_back(previous), strict=True)
            if fate != "revoked" and (row.source, row.chip) == (report.source, report.chip)
        ),
        ceilings=tuple(ceilings),
    )
