"""Advice in reports: in terms of kernel.py, without what the newest attempts in the ledger tried or screened."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from harness.candidate import Candidate, Settings
from harness.errors import RatchetError
from harness.ledger import history
from harness.ledger.paths import Place, place_of
from harness.loop.package_kernel import for_kernel
from harness.loop.untried_advice import UNRECORDED, untried
from harness.records import Evidence, Hint, Row, Sweep

# As many attempts as `next` looks into.
_NEWEST = 50


def advice_here(
    hints: Sequence[Hint], evidence: Evidence, candidate: Candidate, contest: Path, sweep: Sweep | None = None
) -> tuple[Hint, ...]:
    """The hints on `candidate` as `for_kernel` and `untried` give them, from the newest attempts in `contest`'s ledger.

    `evidence` is of `candidate`; `sweep` is one of it that has just ended and is in no record. Where there is no
    ledger, nothing was tried.
    """
    hints = for_kernel(hints, evidence, candidate, contest)
    if not any(hint.edits for hint in hints):
        return hints
    try:
        place = place_of(contest)
        rows, _ = history.rows(place, _NEWEST)
    except RatchetError:
        return hints
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
