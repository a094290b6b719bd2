"""Judges a suite step by step, each step for all members, so that cheap checks precede expensive checks."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.judge.evaluate.request import Listener
from harness.judge.evaluate.state import COMPARE, DEVICE, TRACE
from harness.judge.evaluate.walk import Evaluation
from harness.operators import Suite
from harness.records import Claims, Evidence, Failure, Latency, Statement, Trace


def evaluate_suite(suite: Suite, evaluations: Sequence[Evaluation], listener: Listener) -> Evidence:
    """The evidence about a suite, from an evaluation of each member, up to the first member that fails.

    The steps are: the trace; checks at reduced shapes, compilation and simulation; and checks at the full shape. If
    `listener.is_slower` returns True for the evidence after the second step, no full shape is checked.
    """
    statement = suite.statement()

    def combine_first(count: int) -> Evidence:
        return combined(statement, [each.ended() for each in evaluations[:count]])

    for step in (TRACE, COMPARE, DEVICE):
        if step == DEVICE and listener.is_slower is not None and listener.is_slower(combine_first(len(evaluations))):
            for each in evaluations:
                each.stop()
            break
        for place, each in enumerate(evaluations, 1):
            each.until(step)
            if each.state.failures:
                return combine_first(place)
        if step == TRACE:
            trace = _trace(statement, [each.state.evidence for each in evaluations])
            assert trace is not None
            listener.after_trace(trace)
    return combine_first(len(evaluations))


def combined(suite: Statement, members: Sequence[Evidence]) -> Evidence:
    """The evidence about a suite, from the evidence of its first members in order. The last member may have failed."""
    names = [member.name for member in suite.members or ()]
    named = [*zip(names, members, strict=False)]
    first, failure = members[0], members[-1].failure
    return Evidence(
        problem=suite,
        chip=first.chip,
        environment=first.environment,
        claims=Claims(kernel_name=first.claims.kernel_name, problem_description=suite.title, flops=None, tiling=None)
        if first.claims
        else None,
        trace=_trace(suite, members),
        warnings=_merge_warnings((name, evidence.warnings) for name, evidence in named),
        latency=_latency(suite, named),
        stages=tuple(
            replace(stage, stage=f"{name} {stage.stage}") for name, evidence in named for stage in evidence.stages
        ),
        failure=of_member(names[len(members) - 1], failure),
        isolation=first.isolation,
        unchecked=_named((name, evidence.unchecked) for name, evidence in named),
        members=tuple(members),
    )


def of_member(name: str, failure: Failure | None) -> Failure | None:
    """The member's failure as a failure of the suite: the message begins with the member's name. None if no failure."""
    return replace(failure, message=f"{name}: {failure.message}") if failure else None


def _trace(suite: Statement, members: Sequence[Evidence]) -> Trace | None:
    """The traces of all members as one Trace; None if a member has no trace."""
    traces = [evidence.trace for evidence in members if evidence.trace is not None]
    if len(traces) < len(suite.members or ()):
        return None
    return Trace(
        fingerprint=hashlib.sha256(json.dumps([trace.fingerprint for trace in traces]).encode()).hexdigest(),
        pallas_calls=(),
        pallas_flops=sum(trace.pallas_flops for trace in traces),
        outside_flops=sum(trace.outside_flops for trace in traces),
        exponentials=sum(trace.exponentials for trace in traces),
        seconds=sum(trace.seconds for trace in traces),
        imported=tuple(dict.fromkeys(each for trace in traces for each in trace.imported)),
        sources=tuple(dict.fromkeys(each for trace in traces for each in trace.sources)),
    )


def _latency(suite: Statement, named: Sequence[tuple[str, Evidence]]) -> Latency | None:
    """The weighted geometric mean of the members' times; None if a member has no latency.

    The relative error of this mean is the weighted mean of the members' relative errors. These errors do not average
    out, because the simulator errs in the same way at all shapes.
    """
    times = [evidence.latency for _, evidence in named if evidence.latency is not None]
    if len(times) < len(suite.members or ()):
        return None
    seconds = [time.seconds for time in times if time.seconds]
    if len(seconds) < len(times):
        reasons = _named((name, evidence.latency.reasons) for name, evidence in named if evidence.latency)
        return Latency(source="simulated", seconds=None, plus_minus_seconds=None, reasons=reasons)
    mean = suite.mean(seconds)
    off = [time.plus_minus_seconds / time.seconds for time in times if time.plus_minus_seconds and time.seconds]
    weights = [member.weight for member in suite.members or ()]
    relative = sum(weight * each for weight, each in zip(weights, off, strict=True)) if len(off) == len(times) else None
    return Latency(
        source="simulated",
        seconds=mean,
        plus_minus_seconds=None if relative is None else relative * mean,
        reasons=(f"weighted geometric mean over {', '.join(name for name, _ in named)}",),
    )


def _merge_warnings(sentences: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Sentences on members, each with the member's name; a sentence on all members appears once, without names."""
    each = [*sentences]
    of_all = [sentence for sentence in each[0][1] if all(sentence in others for _, others in each)]
    of_members = [(name, tuple(sentence for sentence in others if sentence not in of_all)) for name, others in each]
    return (*of_all, *_named(of_members))


def _named(sentences: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    return tuple(f"{name}: {sentence}" for name, others in sentences for sentence in others)
