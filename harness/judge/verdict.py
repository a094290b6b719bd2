"""Accept, reject, inconclusive or failed, with reasons: only a proven, believable gain is accepted."""

import hashlib
import json
import math
import statistics
from dataclasses import astuple

from harness.hardware import Chip
from harness.judge import roofline, stats
from harness.judge.report import changes
from harness.records import Change, Duel, Evidence, Failure, Key, Latency, Outcome, Policy, Source, Verdict
from harness.units import percent, seconds

# 1 - 0.01 and 0.99 * t / t differ in the last bits of a double; a gain of exactly the minimum effect counts.
_ROUNDING = 1e-12


def decide(candidate: Evidence, champion: Evidence | None, duel: Duel | None, policy: Policy, chip: Chip) -> Verdict:
    """The verdict on `candidate`, against `champion` (None: it is the first, and passing is enough).

    Failed: something failed, or the latency is more than `chip` can do. Inconclusive: a latency,
    a check or the pairs of `duel` are missing, or the interval does not settle it. A simulated
    gain must be at least `policy.minimum_effect`; of a measured one the whole confidence interval
    must lie beyond it. Raises ValueError where the two were not taken under the same key.
    """
    failure = candidate.failure or _failed_check(candidate) or _impossible(candidate, duel, chip)
    if failure:
        return Verdict(outcome="failed", reasons=(f"{failure.stage}: {failure.message}",), failure=failure)
    doubts = _doubts(candidate, "the candidate")
    if doubts:
        return Verdict(outcome="inconclusive", reasons=doubts)
    own = _latency(candidate)
    if champion is None:
        time = f"{seconds(_known(candidate))}, {_label(own.source, chip)}"
        reason = f"all {len(candidate.checks)} checks passed; judged on its own, against no champion: {time}"
        return Verdict(outcome="accept", reasons=(reason,))
    _require_comparable(candidate, champion, chip)
    moved = changes(candidate, champion, chip)
    doubts = _doubts(champion, "the champion")
    if doubts:
        return Verdict(outcome="inconclusive", reasons=doubts, changes=moved)
    if own.source == "simulated":
        return _simulated(_known(candidate), _known(champion), policy, chip, moved)
    return _measured(duel, own.source, policy, chip, moved)


def key_digest(key: Key) -> str:
    """Twelve hex digits that stand for `key` in tables and trailers."""
    return hashlib.sha256(json.dumps(astuple(key)).encode()).hexdigest()[:12]


def _simulated(
    candidate_seconds: float, champion_seconds: float, policy: Policy, chip: Chip, moved: tuple[Change, ...]
) -> Verdict:
    ratio = candidate_seconds / champion_seconds
    effect = policy.minimum_effect
    times = f"{seconds(candidate_seconds)} against {seconds(champion_seconds)}, {_label('simulated', chip)}"
    if ratio <= 1 - effect + _ROUNDING:
        reason = f"{percent(1 - ratio)} less time than the champion: {times}; {percent(effect)} less is enough"
        return Verdict(outcome="accept", reasons=(reason,), time_ratio=ratio, changes=moved)
    if ratio == 1:
        reason = f"exactly the champion's time: {times}"
    elif ratio < 1 + effect:
        more_or_less = "less" if ratio < 1 else "more"
        reason = (
            f"{percent(abs(1 - ratio), 2)} {more_or_less} time than the champion is within ±{percent(effect)}: "
            f"not a difference the simulator can vouch for ({times})"
        )
    else:
        reason = f"{percent(ratio - 1)} more time than the champion: {times}"
    return Verdict(outcome="reject", reasons=(reason,), time_ratio=ratio, changes=moved)


def _measured(duel: Duel | None, source: Source, policy: Policy, chip: Chip, moved: tuple[Change, ...]) -> Verdict:
    """Three outcomes by where the whole interval lies; without enough sound pairs, inconclusive."""
    if duel is None:
        reason = "the candidate was not timed in turn with the champion, and separate timings do not count"
        return Verdict(outcome="inconclusive", reasons=(reason,), changes=moved)
    try:
        ratio, low, high = stats.paired_ratio(duel)
    except ValueError as error:
        return Verdict(outcome="inconclusive", reasons=(f"the duel's samples are unusable: {error}",), changes=moved)
    pairs = len(duel.candidate_seconds)
    if pairs < stats.MINIMUM_PAIRS:
        reason = f"{pairs} pairs of timings: at least {stats.MINIMUM_PAIRS} are needed before an interval means much"
        return Verdict(outcome="inconclusive", reasons=(reason,), time_ratio=ratio, changes=moved)
    limit = 1 - policy.minimum_effect
    figures = (
        f"time ratio {ratio:.4f}, {percent(stats.CONFIDENCE, 0)} interval {low:.4f} to {high:.4f} from {pairs} pairs "
        f"({_label(source, chip)}, {duel.clock} clock)"
    )
    outcome: Outcome = "inconclusive"
    word = f"the interval straddles {limit:.4f}: too noisy, or too small a gain, to tell"
    if high <= limit + _ROUNDING:
        outcome, word = "accept", f"the whole interval is at or below {limit:.4f}"
    elif low > limit + _ROUNDING:
        outcome, word = (
            "reject",
            f"the whole interval is above {limit:.4f}: not {percent(policy.minimum_effect)} less time",
        )
    return Verdict(
        outcome=outcome,
        reasons=(f"{word}; {figures}",),
        time_ratio=ratio,
        time_ratio_low=low,
        time_ratio_high=high,
        changes=moved,
    )


def _failed_check(evidence: Evidence) -> Failure | None:
    """A check that did not pass is a failure even where the stage that ran it forgot to say so."""
    for check in evidence.checks:
        if check.error is None or check.tolerance is None:
            message = f"{check.family} ({check.mode}): the output could not be compared with the reference"
            return Failure(stage="correctness", kind="wrong-result", message=message)
        # Written so that a NaN error fails too.
        if not (check.passed and check.error <= check.tolerance):
            message = f"{check.family} ({check.mode}): error {check.error:.3g}, tolerance {check.tolerance:.3g}"
            return Failure(stage="correctness", kind="wrong-result", message=message)
    return None


def _impossible(evidence: Evidence, duel: Duel | None, chip: Chip) -> Failure | None:
    times = [time for time in (roofline.latency_seconds(evidence),) if time is not None]
    if duel is not None and duel.candidate_seconds:
        median = statistics.median(duel.candidate_seconds)
        times += [median] if math.isfinite(median) and median > 0 else []
    for time in times:
        found = roofline.impossibilities(evidence.problem.work, time, chip)
        if found:
            return Failure(stage="latency", kind="impossible", message="; ".join(found))
    return None


def _doubts(evidence: Evidence, who: str) -> tuple[str, ...]:
    """Why `evidence` cannot carry a verdict; empty if it can."""
    if evidence.failure:
        return (f"{who} failed under this key ({evidence.failure.kind}), so there is no time to compare with",)
    if not evidence.checks:
        return (f"no correctness check of {who} was run, and nothing unchecked is accepted",)
    if roofline.latency_seconds(evidence) is not None:
        return ()
    reasons = evidence.latency.reasons if evidence.latency else ()
    return (f"the latency of {who} is unknown: {'; '.join(reasons) or 'no latency was taken'}",)


def _latency(evidence: Evidence) -> Latency:
    if evidence.latency is None:
        raise ValueError("expected evidence with a latency, got none")
    return evidence.latency


def _known(evidence: Evidence) -> float:
    known = roofline.latency_seconds(evidence)
    if known is None:
        raise ValueError("expected a known latency, got none")
    return known


def _label(source: Source, chip: Chip) -> str:
    return f"{source} {chip.name}" if source != "measured cpu" else "measured cpu, which says nothing about a TPU"


def _require_comparable(candidate: Evidence, champion: Evidence, chip: Chip) -> None:
    """Raises ValueError naming what differs: the caller must evaluate the champion again under the new key."""
    sources = (_latency(candidate).source, champion.latency.source if champion.latency else _latency(candidate).source)
    pairs: list[tuple[str, object, object]] = [
        ("chip", candidate.chip, champion.chip),
        ("chip of the verdict", candidate.chip, chip.name),
        ("problem", candidate.problem, champion.problem),
        ("source", *sources),
    ]
    ours, theirs = candidate.environment, champion.environment
    pairs += [(name, getattr(ours, name), getattr(theirs, name)) for name in _environment_fields(sources[0])]
    for name, ours_value, theirs_value in pairs:
        if ours_value != theirs_value:
            raise ValueError(
                f"candidate and champion are not comparable: {name} is {ours_value} for the candidate, "
                f"{theirs_value} for the champion"
            )


def _environment_fields(source: Source) -> tuple[str, ...]:
    names = ("jax", "jaxlib", "libtpu")
    return names if source == "simulated" else (*names, "machine")
