"""The ruling on a paired benchmark. It tests the control first, then the whole interval against the minimum effect."""

import math
from collections.abc import Sequence

from harness.judge.verdict import sign_test
from harness.judge.verdict.ruling import ROUNDING, Ruling
from harness.records import Outcome, PairedBenchmark, Policy, Row, Source
from harness.units import percent

# The tolerated difference between the champion and the control (the champion again), as a share of the minimum effect.
# The two may differ a little, because their buffers are at different places. A tenth lowers the gain that an accept
# proves from 1 % to 0.9 %, so equal programs are still not accepted.
_TOLERATED_SHARE = 0.1


def rule(paired: PairedBenchmark, policy: Policy, attempts_since_accept: int) -> Ruling:
    """The ruling on the pairs so far; `attempts_since_accept` is the attempt's number since the last accept, from 1.

    This function is called after each batch of a running paired benchmark, and again for the finished record. The same
    pairs give the same ruling. Each end of the interval misses the true ratio with probability `sign_test.look_error`.
    The control is judged with the error rate of a first attempt. This is the largest rate, so on the same samples the
    control's interval is never wider than the interval of a verdict. The control raises a false alarm in at most a
    fraction `policy.false_accept_rate` of all paired benchmarks.
    """
    try:
        unusable = _unusable(paired, policy)
        if unusable:
            return _inconclusive(unusable)
        error = sign_test.look_error(policy, attempts_since_accept)
        ratio, low, high = sign_test.paired_ratio(paired.champion_seconds, paired.candidate_seconds, error)
        against_itself = sign_test.paired_ratio(
            paired.champion_seconds, paired.control_seconds, sign_test.look_error(policy, attempts_since_accept=1)
        )
    except ValueError as fault:
        return _inconclusive(f"the paired benchmark's samples are unusable: {fault}")
    pairs = len(paired.candidate_seconds)
    control = "the champion against itself: " + interval_text(*against_itself, pairs)
    _, control_low, control_high = against_itself
    tolerated = _TOLERATED_SHARE * policy.minimum_effect
    if pairs >= sign_test.MINIMUM_PAIRS and not (control_low <= 1 + tolerated and control_high >= 1 - tolerated):
        return _inconclusive(f"the machine is too noisy: the champion, loaded twice, takes different times ({control})")
    limit = 1 - policy.minimum_effect
    outcome: Outcome = "inconclusive"
    if pairs < sign_test.MINIMUM_PAIRS:
        reason = f"{pairs} pairs of timings, but a meaningful interval needs at least {sign_test.MINIMUM_PAIRS}"
    elif high <= limit + ROUNDING:
        outcome, reason = "accept", f"the whole interval is at or below {limit:.4f}"
    elif low > limit + ROUNDING:
        outcome = "reject"
        reason = f"the whole interval is above {limit:.4f}: the gain is below {percent(policy.minimum_effect)}"
    elif control_high - control_low > policy.minimum_effect:
        reason = f"the machine is too noisy to show a gain of {percent(policy.minimum_effect)} ({control})"
    else:
        reason = f"the interval straddles {limit:.4f}: the gain may or may not reach {percent(policy.minimum_effect)}"
    figures = f"time ratio {interval_text(ratio, low, high, pairs)}"
    return Ruling(
        outcome=outcome,
        reason=f"{reason}; {figures}",
        is_final=outcome != "inconclusive",
        ratio=ratio,
        low=low,
        high=high,
    )


def attempts_since_accept(rows: Sequence[Row], source: Source) -> int:
    """The next attempt's number, counted from 1 after the last accept. Counts attempts that luck could have accepted.

    Repeats of one program count like any other attempt. An undo or a revoke does not restart the count. An attempt that
    failed, or whose time has another source, does not count, because it was not timed against the champion.
    """
    last = max((row.number for row in rows if row.is_title), default=0)
    since = [row for row in rows if row.number > last and row.kind == "experiment" and row.source == source]
    return 1 + sum(row.outcome != "failed" for row in since)


def interval_text(ratio: float, low: float, high: float, pairs: int) -> str:
    """The ratio in words, such as `0.9702, interval 0.9690 to 0.9715 from 40 pairs`."""
    if math.isinf(high):
        return f"{ratio:.4f}, no interval from {pairs} pairs: too few for the required certainty"
    return f"{ratio:.4f}, interval {low:.4f} to {high:.4f} from {pairs} pairs"


def _unusable(paired: PairedBenchmark, policy: Policy) -> str:
    """The reason why no ruling can follow from this paired benchmark; empty if there is no such reason."""
    if not paired.control_seconds:
        return "the champion was not timed against itself, so the noise of the machine is unknown"
    if paired.looks > len(policy.looks):
        return f"the samples were looked at {paired.looks} times, but the policy allows only {len(policy.looks)}"
    return ""


def _inconclusive(reason: str) -> Ruling:
    return Ruling(outcome="inconclusive", reason=reason, is_final=True)
