"""What paired, noisy timings say: the median ratio and an interval that holds whatever the noise looks like."""

import math

import numpy as np

from harness.records import Duel

# Two-sided, so that a null change is above the true ratio's upper bound in at most 0.5 % of the
# duels even without the minimum effect in between.
CONFIDENCE = 0.99

# Below 20 pairs the interval spans nearly the whole sample (at 8 pairs and 99 % exactly), so one
# outlier decides; from 20 on, three pairs may lie on either side of it.
MINIMUM_PAIRS = 20


def paired_ratio(duel: Duel, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """The median of candidate/champion over the pairs, and the low and high end of its confidence interval.

    The interval is that of the sign test on the log ratios (scipy.stats.quantile_test): two order
    statistics, exact for independent pairs, whatever the distribution. Chosen by simulation at 20
    and 30 pairs and 99 %, over normal, t2, spiked, bimodal, quantised and drifting noise: it
    missed the truth in at most 0.8 % of 2,000 duels (sampling error included), like the
    Wilcoxon/Hodges-Lehmann interval, which loses half its power to spikes (0.52 against 0.90 for
    a 3 % gain); the BCa bootstrap of the median missed it in 1 to 3 %, and gave no interval at
    all where a coarse clock repeats values. With fewer pairs than the confidence needs an end is
    infinite or zero: nothing can be concluded.

    Raises ValueError if the two sides differ in length, are empty, or hold anything but positive, finite seconds.
    """
    # Importing scipy.stats takes over a second, and only measured verdicts need it.
    from scipy import stats

    champion, candidate = np.asarray(duel.champion_seconds), np.asarray(duel.candidate_seconds)
    if champion.shape != candidate.shape or champion.size == 0:
        raise ValueError(f"expected as many candidate as champion samples, got {candidate.size} and {champion.size}")
    both = np.concatenate([champion, candidate])
    if not (np.isfinite(both).all() and (both > 0).all()):
        raise ValueError("expected positive, finite seconds in a duel, got zero, negative or non-finite ones")
    logs = np.log(candidate) - np.log(champion)
    interval = stats.quantile_test(logs, q=0.0, p=0.5).confidence_interval(confidence)
    low = 0.0 if math.isnan(interval.low) else math.exp(interval.low)
    high = math.inf if math.isnan(interval.high) else math.exp(interval.high)
    return math.exp(float(np.median(logs))), low, high
