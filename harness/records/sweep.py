"""A grid of settings of kernel.py: what each of them came to, and the one that was judged."""

from dataclasses import dataclass

from harness.records.candidate import Failure
from harness.records.evidence import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """One setting of the grid, screened: compiled and timed, its results not yet checked for being right.

    `seconds` is None where `failure_kind` says why: a stage's failure, or `no-latency`. Of a suite `message` may say
    without one that a member loses more than it may against the champion. `same_as` is the attempt that judged this
    very program before, under the same key; None: nobody did.
    """

    settings: tuple[tuple[str, str], ...]
    seconds: float | None
    failure_kind: str = ""
    message: str = ""
    same_as: int | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A setting of the grid that was judged and fails."""

    settings: tuple[tuple[str, str], ...]
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A grid: the values of each constant, and what every setting came to, in the grid's order.

    `source` is that of the screened latencies. They only choose: the setting that is judged is compiled,
    checked and timed again like any attempt. On a device that is a fresh draw, so that screening many adds
    no chance for luck to be accepted; a simulated time is the same again, with its error.

    `refused` are the settings that were judged and fail, the fastest first, before one that does not; where all
    of them fail the attempt is that of the first. `looked_at` is how many programs with a latency the best was chosen
    from, in this search and the ones that it went on with: the more, the more is asked of it. `champion` is the
    champion's attempt where its latency has the same source and key, so that the screened ones may be held against
    `champion_seconds`.
    """

    parameters: tuple[tuple[str, tuple[str, ...]], ...]
    source: Source
    chip: str
    screened: tuple[Screened, ...]
    refused: tuple[Refused, ...] = ()
    looked_at: int = 1
    champion: int | None = None
    champion_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep came to, after `seconds` of wall clock.

    `attempt` is the number of the attempt that judged `best`, None where `why_none` says why.
    """

    hypothesis: str
    sweep: Sweep
    best: tuple[tuple[str, str], ...] | None
    attempt: int | None
    outcome: str | None
    why_none: str
    seconds: float
