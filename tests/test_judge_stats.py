"""The interval of a paired ratio holds what it promises on synthetic noise."""

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest

from harness.judge.stats import CONFIDENCE, MINIMUM_PAIRS, paired_ratio
from harness.records import Duel

Noise = Callable[[np.random.Generator, int], np.ndarray]
TRIALS = 200

NOISES: dict[str, Noise] = {
    "0.3 % spread": lambda rng, n: rng.normal(0, 0.003, n),
    "heavy tails": lambda rng, n: 0.01 * rng.standard_t(2, n),
    "spikes": lambda rng, n: rng.normal(0, 0.003, n) + (rng.random(n) < 0.1) * rng.exponential(0.5, n),
    "two clocks": lambda rng, n: rng.normal(0, 0.003, n) + 0.1 * (rng.random(n) < 0.5),
    "coarse clock": lambda rng, n: 0.01 * np.round(rng.normal(0, 1, n)),
}


def duel(logs_champion: np.ndarray, logs_candidate: np.ndarray) -> Duel:
    return Duel(
        champion_seconds=tuple(1e-3 * np.exp(logs_champion)),
        candidate_seconds=tuple(1e-3 * np.exp(logs_candidate)),
        clock="device",
    )


@functools.cache
def trials(name: str, ratio: float, drift: float = 0.0) -> tuple[tuple[float, float, float], ...]:
    noise, pairs = NOISES[name], 30
    rng = np.random.default_rng(20260102)
    found = []
    for _ in range(TRIALS):
        slope = np.linspace(0, drift, pairs)
        champion, candidate = slope + noise(rng, pairs), slope + noise(rng, pairs) + math.log(ratio)
        found.append(paired_ratio(duel(champion, candidate)))
    return tuple(found)


@pytest.mark.parametrize("name", NOISES)
def test_the_interval_covers_the_truth(name: str) -> None:
    found = trials(name, 1.0)
    missed = sum(not low <= 1.0 <= high for _, low, high in found)
    # 99 % of 200 leaves 2 on average; 7 or more come with a probability under 0.5 %.
    assert missed < 7
    assert all(low <= ratio <= high for ratio, low, high in found)


@pytest.mark.parametrize("name", NOISES)
def test_null_duels_hardly_ever_look_like_a_gain(name: str) -> None:
    assert sum(high <= 0.99 for _, _, high in trials(name, 1.0)) <= 1


def test_a_true_gain_of_three_percent_shows_at_published_spread() -> None:
    found = trials("0.3 % spread", 0.97)
    assert sum(high <= 0.99 for _, _, high in found) >= 0.99 * TRIALS


def test_drift_cancels_in_pairs() -> None:
    found = trials("0.3 % spread", 0.97, drift=0.5)
    assert sum(high <= 0.99 for _, _, high in found) >= 0.99 * TRIALS


def test_the_guard_can_fail() -> None:
    """With three pairs and a narrow interval, one null duel in ten would pass."""
    narrow = [
        paired_ratio(duel(np.zeros(3), np.random.default_rng(seed).normal(0, 0.05, 3)), confidence=0.2)
        for seed in range(TRIALS)
    ]
    assert sum(high <= 0.99 for _, _, high in narrow) > 0.05 * TRIALS


def test_identical_samples_give_a_point() -> None:
    assert paired_ratio(duel(np.zeros(30), np.zeros(30))) == (1.0, 1.0, 1.0)


def test_too_few_pairs_conclude_nothing() -> None:
    assert paired_ratio(duel(np.zeros(5), np.full(5, -1.0)))[1:] == (0.0, math.inf)
    low, high = paired_ratio(duel(np.zeros(MINIMUM_PAIRS), np.full(MINIMUM_PAIRS, -1.0)))[1:]
    assert low == high == pytest.approx(math.exp(-1))
    assert CONFIDENCE == 0.99


@pytest.mark.parametrize(
    ("champion", "candidate", "words"),
    [
        ((1.0, 1.0), (1.0,), "got 1 and 2"),
        ((), (), "got 0 and 0"),
        ((1.0, 0.0), (1.0, 1.0), "zero, negative or non-finite"),
        ((1.0, 1.0), (1.0, float("nan")), "zero, negative or non-finite"),
        ((1.0, 1.0), (1.0, -1.0), "zero, negative or non-finite"),
    ],
)
def test_unusable_samples_are_refused(champion: tuple[float, ...], candidate: tuple[float, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        paired_ratio(Duel(champion_seconds=champion, candidate_seconds=candidate, clock="host"))
