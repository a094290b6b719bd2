"""The expected duration of the next attempt of a contest, from its last attempts."""

import json
import math
import statistics
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import files
from harness.contest import Contest
from harness.errors import RatchetError
from harness.ledger import Ledger, history

# The number of attempts behind each median: enough that one busy moment of the machine does not change it.
_ATTEMPTS = 5
# The stages of a screened setting, one after the other.
SCREENED = ("trace", "compile", "simulate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Medians over the last attempts: seconds by stage, and of all stages together (None without attempts).

    `start_seconds` is the time before the first stage, in which processes start and import JAX.
    """

    attempts: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    start_seconds: float = 0.0
    total_seconds: float | None = None


def of(contest: Contest, *, wholly: bool = False) -> Expected:
    """Median durations of the last attempts of `contest` that did not fail, whatever machines they ran on.

    `wholly`: only attempts for which every check ran; candidates that are too slow skip some.
    """
    starts: list[float] = []
    totals: list[float] = []
    by_stage: dict[str, list[float]] = {}
    # An unreadable ledger only costs the estimate. The attempt itself will report the error.
    with suppress(RatchetError):
        ledger = Ledger.open(contest.directory)
        rows, _ = history.rows(ledger.place, 4 * _ATTEMPTS)
        for row in reversed(rows):
            if len(totals) == _ATTEMPTS:
                break
            if row.outcome == "failed":
                continue
            with suppress(RatchetError):
                evidence = history.attempt(ledger.place, row.number).evidence
                stages = evidence.stages
                if stages and not (wholly and evidence.unchecked):
                    starts.append(min(stage.start_seconds for stage in stages))
                    totals.append(max(stage.start_seconds + stage.seconds for stage in stages))
                    for stage in stages:
                        by_stage.setdefault(stage.stage, []).append(stage.seconds)
    return Expected(
        attempts=len(totals),
        stages={name: statistics.median(seconds) for name, seconds in by_stage.items()},
        start_seconds=statistics.median(starts) if starts else 0.0,
        total_seconds=statistics.median(totals) if totals else None,
    )


def of_screening(
    attempt: Expected,
    settings: int,
    jobs: int,
    longest_seconds: float = math.inf,
    measured_seconds: float | None = None,
) -> Expected:
    """The expected duration of an attempt after a screening of `settings` settings, `jobs` at a time.

    The stage `screening` has the time of the screening. No setting begins after `longest_seconds`. `measured_seconds`
    is the time of one setting in the last search here, including the start of processes. If it is None, the stages of
    an attempt are added up. Their sum is too small, because an attempt runs fewer processes at a time.
    """
    if attempt.total_seconds is None:
        return attempt
    each = measured_seconds or sum(attempt.stages.get(stage, 0.0) for stage in SCREENED)
    start = 0.0 if measured_seconds else attempt.start_seconds
    screening = start + each * math.ceil(settings / jobs)
    # Settings that are running after `longest_seconds` are finished.
    screening = min(screening, longest_seconds + each)
    return replace(
        attempt, stages={**attempt.stages, "screening": screening}, total_seconds=screening + attempt.total_seconds
    )


def keep_screening(contest: Contest, seconds: float, settings: int, jobs: int) -> None:
    """Keeps the mean time of a setting, for the next estimate: `settings` took `seconds`, `jobs` at a time."""
    if settings:
        kept = {"seconds_per_setting": seconds / math.ceil(settings / jobs), "jobs": jobs, "chip": contest.chip.name}
        # Only an estimate needs this file, so the search continues if it cannot be written.
        with suppress(RatchetError):
            files.write_atomically(_kept_path(contest), json.dumps(kept).encode())


def screening_seconds(contest: Contest, jobs: int) -> float | None:
    """The mean time of a setting in the last search here; None if it ran on another chip or not `jobs` at a time."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(_kept_path(contest).read_bytes())
        if (kept["jobs"], kept["chip"]) == (jobs, contest.chip.name):
            return float(kept["seconds_per_setting"])
    return None


def _kept_path(contest: Contest) -> Path:
    return contest.directory / "profile_data" / "screening.json"
