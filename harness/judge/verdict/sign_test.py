"""Statistics of paired, noisy timings: the median ratio, an interval that holds for any noise, and its error rate.

Why the interval is valid. Champion and candidate are timed in random order within each round. If both take the same
time, the winner of each pair is an independent fair coin toss, whatever the machine does. Drift, spikes, steps, a clock
with two speeds or coarse ticks change the size of a difference, but the sign stays random. The same is true of a
candidate that takes r times the champion's time, after its times are divided by r. So the number of pairs on the wrong
side of the true ratio is binomial. The sign test's interval between two order statistics needs no other assumption. For
normal noise, this interval needs 1.6 times the pairs of the best interval (the efficiency of the sign test is 2 / pi).
For noise with spikes, it is the better interval.

Required certainty. Every attempt and every look at the samples is another chance of a false accept. By Boole's
inequality, the total probability is at most the sum, even if the events are dependent. So a rate `a` between two
accepts is divided: the k-th attempt since the last accept gets a / (k (k + 1)), in equal parts for its looks. The sum
over all k is a. The price is small, because the number of pairs that an interval needs grows only with log(1 / error):
at least 14 pairs at the first attempt, 33 at the thousandth.
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray

from harness.records import Policy

# Below 20 pairs, the interval spans nearly the whole sample, so one outlier decides. At the first attempt's error, one
# pair of 20 may be on the wrong side.
MINIMUM_PAIRS = 20


def attempt_error(policy: Policy, attempts_since_accept: int) -> float:
    """The allowed chance that the k-th attempt since the last accept (1: the first) is accepted without a gain."""
    if attempts_since_accept < 1:
        raise ValueError(f"expected at least 1 attempt since the last accept (this one), got {attempts_since_accept}")
    return policy.false_accept_rate / (attempts_since_accept * (attempts_since_accept + 1))


def look_error(policy: Policy, attempts_since_accept: int) -> float:
    """The allowed chance that, at one look, the interval of that attempt misses the true ratio at either end."""
    return attempt_error(policy, attempts_since_accept) / len(policy.looks)


def paired_ratio(old: tuple[float, ...], new: tuple[float, ...], error: float) -> tuple[float, float, float]:
    """The median of new/old over the pairs, and both ends of its interval. Each end's error rate is at most `error`.

    The interval is that of scipy.stats.quantile_test at confidence 1 - 2 `error`. With fewer pairs than the error
    requires, the ends are zero and infinity: nothing can be concluded.

    Raises ValueError if the two sides differ in length, are empty, or have seconds that are not positive and finite.
    """
    before, after = np.asarray(old), np.asarray(new)
    if before.shape != after.shape or before.size == 0:
        raise ValueError(f"expected samples in equal numbers, at least one, got {before.size} and {after.size}")
    both = np.concatenate([before, after])
    if not (np.isfinite(both).all() and (both > 0).all()):
        message = "expected positive, finite seconds in a paired benchmark, got zero, negative or non-finite ones"
        raise ValueError(message)
    ratios: NDArray[np.float64] = np.sort(after / before)
    rank = _rank(ratios.size, error)
    low, high = (float(ratios[rank - 1]), float(ratios[-rank])) if rank else (0.0, math.inf)
    return float(np.median(ratios)), low, high


@functools.cache
def _rank(pairs: int, error: float) -> int:
    """The largest r for which the r-th smallest of `pairs` ratios exceeds the true median with chance `error` at most.

    This happens if fewer than r pairs are below the true median, where each pair is a fair coin toss. 0 if no r
    qualifies.
    """
    # Importing scipy.special takes half a second, and only measured verdicts need it.
    from scipy import special

    fewer = special.bdtr(np.arange(pairs // 2), pairs, 0.5)
    return int(np.searchsorted(fewer, error, side="right"))
