"""The options of one attempt."""

from dataclasses import dataclass

from harness.records import ScreenedSetting, Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one attempt, from the command line.

    - `alternatives`: settings of `sweep`, each with its hypothesis. If the candidate fails, the settings that promise a
      win are judged in order, until one passes. All of this is one attempt.
    - `all_checks`: every check runs, even if the candidate is too slow.
    """

    settings: tuple[tuple[str, str], ...] = ()
    expected_time_ratio: float | None = None
    again: bool = False
    record: bool = False
    rebaseline: bool = False
    all_checks: bool = False
    sweep: Sweep | None = None
    alternatives: tuple[tuple[str, ScreenedSetting], ...] = ()
