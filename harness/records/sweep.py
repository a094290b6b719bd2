"""A grid of settings of kernel.py: the result of each setting, and the setting that was judged."""

from dataclasses import dataclass

from harness.records.candidate import Failure
from harness.records.evidence import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedSetting:
    """One setting of the grid, screened: compiled and timed, its results not checked.

    If `seconds` is None, `failure_kind` says why: a stage's failure, or `no-latency`. For a suite without a failure,
    `message` may say that a member takes longer than the champion by more than the suite allows. `same_as` is the
    earlier attempt that judged the same program under the same key, None if there is none.
    """

    settings: tuple[tuple[str, str], ...]
    seconds: float | None
    failure_kind: str = ""
    message: str = ""
    same_as: int | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedSetting:
    """A setting of the grid that was judged and failed."""

    settings: tuple[tuple[str, str], ...]
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A grid: the values of each constant, and every setting's result in the grid's order.

    `source` is the source of the screened latencies. These latencies only select a setting; the selected setting is
    compiled, checked and timed again like any attempt. On a device the new time is an independent sample, so screening
    many settings does not raise the chance of a lucky accept. If times are simulated, the new time equals the screened
    time and has the same error.

    - `refused`: the settings that were judged and failed before a setting passed, the fastest first. If all settings
      fail, the attempt records the fastest.
    - `looked_at`: the number of programs that got a latency, in this search and in the searches that it continued. The
      larger it is, the larger the gain has to be.
    - `champion`: the champion's attempt if its latency has the same source and key, so that screened latencies can be
      compared with `champion_seconds`.
    """

    parameters: tuple[tuple[str, tuple[str, ...]], ...]
    source: Source
    chip: str
    screened: tuple[ScreenedSetting, ...]
    refused: tuple[RefusedSetting, ...] = ()
    looked_at: int = 1
    champion: int | None = None
    champion_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The result of a sweep, after `seconds` of wall clock.

    - `attempt`: the number of the attempt that judged `best`; None if there is none, for the reason in `why_none`.
    - `least_gain`: the share of the champion's time that the best had to save to be accepted; None without a champion
      to compare with.
    - `messages`: the remarks that stderr shows as well.
    """

    hypothesis: str
    sweep: Sweep
    best: tuple[tuple[str, str], ...] | None
    attempt: int | None
    outcome: str | None
    why_none: str
    seconds: float
    least_gain: float | None = None
    messages: tuple[str, ...] = ()
