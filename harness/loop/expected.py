"""The expected duration of the next attempt of a contest, from its last attempts."""

import json
import math
import statistics
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from harness import files
from harness.candidate import Settings
from harness.contest import Contest
from harness.errors import RatchetError
from harness.ledger import Ledger, history
from harness.loop.opponent import recorded_evidence
from harness.records import Attempt, Evidence, Key
from harness.sandbox import environment as environments
from harness.units import seconds

# The number of attempts behind each median: enough that one busy moment of the machine does not change it.
_ATTEMPTS = 5
# The stages of a screened setting, one after the other.
SCREENED = ("trace", "compile", "simulate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Medians over the last attempts: seconds by stage, and of the whole attempt (None without attempts).

    - `start_seconds`: the time before the first stage, in which processes start and import JAX.
    - `champion_seconds`: the part of the whole in which the champion is judged again first.
    - `is_here`: True if the attempts ran on machines with this processor and as many cores.
    """

    attempts: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    start_seconds: float = 0.0
    total_seconds: float | None = None
    champion_seconds: float = 0.0
    is_here: bool = True

    @property
    def source(self) -> str:
        """The attempts behind the figures, and the champion's part, in words."""
        of = "the last attempt" if self.attempts == 1 else f"the median of the last {self.attempts} attempts"
        where = "on a machine like this" if self.is_here else "on other machines"
        first = f"; {seconds(self.champion_seconds, 1)} for the champion first" if self.champion_seconds else ""
        return f"{of} {where}{first}"


def of(contest: Contest, key: Key | None, settings: Settings | None = None) -> Expected:
    """Median durations of the last attempts of `contest` in which every check ran, on machines like this if there are.

    `key` is the key of the next attempt; None for a kernel that is compared with no champion. `settings` are the
    attempt's; None if they are not chosen yet.
    """
    like: list[Attempt] = []
    others: list[Attempt] = []
    here = environments.environment().machine
    is_champion_first = False
    # An unreadable ledger only costs the estimate. The attempt itself will report the error.
    with suppress(RatchetError):
        ledger = Ledger.open(contest.directory)
        rows, _ = history.rows(ledger.place)
        for row in reversed(rows[-4 * _ATTEMPTS :]):
            if row.outcome == "failed" or len(like) == _ATTEMPTS:
                continue
            with suppress(RatchetError):
                attempt = history.attempt(ledger.place, row.number)
                is_whole = attempt.kind != "revoke" and not attempt.evidence.unchecked
                if is_whole and attempt.evidence.stages:
                    (like if attempt.evidence.environment.machine == here else others).append(attempt)
        champion = ledger.champion() if key is not None else None
        if key is not None and champion is not None:
            is_contested = settings is None or contest.candidate().set(settings) != ledger.champion_candidate()
            is_champion_first = is_contested and recorded_evidence(ledger, champion, key, rows) is None
    chosen = (like or others)[:_ATTEMPTS]
    if not chosen:
        return Expected()
    by_stage: dict[str, list[float]] = {}
    for stage in (stage for attempt in chosen for stage in attempt.evidence.stages):
        by_stage.setdefault(stage.stage, []).append(stage.seconds)
    ends = [_end(attempt.evidence) for attempt in chosen]
    of_champion = statistics.median(ends) if is_champion_first else 0.0
    totals = ends if key is None else list(map(_candidate_seconds, chosen))
    return Expected(
        attempts=len(chosen),
        stages={name: statistics.median(seconds) for name, seconds in by_stage.items()},
        start_seconds=statistics.median(
            min(stage.start_seconds for stage in attempt.evidence.stages) for attempt in chosen
        ),
        total_seconds=statistics.median(totals) + of_champion,
        champion_seconds=of_champion,
        is_here=bool(like),
    )


def _end(evidence: Evidence) -> float:
    """The duration of an evaluation."""
    return max((stage.start_seconds + stage.seconds for stage in evidence.stages), default=0.0)


def _candidate_seconds(attempt: Attempt) -> float:
    """The duration of an attempt without an evaluation of the champion.

    In addition to the stages it has the runs under uncertain constants, paired samples, and the waits between them.
    """
    whole = datetime.fromisoformat(attempt.finished) - datetime.fromisoformat(attempt.started)
    champion = _end(attempt.champion_evidence) if attempt.champion_evidence else 0.0
    return max(_end(attempt.evidence), whole.total_seconds() - champion)


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
