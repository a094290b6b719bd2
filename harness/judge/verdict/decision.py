"""Accept, reject, inconclusive or failed, with reasons: only a proven, believable gain is accepted."""

import math
import statistics
from dataclasses import dataclass, replace

from harness.hardware import Chip
from harness.judge.verdict import (
    compare_measured,
    compare_resimulated,
    compare_simulated,
    crosscheck,
    members,
    roofline,
    schedule_checks,
    stats,
)
from harness.judge.verdict.changes import changes
from harness.records import Change, Evidence, Failure, Latency, PairedBenchmark, Policy, Resimulation, Source, Verdict
from harness.units import percent, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How often a gain could have come by luck: the more often, the more a verdict asks for.

    `since_accept`: the attempts since the last accept, this one included. `looked_at`: the candidates of which this one
    was the fastest.
    """

    since_accept: int = 1
    looked_at: int = 1


_ONE_TRY = Tries()


def decide(
    candidate: Evidence,
    champion: Evidence | None,
    paired: PairedBenchmark | None,
    policy: Policy,
    chip: Chip,
    resimulated: tuple[Resimulation, ...] = (),
    tries: Tries = _ONE_TRY,
) -> Verdict:
    """The verdict on `candidate`, against `champion` (None: it is the first, and passing is enough).

    Failed: something failed, or the latency is more than `chip` can do. Inconclusive: a latency,
    a check or the pairs of `paired` are missing, or the interval does not settle it. A simulated
    gain must be at least `policy.minimum_effect`, beyond what the simulator is uncertain of, and there in
    each of `resimulated`, the pair under each constant that is in doubt (without them it is inconclusive), and no
    member of a suite may take more time than it may lose, there neither. The fastest of several candidates (`tries`) is
    asked for more, because choosing by simulated times chooses their errors too. Of
    a measured one the whole confidence interval must lie beyond it, an interval that is the wider
    the more attempts there were since the last accept.
    Raises ValueError where the two were not taken under the same key.
    """
    failure = candidate.failure or _found_failing(candidate, paired, chip)
    if failure:
        return Verdict(outcome="failed", reasons=(f"{failure.stage}: {failure.message}",), failure=failure)
    if candidate.unchecked and champion is not None and is_slower(candidate, champion, policy, chip):
        return _slower(candidate, champion, policy, chip)
    doubts = _doubts(candidate, "the candidate") or _barely_possible(candidate, chip)
    if doubts:
        return Verdict(outcome="inconclusive", reasons=doubts)
    own = _latency(candidate)
    if champion is None:
        time = f"{seconds(_known_seconds(candidate))}, {_label(own.source, chip)}"
        reason = f"all {len(candidate.all_checks)} checks passed; judged on its own, against no champion: {time}"
        return Verdict(outcome="accept", reasons=(reason,))
    _require_comparable(candidate, champion, chip)
    moved = changes(candidate, champion)
    doubts = _doubts(champion, "the champion")
    if doubts:
        return Verdict(outcome="inconclusive", reasons=doubts, changes=moved)
    if own.source == "simulated":
        verdict = _simulated(candidate, champion, policy, chip, moved, tries.looked_at)
        return (
            compare_resimulated.judged(verdict, candidate, champion, resimulated)
            if verdict.outcome == "accept"
            else verdict
        )
    return _measured(candidate, champion, paired, policy, chip, tries.since_accept, moved)


def is_simulated_gain(candidate: Evidence, champion: Evidence, policy: Policy, chip: Chip) -> bool:
    """Whether the candidate would be accepted for its simulated time, so that it is worth simulating the pair again.

    Raises ValueError where the two were not taken under the same key.
    """
    if candidate.latency is None or candidate.latency.source != "simulated":
        return False
    if decide(candidate, None, None, policy, chip).outcome != "accept" or _doubts(champion, "the champion"):
        return False
    _require_comparable(candidate, champion, chip)
    return _simulated(candidate, champion, policy, chip, ()).outcome == "accept"


def is_slower(candidate: Evidence, champion: Evidence, policy: Policy, chip: Chip) -> bool:
    """Whether the whole interval of the candidate's simulated time lies above the champion's time.

    Or whether a member of a suite takes more time than it may. Then no check can make it a win, and those that are
    left need not be run. Never where a time is unknown, or not simulated, or the champion's evidence carries no
    verdict. Raises ValueError where the two are not comparable.
    """
    if candidate.latency is None or candidate.latency.source != "simulated" or _doubts(champion, "the champion"):
        return False
    if roofline.latency_seconds(candidate) is None:
        return False
    _require_comparable(candidate, champion, chip)
    verdict = _simulated(candidate, champion, policy, chip, ())
    low = verdict.time_ratio_low
    return (low is not None and low > 1) or bool(_losers(candidate, verdict, chip))


def _slower(candidate: Evidence, champion: Evidence, policy: Policy, chip: Chip) -> Verdict:
    """The rejection of a candidate for its time alone; it says how much of it was checked."""
    verdict = _simulated(candidate, champion, policy, chip, changes(candidate, champion))
    run = len(candidate.all_checks)
    slower = "slower" if verdict.time_ratio is None or verdict.time_ratio > 1 else "too slow at a member"
    reason = (
        f"{slower}, {run} of {run + len(candidate.unchecked)} checks run: whether it is right at the contest's own "
        "shape was not asked"
    )
    return replace(verdict, outcome="reject", reasons=(*verdict.reasons, reason))


def _simulated(
    candidate: Evidence,
    champion: Evidence,
    policy: Policy,
    chip: Chip,
    moved: tuple[Change, ...],
    looked_at: int = 1,
) -> Verdict:
    ours, theirs = _known_seconds(candidate), _known_seconds(champion)
    ruling = compare_simulated.rule(theirs, ours, compare_simulated.uncertainty(candidate, champion), policy, looked_at)
    times = f"{seconds(ours)} against {seconds(theirs)}, {_label('simulated', chip)}"
    mean = ", weighted geometric means over the suite" if candidate.members else ""
    verdict = Verdict(
        outcome=ruling.outcome,
        reasons=(f"{ruling.reason}: {times}{mean}",),
        time_ratio=ruling.ratio,
        time_ratio_low=ruling.low,
        time_ratio_high=ruling.high,
        changes=moved,
        members=members.times(candidate, champion),
    )
    losing = _losers(candidate, verdict, chip)
    if not losing:
        return verdict
    # What rejects it is said first: the mean, or a gain of the mean that costs a member too much.
    is_lost = verdict.outcome == "reject"
    reasons = (*verdict.reasons, *losing) if is_lost else (*losing, *verdict.reasons)
    return replace(verdict, outcome="reject", reasons=reasons)


def _losers(candidate: Evidence, verdict: Verdict, chip: Chip) -> tuple[str, ...]:
    return members.losers(candidate.problem, verdict.members, _label("simulated", chip))


def _measured(
    candidate: Evidence,
    champion: Evidence,
    paired: PairedBenchmark | None,
    policy: Policy,
    chip: Chip,
    attempts: int,
    moved: tuple[Change, ...],
) -> Verdict:
    """Three outcomes by where the whole interval lies; without enough sound pairs, inconclusive."""
    source = _latency(candidate).source
    if paired is None:
        reason = "the candidate was not timed in turn with the champion, and separate timings do not count"
        return Verdict(outcome="inconclusive", reasons=(reason,), changes=moved)
    ruling = compare_measured.rule(paired, policy, attempts)
    outcome = ruling.outcome
    reasons = [f"{ruling.reason} ({_label(source, chip)}, {paired.clock} clock)", _certainty(paired, policy, attempts)]
    if outcome == "accept" and source == "measured" and paired.clock == "host":
        outcome = "inconclusive"
        reasons.insert(0, "host time alone does not tell a faster kernel from a faster dispatch: no device time")
    host_only = _host_only(candidate, champion, paired, policy, attempts)
    if host_only and outcome != "accept" and ruling.ratio is not None:
        reasons.insert(0, host_only)
    return Verdict(
        outcome=outcome,
        reasons=tuple(reasons),
        time_ratio=ruling.ratio,
        time_ratio_low=ruling.low,
        time_ratio_high=ruling.high,
        changes=moved,
        attempts_since_accept=attempts,
        error_rate=stats.attempt_error(policy, attempts),
    )


def _certainty(paired: PairedBenchmark, policy: Policy, attempts: int) -> str:
    """How sure the interval had to be, and why so sure."""
    missed = 2 * stats.look_error(policy, attempts)
    # As many digits as it takes to tell it from 100 %.
    digits = max(0, -math.floor(math.log10(missed)) - 2)
    return (
        f"attempt {attempts} since the last accept, look {paired.looks} of at most {len(policy.looks)}: intervals of "
        f"{percent(1 - missed, digits)}, so that the chance that luck alone is accepted before the next real gain "
        f"is at most {percent(policy.false_accept_rate)}, however often it is tried"
    )


def _host_only(candidate: Evidence, champion: Evidence, paired: PairedBenchmark, policy: Policy, attempts: int) -> str:
    """The sentence on a gain that the host's clock shows and the device's does not; empty if there is none."""
    if paired.clock != "device" or candidate.samples is None or champion.samples is None:
        return ""
    old, new = champion.samples.host_seconds, candidate.samples.host_seconds
    try:
        ratio, low, high = stats.paired_ratio(old, new, stats.look_error(policy, attempts))
    except ValueError:
        # Host times are told, not judged: where there are none there is nothing to tell.
        return ""
    if len(new) < stats.MINIMUM_PAIRS or high > 1 - policy.minimum_effect:
        return ""
    return (
        "host-only: the host waits less, the device does not work less, so what got faster is dispatch or transfer "
        f"and not the kernel; host time ratio {compare_measured.interval_text(ratio, low, high, len(new))}"
    )


def _found_failing(candidate: Evidence, paired: PairedBenchmark | None, chip: Chip) -> Failure | None:
    """What no stage called a failure and is one all the same; of a suite that of the first member that has one."""
    for name, evidence in candidate.programs:
        failure = (
            _failed_check(evidence)
            or crosscheck.failure(evidence)
            or schedule_checks.failure(evidence)
            or _impossible(evidence, paired, chip)
        )
        if failure:
            return replace(failure, message=f"{name}: {failure.message}") if name else failure
    return None


def _failed_check(evidence: Evidence) -> Failure | None:
    """A check that did not pass is a failure even where the stage that ran it forgot to say so."""
    for check in evidence.checks:
        if check.error is None or check.tolerance is None:
            message = f"{check.family} ({check.mode_words}): the output could not be compared with the reference"
            return Failure(stage="correctness", kind="wrong-result", message=message)
        if not check.elements:
            message = f"{check.family} ({check.mode_words}): nothing was compared, and nothing unchecked is accepted"
            return Failure(stage="correctness", kind="nothing-compared", message=message)
        # Written so that a NaN error fails too.
        if not (check.passed and check.error <= check.tolerance):
            message = f"{check.family} ({check.mode_words}): error {check.error:.3g}, tolerance {check.tolerance:.3g}"
            return Failure(stage="correctness", kind="wrong-result", message=message)
    return None


def _impossible(evidence: Evidence, paired: PairedBenchmark | None, chip: Chip) -> Failure | None:
    times = [time for time in (roofline.latency_seconds(evidence),) if time is not None]
    if paired is not None and paired.candidate_seconds:
        median = statistics.median(paired.candidate_seconds)
        times += [median] if math.isfinite(median) and median > 0 else []
    for time in times:
        found = roofline.impossibilities(evidence.problem.work, time, chip)
        found += roofline.beyond_bandwidth(evidence, time, chip)
        if found:
            return Failure(stage="latency", kind="impossible", message="; ".join(found))
    return None


def _barely_possible(evidence: Evidence, chip: Chip) -> tuple[str, ...]:
    """Doubt where the low end of a measured time is more than `chip` can do: then the clock may be wrong in all of it.

    A simulated time has no such low end: its schedule is one that the chip can issue, and how far
    hardware may be from it says nothing against it.
    """
    time = evidence.latency
    if time is None or time.seconds is None or not time.plus_minus_seconds or time.source == "simulated":
        return ()
    low = time.seconds - time.plus_minus_seconds
    found = roofline.impossibilities(evidence.problem.work, low, chip) if low > 0 else ("its interval reaches zero",)
    return tuple(f"the low end of the measured time is not possible: {sentence}" for sentence in found)


def _doubts(evidence: Evidence, who: str) -> tuple[str, ...]:
    """Why `evidence` cannot carry a verdict; empty if it can."""
    if evidence.failure:
        return (f"{who} failed under this key ({evidence.failure.kind}), so there is no time to compare with",)
    if evidence.unchecked:
        return (f"{len(evidence.unchecked)} checks of {who} were not run, and nothing unchecked is accepted",)
    if len(evidence.members) != len(evidence.problem.members or ()):
        return (f"not every member of the suite was evaluated of {who}, and nothing unchecked is accepted",)
    if evidence.members:
        doubts = (_doubts(member, f"{who} at {named.name}") for named, member in evidence.named_members)
        return tuple(doubt for each in doubts for doubt in each) or _without_time(evidence, who)
    if not evidence.checks:
        return (f"no correctness check of {who} was run, and nothing unchecked is accepted",)
    if unknown := schedule_checks.doubts(evidence):
        return unknown
    return _without_time(evidence, who)


def _without_time(evidence: Evidence, who: str) -> tuple[str, ...]:
    if roofline.latency_seconds(evidence) is not None:
        return ()
    reasons = evidence.latency.reasons if evidence.latency else ()
    return (f"the latency of {who} is unknown: {'; '.join(reasons) or 'no latency was taken'}",)


def _latency(evidence: Evidence) -> Latency:
    if evidence.latency is None:
        raise ValueError("expected evidence with a latency, got none")
    return evidence.latency


def _known_seconds(evidence: Evidence) -> float:
    known = roofline.latency_seconds(evidence)
    if known is None:
        raise ValueError("expected a known latency, got none")
    return known


def _label(source: Source, chip: Chip) -> str:
    return f"{source} {chip.name}" if source != "measured cpu" else f"{source}, which says nothing about a {chip.kind}"


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
