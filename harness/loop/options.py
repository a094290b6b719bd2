"""The options of one attempt."""

from dataclasses import dataclass

from harness.records import Source, Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another setting of the same kernel.py: what it is called as an attempt, and its screened time and program."""

    settings: tuple[tuple[str, str], ...]
    hypothesis: str
    seconds: float
    source: Source
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How one attempt is to be run, from the command line.

    `alternatives` are judged in their order where the candidate fails, as long as they promise a win; all of
    them together are one attempt. `all_checks`: a candidate that is too slow is checked wholly all the same.
    """

    settings: tuple[tuple[str, str], ...] = ()
    expected_time_ratio: float | None = None
    again: bool = False
    record: bool = False
    rebaseline: bool = False
    all_checks: bool = False
    sweep: Sweep | None = None
    alternatives: tuple[Alternative, ...] = ()
