"""Advice in reports without what the ledger says was tried: candidates and screened settings of the newest attempts."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from harness.candidate import Candidate, Settings
from harness.errors import RatchetError
from harness.ledger import history
from harness.ledger.paths import Place, place_of
from harness.loop.untried_advice import UNRECORDED, untried
from harness.records import Hint, Row, Sweep

# As many attempts as `next` looks into.
_NEWEST = 50


def untried_here(
    hints: Sequence[Hint], candidate: Candidate, contest: Path, sweep: Sweep | None = None
) -> tuple[Hint, ...]:
    """The hints on `candidate` as `untried` gives them, from the newest attempts in the ledger of `contest`.

    `sweep` is one of `candidate` that has just ended and is in no record. Where there is no ledger, the hints as they
    are.
    """
    if not any(hint.edits for hint in hints):
        return tuple(hints)
    try:
        place = place_of(contest)
        rows, _ = history.rows(place, _NEWEST)
    except RatchetError:
        return tuple(hints)
    others = {row.number: other for row in rows if (other := candidate_of(place, row.number)) is not None}
    settings = screened_settings(place, rows)
    if sweep is not None:
        settings += tuple((UNRECORDED, setting.settings) for setting in sweep.screened)
    return untried(hints, candidate, others, settings)[0]


def screened_settings(place: Place, rows: Sequence[Row]) -> tuple[tuple[int, Settings], ...]:
    """The settings screened by the sweeps among these attempts, under any judge, with the attempt of each."""
    screened: list[tuple[int, Settings]] = []
    for row in rows:
        with suppress(RatchetError):
            sweep = history.attempt(place, row.number).sweep
            screened += [(row.number, setting.settings) for setting in sweep.screened] if sweep else []
    return tuple(screened)


def candidate_of(place: Place, number: int) -> Candidate | None:
    """The candidate of an attempt; None if only its record is known here, as in a clone without the log."""
    try:
        return history.candidate(place, number)
    except RatchetError:
        return None
