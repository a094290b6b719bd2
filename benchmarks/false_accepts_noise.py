"""Models of machines with known noise, and this machine's recorded noise: the slowdown of each call of a round."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Random = np.random.Generator

DATA = Path(__file__).parent / "data" / "cpu_pairs.tsv"
# Published device times (data/measured_attention.tsv) repeat, as (max - min) / median of five samples, within 0.16 %
# at the median and 0.34 % at the third quartile. Here 0.3 % is the standard deviation, so five samples spread by 0.7 %.
PUBLISHED_SPREAD = 0.003
# The number of rounds that are replayed together, so that slowdowns longer than a round stay together.
BLOCK = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`slowdown(random, rounds)`: [rounds, 3] log slowdowns of the calls of each round, in the order of time.

    `slots` are log slowdowns of champion, control and candidate that do not depend on their programs. `load_spread` is
    the spread of such slowdowns that are drawn anew for each attempt. `tick` is the clock's tick, as a fraction of a
    call.
    """

    name: str
    slowdown: Callable[[Random, int], Array]
    slots: tuple[float, float, float] = (0.0, 0.0, 0.0)
    load_spread: float = 0.0
    tick: float = 0.0

    def seconds(self, random: Random, rounds: int, ratio: float) -> Array:
        """[rounds, 3] seconds of champion, control and a candidate that truly takes `ratio` times as long."""
        logs = random.permuted(self.slowdown(random, rounds), axis=1)
        logs = logs + self.slots + self.load_spread * random.normal(size=3)
        seconds = np.exp(logs) * (1.0, 1.0, ratio)
        if self.tick:
            seconds = self.tick * np.maximum(1, np.floor(seconds / self.tick + random.random(seconds.shape)))
        return 1e-3 * seconds


def spread(width: float) -> Callable[[Random, int], Array]:
    """Normal noise, independent from call to call."""
    return lambda random, rounds: random.normal(0, width, (rounds, 3))


def _plus(extra: Callable[[Random, int], Array]) -> Callable[[Random, int], Array]:
    """The noise `extra` on top of the published spread."""
    return lambda random, rounds: spread(PUBLISHED_SPREAD)(random, rounds) + extra(random, rounds)


def _drift(random: Random, rounds: int) -> Array:
    return np.linspace(0, random.normal(0, 0.3), 3 * rounds).reshape(rounds, 3)


def _walk(random: Random, rounds: int) -> Array:
    return np.cumsum(random.normal(0, 0.01, 3 * rounds)).reshape(rounds, 3)


def _spikes(random: Random, rounds: int) -> Array:
    return (random.random((rounds, 3)) < 0.1) * random.exponential(0.5, (rounds, 3))


def _tails(random: Random, rounds: int) -> Array:
    return 0.01 * random.standard_t(2, (rounds, 3))


def _two_speeds(random: Random, rounds: int) -> Array:
    """A clock that changes its speed by 10 % about every fifty calls."""
    phases = np.cumsum(random.random(3 * rounds) < 0.02) % 2
    return 0.1 * phases.astype(np.float64).reshape(rounds, 3)


def _cold_start(random: Random, rounds: int) -> Array:
    return np.tile((0.05, 0.0, 0.0), (rounds, 1))


def recorded(path: Path = DATA) -> Machine:
    """The noise of this machine's CPU under load: blocks of recorded rounds, in which all three programs are equal."""
    with path.open() as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    names = ("champion_seconds", "control_seconds", "candidate_seconds")
    log_seconds = np.log([[float(line[name]) for name in names] for line in lines])

    def slowdown(random: Random, rounds: int) -> Array:
        starts = random.integers(0, len(log_seconds) - BLOCK, -(-rounds // BLOCK))
        return log_seconds[(starts[:, None] + np.arange(BLOCK)).ravel()[:rounds]]  # type: ignore[no-any-return]

    return Machine(name="this CPU, recorded", slowdown=slowdown)


QUIET = Machine(name="0.3 % spread, as published", slowdown=spread(PUBLISHED_SPREAD))

# The candidate is not faster on any of these machines.
MACHINES = (
    QUIET,
    Machine(name="3 % spread", slowdown=spread(0.03)),
    Machine(name="10 % spread", slowdown=spread(0.1)),
    Machine(name="drift by 30 % over a benchmark", slowdown=_plus(_drift)),
    Machine(name="random walk", slowdown=_plus(_walk)),
    Machine(name="spikes in a tenth of the calls", slowdown=_plus(_spikes)),
    Machine(name="heavy tails (Student's t, 2)", slowdown=_tails),
    Machine(name="two speeds, 10 % apart", slowdown=_plus(_two_speeds)),
    Machine(name="first call of a round 5 % slower", slowdown=_plus(_cold_start)),
    Machine(name="clock that ticks in steps of 5 %", slowdown=spread(PUBLISHED_SPREAD), tick=0.05),
)

# Machines that the control detects.
SLOWER_CHAMPION = Machine(name="champion's slot 5 % slower", slowdown=spread(PUBLISHED_SPREAD), slots=(0.05, 0.0, 0.0))
SLOWER_CONTROL = Machine(name="control's slot 5 % slower", slowdown=spread(PUBLISHED_SPREAD), slots=(0.0, 0.05, 0.0))

# Slowdowns that no number of calls in one process can reveal.
LUCK_OF_THE_LOAD = tuple(
    Machine(
        name=f"loads of one program differ by {100 * width:g} %", slowdown=spread(PUBLISHED_SPREAD), load_spread=width
    )
    for width in (0.001, 0.003, 0.01)
)
