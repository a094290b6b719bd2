"""Passes noise instead of device times through the real decision, for attempts without a gain or with a known gain."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import false_accepts_noise as noise
import numpy as np
from false_accepts_noise import Array, Machine, Random
from scipy import stats as scipy_stats

from harness.judge.evaluate.timing import paired_benchmark as pairing
from harness.judge.verdict import compare_measured
from harness.judge.verdict.ruling import Ruling
from harness.records import PairedBenchmark, Policy, Samples

POLICY = Policy()
NULL_ATTEMPTS = 10_000
POWER_ATTEMPTS = 1_000
CURVE_ATTEMPTS = 200
GOAL_FALSE, GOAL_POWER, GOAL_GAIN = 0.001, 0.95, 0.03
GAINS = tuple(np.round(np.arange(0, 0.0601, 0.005), 4))
SPREADS = (0.003, 0.01, 0.03)
SEED = 20261121


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts of attempts by outcome; `pairs` is the median number of pairs that an attempt took."""

    name: str
    attempts: int
    accepted: int
    rejected: int
    too_noisy: int
    pairs: float

    @property
    def undecided(self) -> int:
        """The number of inconclusive attempts in which the control did not fire."""
        return self.attempts - self.accepted - self.rejected - self.too_noisy

    @property
    def upper(self) -> float:
        """The upper end of the 95 % interval (Clopper-Pearson) of the rate of accepts."""
        return float(scipy_stats.binomtest(self.accepted, self.attempts).proportion_ci(0.95).high)

    @property
    def rate(self) -> float:
        """Accepts per attempt."""
        return self.accepted / self.attempts


def attempt(
    machine: Machine, random: Random, ratio: float, attempts_since_accept: int
) -> tuple[PairedBenchmark, Ruling]:
    """A paired benchmark on `machine`, with looks until a ruling is final, and the last ruling."""
    seconds = machine.seconds(random, POLICY.looks[-1], ratio)

    def rule(paired: PairedBenchmark) -> Ruling:
        return compare_measured.rule(paired, POLICY, attempts_since_accept)

    # No time passes here, so the budget of seconds never ends a paired benchmark.
    outcome = pairing.sample(_batches(seconds), POLICY, lambda paired: rule(paired).is_final, lambda: 0.0)
    assert isinstance(outcome, tuple)
    return outcome[0], rule(outcome[0])


def _batches(seconds: Array) -> Iterator[pairing.Slots]:
    for start, end in zip((0, *POLICY.looks), POLICY.looks, strict=False):
        champion, control, candidate = (
            Samples(device_kind="replay", host_seconds=tuple(slot)) for slot in seconds[start:end].T.tolist()
        )
        yield champion, control, candidate


def tally(machine: Machine, attempts: int, *, ratio: float = 1.0, since_accept: int = 1) -> Tally:
    """The tally of so many attempts, each of which is the `since_accept`-th one since the last accept."""
    random = np.random.default_rng(SEED)
    counts = dict.fromkeys(("accept", "reject", "too noisy", "inconclusive"), 0)
    pairs = []
    for _ in range(attempts):
        paired, ruling = attempt(machine, random, ratio, since_accept)
        # Only a control that fires ends a paired benchmark without a ratio.
        counts["too noisy" if ruling.ratio is None else ruling.outcome] += 1
        pairs.append(len(paired.candidate_seconds))
    return Tally(
        name=machine.name,
        attempts=attempts,
        accepted=counts["accept"],
        rejected=counts["reject"],
        too_noisy=counts["too noisy"],
        pairs=float(np.median(pairs)),
    )


def ratcheted(machines: Sequence[Machine], attempts: int) -> int:
    """The number of accepts among `attempts` attempts in one ledger, on the machines in turn.

    The count since the last accept goes on as in the ledger, and begins again after a (false) accept.
    """
    random = np.random.default_rng(SEED)
    since, accepted = 1, 0
    for number in range(attempts):
        _, ruling = attempt(machines[number % len(machines)], random, 1.0, since)
        since = 1 if ruling.outcome == "accept" else since + 1
        accepted += ruling.outcome == "accept"
    return accepted


def naive(machine: Machine, attempts: int) -> tuple[float, float]:
    """The accept rates of two common rules on this noise: `<` of one time each; medians of three, at least 1 % less."""
    random = np.random.default_rng(SEED)
    single = threes = 0
    for _ in range(attempts):
        champion, _, candidate = machine.seconds(random, 3, 1.0).T
        single += bool(candidate[0] < champion[0])
        threes += bool(np.median(candidate) <= 0.99 * np.median(champion))
    return single / attempts, threes / attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All tallies. `curves`: the rate of accepts at each of GAINS, for each of SPREADS."""

    nulls: tuple[Tally, ...]
    naives: tuple[tuple[float, float], ...]
    edge: Tally
    slots: tuple[Tally, ...]
    loads: tuple[Tally, ...]
    powers: tuple[tuple[int, Tally], ...]
    other_powers: tuple[Tally, ...]
    curves: tuple[tuple[float, ...], ...]
    in_one_ledger: int
    seconds: float

    @property
    def false_rate(self) -> float:
        """The largest rate of false accepts on any machine."""
        return max(null.rate for null in self.nulls)

    @property
    def reaches_its_goals(self) -> bool:
        """True if both goals are reached, the second at every number of attempts since the last accept."""
        return self.false_rate <= GOAL_FALSE and all(power.rate >= GOAL_POWER for _, power in self.powers)


def run(attempts: int) -> Results:
    """The results that the page shows."""
    began = time.perf_counter()
    machines = (*noise.MACHINES, noise.recorded())
    gain = 1 - GOAL_GAIN
    few = min(POWER_ATTEMPTS, attempts)

    def announce(result: Tally) -> Tally:
        print(
            f"{result.name:36} {result.accepted:6} of {result.attempts} accepted, {result.rejected} rejected, "
            f"{result.too_noisy} stopped by the control, median {result.pairs:.0f} pairs",
            flush=True,
        )
        return result

    print("candidates that gain nothing, each as the first attempt since an accept")
    nulls = tuple(announce(tally(machine, attempts)) for machine in machines)
    print("candidates that gain exactly the minimum effect (at the border: either verdict is right)")
    edge = announce(tally(noise.QUIET, attempts, ratio=1 - POLICY.minimum_effect))
    print("candidates that gain nothing, with a slower slot, and with loads that differ")
    slots = tuple(announce(tally(machine, few)) for machine in (noise.SLOWER_CHAMPION, noise.SLOWER_CONTROL))
    loads = tuple(announce(tally(machine, few)) for machine in noise.LUCK_OF_THE_LOAD)
    print(f"true gains of {GOAL_GAIN:.0%}, as attempt 1, 10, 100 and 1000 since an accept; then on every machine")
    powers = tuple((k, announce(tally(noise.QUIET, few, ratio=gain, since_accept=k))) for k in (1, 10, 100, 1000))
    other_powers = tuple(announce(tally(machine, few, ratio=gain)) for machine in machines)
    quick = min(CURVE_ATTEMPTS, attempts)
    wide_machines = [Machine(name="", slowdown=noise.spread(width)) for width in SPREADS]
    curves = tuple(
        tuple(tally(machine, quick, ratio=1 - true_gain).rate for true_gain in GAINS) for machine in wide_machines
    )
    return Results(
        nulls=nulls,
        naives=tuple(naive(machine, attempts) for machine in machines),
        edge=edge,
        slots=slots,
        loads=loads,
        powers=powers,
        other_powers=other_powers,
        curves=curves,
        in_one_ledger=ratcheted(machines, attempts),
        seconds=time.perf_counter() - began,
    )
