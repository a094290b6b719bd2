"""Accept, reject, inconclusive or failed, with reasons: only a proven, believable gain is accepted.

Rules: compare_simulated.py for two simulated times, compare_resimulated.py for uncertain constants, and
compare_measured.py for measured pairs. The least gain and all limits are in records/judging_limits.py.
"""

import itertools
import math
import statistics
from dataclasses import dataclass, replace

from harness.hardware import Chip
from harness.judge.verdict import (
    comparable,
    compare_measured,
    compare_resimulated,
    compare_simulated,
    crosscheck,
    early_rejection,
    roofline,
    schedule_checks,
    sign_test,
)
from harness.judge.verdict.changes import changes
from harness.records import Change, Evidence, Failure, PairedBenchmark, Policy, Resimulation, Verdict
from harness.units import percent, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """The numbers of tries that could have given a gain by chance. The larger they are, the more a verdict requires.

    `since_accept` is the number of attempts since the last accept, this one included. `looked_at` is the number of
    candidates among which this one was the fastest.
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
    """The verdict on `candidate` against `champion`. If `champion` is None, the candidate must only pass all checks.

    - Failed: a stage or a check failed, the compiled program lacks work or breaks a rule, or the latency is impossible
      on `chip`.
    - Inconclusive: a latency, a check or the pairs of `paired` are missing, or the interval allows neither accept nor
      reject.
    - Accepted for a simulated gain: it is at least `policy.minimum_effect`, exceeds the simulator's uncertainty, and
      exists in each run of `resimulated`. In these runs one uncertain constant is changed; without them, the verdict is
      inconclusive. Each member of a suite may lose at most `may_lose`, also in these runs. The fastest of several
      candidates (`tries`) must gain more than a single candidate, because a choice by simulated times also selects
      simulator errors.
    - Accepted for a measured gain: the whole confidence interval of the gain is at or above the minimum effect. The
      interval widens with each attempt since the last accept.

    Raises ValueError if the two are not comparable.
    """
    failure = candidate.failure or _found_failing(candidate, paired, chip)
    if failure:
        return Verdict(outcome="failed", reasons=(_reason(failure),), failure=failure)
    if candidate.unchecked and champion is not None and early_rejection.is_slower(candidate, champion, policy, chip):
        return early_rejection.rejection(candidate, champion, policy, chip)
    doubts = comparable.doubts(candidate, "the candidate") or comparable.barely_possible(candidate, chip)
    if doubts:
        return Verdict(outcome="inconclusive", reasons=doubts)
    candidate_latency = comparable.latency(candidate)
    if champion is None:
        time = f"{seconds(comparable.known_seconds(candidate))}, {comparable.label(candidate_latency.source, chip)}"
        reason = f"all {len(candidate.all_checks)} checks passed; judged on its own, against no champion: {time}"
        return Verdict(outcome="accept", reasons=(reason,))
    comparable.require_comparable(candidate, champion, chip)
    moved = changes(candidate, champion)
    doubts = comparable.doubts(champion, "the champion")
    if doubts:
        return Verdict(outcome="inconclusive", reasons=doubts, changes=moved)
    if candidate_latency.source == "simulated":
        verdict = compare_simulated.verdict(candidate, champion, policy, chip, moved, tries.looked_at)
        if verdict.outcome != "accept":
            return verdict
        return compare_resimulated.judged(verdict, candidate, champion, resimulated)
    return _measured(candidate, champion, paired, policy, chip, tries.since_accept, moved)


def is_simulated_gain(candidate: Evidence, champion: Evidence, policy: Policy, chip: Chip) -> bool:
    """True if the candidate would be accepted for its simulated time. Only then is the pair simulated again.

    Raises ValueError if the two are not comparable.
    """
    if candidate.latency is None or candidate.latency.source != "simulated":
        return False
    if decide(candidate, None, None, policy, chip).outcome != "accept" or comparable.doubts(champion, "the champion"):
        return False
    comparable.require_comparable(candidate, champion, chip)
    return compare_simulated.verdict(candidate, champion, policy, chip, ()).outcome == "accept"


def _measured(
    candidate: Evidence,
    champion: Evidence,
    paired: PairedBenchmark | None,
    policy: Policy,
    chip: Chip,
    attempts: int,
    moved: tuple[Change, ...],
) -> Verdict:
    """The verdict from the position of the whole interval; inconclusive without enough usable pairs."""
    source = comparable.latency(candidate).source
    if paired is None:
        reason = "candidate and champion were not timed in turns, and separate timings do not count"
        return Verdict(outcome="inconclusive", reasons=(reason,), changes=moved)
    ruling = compare_measured.rule(paired, policy, attempts)
    outcome = ruling.outcome
    reasons = [
        f"{ruling.reason} ({comparable.label(source, chip)}, {paired.clock} clock)",
        _certainty(paired, policy, attempts),
    ]
    if outcome == "accept" and source == "measured" and paired.clock == "host":
        outcome = "inconclusive"
        doubt = "there is no device time, and host time alone cannot tell a faster kernel from a faster dispatch"
        reasons.insert(0, doubt)
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
        error_rate=sign_test.attempt_error(policy, attempts),
    )


def _certainty(paired: PairedBenchmark, policy: Policy, attempts: int) -> str:
    """The required certainty of the interval, and the reason for it, in words."""
    missed = 2 * sign_test.look_error(policy, attempts)
    # The number of digits that distinguish the certainty from 100 %.
    digits = max(0, -math.floor(math.log10(missed)) - 2)
    return (
        f"attempt {attempts} since the last accept, look {paired.looks} of at most {len(policy.looks)}: intervals of "
        f"{percent(1 - missed, digits)}, so that the chance of an accept by luck before the next real gain is at most "
        f"{percent(policy.false_accept_rate)}, however many attempts are made"
    )


def _host_only(candidate: Evidence, champion: Evidence, paired: PairedBenchmark, policy: Policy, attempts: int) -> str:
    """A sentence on the gain in host time, for a verdict without a gain in device time; "" if there is neither gain."""
    if paired.clock != "device" or candidate.samples is None or champion.samples is None:
        return ""
    old, new = champion.samples.host_seconds, candidate.samples.host_seconds
    try:
        ratio, low, high = sign_test.paired_ratio(old, new, sign_test.look_error(policy, attempts))
    except ValueError:
        # Host times are only reported, not judged. Without usable host times, there is nothing to report.
        return ""
    if len(new) < sign_test.MINIMUM_PAIRS or high > 1 - policy.minimum_effect:
        return ""
    return (
        "host-only: the host waits less, but the device's clock proves no gain of the kernel; dispatch or transfer may "
        f"have got faster; host time ratio {compare_measured.interval_text(ratio, low, high, len(new))}"
    )


def _reason(failure: Failure) -> str:
    """Stage and message. If the message ends with a colon, the next line of the detail is appended.

    The compiler's errors have the cause in that line: `CompileTimeMosaicMisalignedBlockAndTiling:`, then the tiling.
    """
    lines = failure.detail.splitlines() if failure.message.endswith(":") else []
    cause = next((after for line, after in itertools.pairwise(lines) if line.endswith(failure.message)), "")
    return f"{failure.stage}: {failure.message} {cause.strip()}".rstrip()


def _found_failing(candidate: Evidence, paired: PairedBenchmark | None, chip: Chip) -> Failure | None:
    """The failure of the candidate, even if no stage reported it; for a suite, that of the first failing member."""
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
    """The failure of the first check that did not pass, even if its stage reported no failure; otherwise None."""
    for check in evidence.checks:
        kind = "wrong-result"
        if check.error is None or check.tolerance is None:
            fault = "the output could not be compared with the reference"
        elif not check.elements:
            kind, fault = "nothing-compared", "nothing was compared, and nothing unchecked is accepted"
        # The comparison is negated, so that a NaN error fails.
        elif not (check.passed and check.error <= check.tolerance):
            fault = f"error {check.error:.3g}, tolerance {check.tolerance:.3g}"
        else:
            continue
        return Failure(stage="correctness", kind=kind, message=f"{check.family} ({check.mode_words}): {fault}")
    return None


def _impossible(evidence: Evidence, paired: PairedBenchmark | None, chip: Chip) -> Failure | None:
    times = [time for time in (roofline.latency_seconds(evidence),) if time is not None]
    if paired is not None and paired.candidate_seconds:
        median = statistics.median(paired.candidate_seconds)
        times += [median] if math.isfinite(median) and median > 0 else []
    for time in times:
        reasons = roofline.impossibilities(evidence.problem.work, time, chip)
        reasons += roofline.beyond_bandwidth(evidence, time, chip)
        if reasons:
            return Failure(stage="latency", kind="impossible", message="; ".join(reasons))
    return None
