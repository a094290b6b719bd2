"""How long the next attempt of a contest will take, from what the last ones took."""

import statistics
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from harness.contest import Contest
from harness.errors import RatchetError
from harness.ledger import Ledger

# Enough for a median that one busy moment does not move.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Medians of the last attempts: seconds by stage, and of all stages together; None where there were none."""

    attempts: int = 0
    stages: Mapping[str, float] = field(default_factory=dict)
    total_seconds: float | None = None


def of(contest: Contest) -> Expected:
    """What the last attempts of `contest` that ran to their end took on the machines that they ran on."""
    totals: list[float] = []
    by_stage: dict[str, list[float]] = {}
    # Only a guess hangs on it: what is wrong with the ledger is said by the attempt itself.
    with suppress(RatchetError):
        ledger = Ledger.open(contest.directory)
        rows, _ = ledger.rows(4 * _ATTEMPTS)
        for row in reversed(rows):
            if len(totals) == _ATTEMPTS:
                break
            if row.outcome == "failed":
                continue
            with suppress(RatchetError):
                stages = ledger.attempt(row.number).evidence.stages
                if stages:
                    totals.append(max(stage.start_seconds + stage.seconds for stage in stages))
                    for stage in stages:
                        by_stage.setdefault(stage.stage, []).append(stage.seconds)
    return Expected(
        attempts=len(totals),
        stages={name: statistics.median(seconds) for name, seconds in by_stage.items()},
        total_seconds=statistics.median(totals) if totals else None,
    )
