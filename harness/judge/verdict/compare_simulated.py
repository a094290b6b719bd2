"""The ruling on two simulated times. A gain must be large enough, and exceed the simulator's uncertainty.

The same program always takes the same simulated time. So simulating again involves no chance and cannot narrow an
interval. The only uncertainty is the error of the simulator's model (a latency, a queue, a clock). Two programs share
most of this error. The rest comes from differences between the programs, and is zero for equal schedules.

One could expect the error of a pair to be proportional to the change, plus a floor: c g + f for a gain g. Then the sign
of g would be known to k deviations if g >= k (c g + f), that is if g >= k f / (1 - k c). The part c g would only raise
the required gain by a factor; only the floor f would hide small gains.

The published times do not show such a proportional part. The published pairs most similar to a champion and its
candidate are two kernels for one problem. The ratios of such pairs are off by 1 to 8 %, about as much as the single
times (benchmarks/FIDELITY.md). So the whole error is treated as the floor f, which does not shrink with the change.
This is cautious, because champion and candidate are often more similar than any published pair. Each record states one
number: one standard deviation of the time ratio of two kernels for one problem. The judge uses the larger of the two
records' numbers.

A search presents the fastest of many candidates, and so also selects favourable simulator errors. Suppose that none of
n candidates is truly faster, and that their errors are normal and independent. Then all of them stay below k deviations
with the probability Phi(k)^n, where Phi is the normal distribution function. To keep this probability equal for every
n, the fastest of n must exceed k_n = Phi^-1(Phi(k_1)^(1/n)) deviations: 1 for one candidate, 2.1 for ten, 2.9 for a
hundred. Settings of one kernel share much of their error, so they count as fewer than n independent candidates. Using
the full n is cautious too.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

from harness.hardware import Chip
from harness.judge.verdict import comparable, members
from harness.judge.verdict.members import is_same_program, pairs
from harness.judge.verdict.ruling import ROUNDING, Ruling
from harness.records import Change, Evidence, Outcome, Policy, Simulation, Verdict
from harness.records.report_words import threshold_words
from harness.units import percent, seconds

# The number of standard deviations that a gain must exceed. One deviation is enough, because the deviation in a record
# is probably too large: it was derived from pairs of kernels by different authors, which differ more than a champion
# and its candidate. With a larger number, nearly every gain of a single change would be refused. A candidate that is no
# faster, but differs as much as those pairs, exceeds one deviation in one case out of six. Only a device can detect
# such a false gain.
_DEVIATIONS = 1.0


def deviations(looked_at: int) -> float:
    """The number of standard deviations that the gain of the fastest of `looked_at` candidates must exceed.

    Raises ValueError below 1.
    """
    if looked_at < 1:
        raise ValueError(f"expected at least one candidate (this one), got {looked_at}")
    normal = NormalDist()
    return normal.inv_cdf(normal.cdf(_DEVIATIONS) ** (1 / looked_at))


def rule(
    champion_seconds: float, candidate_seconds: float, uncertainty: float | None, policy: Policy, looked_at: int = 1
) -> Ruling:
    """The ruling on two simulated times whose ratio has this relative `uncertainty` (None: unknown).

    A gain below the minimum effect is rejected. A larger gain is accepted if the whole interval ratio * (1 -+ k
    uncertainty) is below 1, and inconclusive otherwise. k is `deviations(looked_at)`, for the fastest of `looked_at`
    candidates.
    """
    ratio, effect = candidate_seconds / champion_seconds, policy.minimum_effect
    reach = math.inf if uncertainty is None else deviations(looked_at) * uncertainty
    low, high = max(0.0, ratio * (1 - reach)), ratio * (1 + reach)
    outcome: Outcome = "reject"
    reason = f"{percent(ratio - 1)} more time than the champion"
    if ratio == 1:
        reason = "exactly the champion's time"
    elif ratio < 1 + effect:
        more_or_less = "less" if ratio < 1 else "more"
        least = threshold(uncertainty, policy, looked_at)
        reason = f"{percent(abs(1 - ratio), 2)} {more_or_less} time than the champion; {least}"
    if ratio <= 1 - effect + ROUNDING:
        outcome = "accept" if high < 1 else "inconclusive"
        if outcome == "inconclusive":
            larger = "" if uncertainty is None else "try a larger change, or "
            reason += f"; {larger}measure on a device"
    is_bounded = math.isfinite(high)
    return Ruling(
        outcome=outcome,
        reason=reason,
        is_final=True,
        ratio=ratio,
        low=low if is_bounded else None,
        high=high if is_bounded else None,
    )


def least_gain(uncertainty: float, policy: Policy, looked_at: int = 1) -> float:
    """The share of the champion's time that a candidate must save, as in `rule`."""
    return max(policy.minimum_effect, 1 - 1 / (1 + deviations(looked_at) * uncertainty))


def threshold(uncertainty: float | None, policy: Policy, looked_at: int = 1) -> str:
    """`least_gain` in words, with the numbers that it comes from."""
    if uncertainty is None:
        doubt = "not recorded"
    elif looked_at == 1:
        doubt = f"{percent(uncertainty)} of the ratio, one sigma"
    else:
        sigmas = f"{deviations(looked_at):.2f} x {percent(uncertainty)}"
        doubt = f"{sigmas} of the ratio, for the fastest of {looked_at} candidates"
    least = None if uncertainty is None else least_gain(uncertainty, policy, looked_at)
    sources = f"minimum effect {percent(policy.minimum_effect)}, simulator uncertainty {doubt}"
    return f"{threshold_words(least)} ({sources})"


def uncertainty(candidate: Evidence, champion: Evidence) -> float | None:
    """One standard deviation of the pair's time ratio, as a fraction of the ratio; None if a record does not state it.

    For a suite, it is the weighted mean of the members' deviations. Errors do not average out, because the simulator
    errs in the same way at all shapes. A member with the champion's program has no uncertainty.
    """
    if candidate.members:
        of_members = [
            0.0 if is_same_program(ours, theirs) else _of_one(ours, theirs)
            for (_, ours), (_, theirs) in pairs(candidate, champion)
        ]
        return _mean(candidate, of_members)
    return _of_one(candidate, champion)


def uncertainty_of(evidence: Evidence) -> float | None:
    """`uncertainty` of a pair, as far as one record of the pair states it."""
    if evidence.members:
        return _mean(evidence, [_of_one(each, each) for _, each in evidence.named_members])
    return _of_one(evidence, evidence)


def _mean(suite: Evidence, of_members: Sequence[float | None]) -> float | None:
    if None in of_members:
        return None
    weights = [member.weight for member, _ in suite.named_members]
    return sum(weight * (each or 0.0) for weight, each in zip(weights, of_members, strict=True))


def _of_one(candidate: Evidence, champion: Evidence) -> float | None:
    runs = (candidate.simulation, champion.simulation)
    uncertainties = [_relative(run) for run in runs if run is not None]
    return max(uncertainties) if len(uncertainties) == len(runs) and min(uncertainties) >= 0 else None


def _relative(run: Simulation) -> float:
    """The uncertainty of a run; the largest for several timing inputs, because their errors have the same sign."""
    return max((timed.relative_uncertainty for timed in run.runs), default=run.relative_uncertainty)


def verdict(
    candidate: Evidence, champion: Evidence, policy: Policy, chip: Chip, moved: tuple[Change, ...], looked_at: int = 1
) -> Verdict:
    """The verdict on two simulated times alone. `moved` are the other changes; `looked_at` is as in `rule`."""
    ours, theirs = comparable.known_seconds(candidate), comparable.known_seconds(champion)
    ruling = rule(theirs, ours, uncertainty(candidate, champion), policy, looked_at)
    times = f"{seconds(ours)} against {seconds(theirs)}, {comparable.label('simulated', chip)}"
    mean = ", weighted geometric means over the suite" if candidate.members else ""
    simulated_verdict = Verdict(
        outcome=ruling.outcome,
        reasons=(f"{ruling.reason}: {times}{mean}",),
        time_ratio=ruling.ratio,
        time_ratio_low=ruling.low,
        time_ratio_high=ruling.high,
        changes=moved,
        members=members.times(candidate, champion),
    )
    losing = losers(candidate, simulated_verdict, chip)
    if not losing:
        return simulated_verdict
    # The reason for the rejection comes first: the mean, or else the members that lose too much.
    is_lost = simulated_verdict.outcome == "reject"
    reasons = (*simulated_verdict.reasons, *losing) if is_lost else (*losing, *simulated_verdict.reasons)
    return replace(simulated_verdict, outcome="reject", reasons=reasons)


def losers(candidate: Evidence, simulated_verdict: Verdict, chip: Chip) -> tuple[str, ...]:
    """Sentences on the members of a suite that take more time than they may."""
    return members.losers(candidate.problem, simulated_verdict.members, comparable.label("simulated", chip))
