"""The interval of a paired ratio has the error rate that is asked for, at every rate."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from harness.judge.verdict.sign_test import MINIMUM_PAIRS, attempt_error, look_error, paired_ratio
from harness.records import Policy

POLICY = Policy()
TRIALS = 2000

NOISES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.float64]]] = {
    "0.3 % spread": lambda rng, shape: rng.normal(0, 0.003, shape),
    "heavy tails": lambda rng, shape: 0.01 * rng.standard_t(2, shape),
    "spikes": lambda rng, shape: rng.normal(0, 0.003, shape) + (rng.random(shape) < 0.1) * rng.exponential(0.5, shape),
    "two clocks": lambda rng, shape: rng.normal(0, 0.003, shape) + 0.1 * (rng.random(shape) < 0.5),
    "coarse clock": lambda rng, shape: 0.01 * np.round(rng.normal(0, 1, shape)),
    "random walk": lambda rng, shape: np.cumsum(rng.normal(0, 0.02, shape), axis=-1),
}


def missed(name: str, error: float, pairs: int = 40) -> tuple[int, int]:
    """The null trials in which the interval lies above 1, and below it. Both times of a round are adjacent."""
    rng = np.random.default_rng(20260102)
    above = below = 0
    for logs in NOISES[name](rng, (TRIALS, 2 * pairs)):
        rounds = rng.permuted(1e-3 * np.exp(logs).reshape(pairs, 2), axis=1)
        _, low, high = paired_ratio(tuple(rounds[:, 0]), tuple(rounds[:, 1]), error)
        above, below = above + (low > 1), below + (high < 1)
    return above, below


@pytest.mark.parametrize("name", NOISES)
def test_each_end_misses_the_truth_as_rarely_as_asked(name: str) -> None:
    # 2 % of 2,000 is 40, with a standard deviation of 6.3: 66 is four of them away.
    for count in missed(name, 0.02):
        assert count < 66


def test_the_guard_can_fail() -> None:
    """Slots in a fixed order: the drift within a round is taken for a difference between the two."""
    rng = np.random.default_rng(1)
    drifting = np.exp(np.linspace(0, 0.5, 80) + rng.normal(0, 0.001, 80)).reshape(40, 2)
    assert paired_ratio(tuple(drifting[:, 0]), tuple(drifting[:, 1]), 0.001)[1] > 1


@pytest.mark.parametrize("pairs", [20, 21, 40, 320])
@pytest.mark.parametrize("error", [0.05, 0.005, 1e-4, 1e-7])
def test_the_interval_is_scipys(pairs: int, error: float) -> None:
    rng = np.random.default_rng(pairs)
    old, new = np.exp(rng.normal(0, 0.1, (2, pairs)))
    ratio, *interval = paired_ratio(tuple(old), tuple(new), error)
    theirs = scipy_stats.quantile_test(new / old, q=1.0, p=0.5).confidence_interval(1 - 2 * error)
    low, high = (0.0 if math.isnan(theirs.low) else theirs.low), (math.inf if math.isnan(theirs.high) else theirs.high)
    assert ratio == pytest.approx(float(np.median(new / old)))
    assert interval == [low, high]


def test_what_is_spent_on_all_attempts_and_looks_is_the_rate_of_the_policy() -> None:
    spent = [attempt_error(POLICY, k) for k in range(1, 100_001)]
    assert spent == sorted(spent, reverse=True)
    # After n attempts 1 - 1/(n + 1) of the rate is spent: the sum comes near it, and never exceeds it.
    assert sum(spent) == pytest.approx(POLICY.false_accept_rate * (1 - 1 / 100_001))
    assert len(POLICY.looks) * look_error(POLICY, 7) == pytest.approx(attempt_error(POLICY, 7))
    with pytest.raises(ValueError, match="at least 1 attempt"):
        look_error(POLICY, 0)


def test_the_interval_widens_with_the_attempts_since_the_last_accept() -> None:
    rng = np.random.default_rng(3)
    old, new = (tuple(side) for side in np.exp(rng.normal(0, 0.01, (2, 160))))
    widths = []
    for attempts in (1, 10, 100, 1000):
        _, low, high = paired_ratio(old, new, look_error(POLICY, attempts))
        widths.append(high - low)
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


@pytest.mark.parametrize(("attempts", "pairs"), [(1, 14), (1000, 33)])
def test_so_many_pairs_are_needed_before_there_is_an_interval(attempts: int, pairs: int) -> None:
    error = look_error(POLICY, attempts)
    assert paired_ratio((1.0,) * (pairs - 1), (0.5,) * (pairs - 1), error) == (0.5, 0.0, math.inf)
    assert paired_ratio((1.0,) * pairs, (0.5,) * pairs, error) == (0.5, 0.5, 0.5)


def test_the_first_look_can_end_a_first_attempt_with_one_pair_gone_wrong() -> None:
    error = look_error(POLICY, 1)
    assert POLICY.looks[0] == MINIMUM_PAIRS
    assert paired_ratio((1.0,) * 20, (0.5,) * 19 + (9.0,), error)[2] == 0.5
    assert paired_ratio((1.0,) * 20, (0.5,) * 18 + (9.0,) * 2, error)[2] == 9.0


def test_looks_are_paid_for() -> None:
    fewer = replace(POLICY, looks=(20,))
    assert look_error(fewer, 1) == pytest.approx(5 * look_error(POLICY, 1))


@pytest.mark.parametrize(
    ("champion", "candidate", "words"),
    [
        ((1.0, 1.0), (1.0,), "got 2 and 1"),
        ((), (), "got 0 and 0"),
        ((1.0, 0.0), (1.0, 1.0), "zero, negative or non-finite"),
        ((1.0, 1.0), (1.0, float("nan")), "zero, negative or non-finite"),
        ((1.0, 1.0), (1.0, -1.0), "zero, negative or non-finite"),
    ],
)
def test_unusable_samples_are_refused(champion: tuple[float, ...], candidate: tuple[float, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        paired_ratio(champion, candidate, 0.01)
