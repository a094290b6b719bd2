"""The options of one attempt."""

from dataclasses import dataclass

from harness.records import Source, Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another setting of the same kernel.py: its hypothesis if it is judged, its screened time and its program."""

    settings: tuple[tuple[str, str], ...]
    hypothesis: str
    seconds: float
    source: Source
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one attempt, from the command line.

    If the candidate fails, the `alternatives` that promise a win are judged in order, up to the first that passes; all
    are one attempt. `all_checks`: every check runs, even if the candidate is too slow.
    """

    settings: tuple[tuple[str, str], ...] = ()
    expected_time_ratio: float | None = None
    again: bool = False
    record: bool = False
    rebaseline: bool = False
    all_checks: bool = False
    sweep: Sweep | None = None
    alternatives: tuple[Alternative, ...] = ()
