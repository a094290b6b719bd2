"""Advice from the ledger: leaves out hints that were tried, and names an attempt with the requested constants."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from harness.advice import diagnose
from harness.advice.nothing_found import nothing_found
from harness.candidate import Candidate, Settings, expression
from harness.errors import RatchetError, UsageError
from harness.ledger import history
from harness.ledger.paths import Place, place_of
from harness.loop.followed_advice import with_followers
from harness.loop.package_kernel import for_kernel
from harness.loop.untried_advice import UNRECORDED, Known, TimedSettings, is_alike, untried, who_tried
from harness.records import Attempt, Evidence, Hint, Row, Sweep

# The number of newest attempts to read, as for `next`.
_NEWEST = 50


def advice_here(
    hints: Sequence[Hint], evidence: Evidence, candidate: Candidate, contest: Path, sweep: Sweep | None = None
) -> tuple[Hint, ...]:
    """The hints of `advice_and_left_out`; if all are left out, the hint of `nothing_found` says so."""
    advice, _ = advice_and_left_out(hints, evidence, candidate, contest, sweep)
    return advice


def advice_and_left_out(
    hints: Sequence[Hint], evidence: Evidence, candidate: Candidate, contest: Path, sweep: Sweep | None = None
) -> tuple[tuple[Hint, ...], tuple[str, ...]]:
    """The hints on `candidate` after `for_kernel`, `untried` and `with_followers`, by the newest attempts of `contest`.

    The second value has a sentence on each hint that was left out because it was tried. If no hint is left, the
    first value is the hint from `nothing_found`. `evidence` is the evidence about `candidate`; `sweep` is a sweep of
    `candidate` that has just ended and is not recorded yet. Without a ledger, nothing counts as tried.
    """

    @cache
    def newest() -> tuple[Place, Sequence[Row]]:
        place = place_of(contest)
        return place, history.rows(place, _NEWEST)[0]

    @cache
    def attempts_and_sweeps() -> tuple[Mapping[int, Candidate], tuple[tuple[int, Settings], ...]]:
        place, rows = newest()
        others = {row.number: other for row in rows if (other := candidate_of(place, row.number)) is not None}
        ours = tuple((UNRECORDED, setting.settings) for setting in sweep.screened) if sweep is not None else ()
        return others, screened_settings(place, rows) + ours

    def by_whom() -> Known:
        with suppress(RatchetError):
            return who_tried(candidate, *attempts_and_sweeps())
        return {}

    hints = for_kernel(hints, evidence, candidate, contest, by_whom)
    left_out: tuple[str, ...] = ()
    with suppress(RatchetError):
        if any(hint.edits for hint in hints):
            others, screened = attempts_and_sweeps()
            timed = timed_settings(*newest(), others, evidence)
            hints, left_out = untried(hints, candidate, others, screened, timed, least_gain(evidence))
        if any(hint.kind for hint in hints):
            hints = with_followers(hints, evidence, candidate, *newest(), attempts_and_sweeps()[0])
    if hints:
        return hints, left_out
    return nothing_found(evidence, is_tried=bool(left_out)), left_out


def least_gain(evidence: Evidence) -> float:
    """The gain below which no change of this kernel is accepted; 0 if it is unknown or the time is not simulated."""
    is_simulated = evidence.latency is not None and evidence.latency.source == "simulated"
    return diagnose.threshold(evidence) if is_simulated else 0.0


def set_constants(candidate: Candidate, settings: Settings, contest: Path) -> Candidate:
    """The candidate with these constants, as `Candidate.set` gives it.

    Raises the errors of `Candidate.set`; `unknown-constant` names the newest attempt of `contest` whose kernel.py has
    all of them. Raises UsageError `bad-setting` for several values of one constant.
    """
    _refuse_several_values(dict(candidate.constants), settings)
    try:
        return candidate.set(settings)
    except RatchetError as error:
        number = _attempt_with({name for name, _ in settings}, contest) if error.kind == "unknown-constant" else None
        if number is None:
            raise
        raise RatchetError(
            error.kind,
            f"{error}. The kernel.py of attempt {number} has these constants: ./ratchet.sh checkout {number}, then the "
            "same command",
        ) from error


def _refuse_several_values(before: Mapping[str, str], settings: Settings) -> None:
    for name, value in settings:
        several = isinstance(expression(value), ast.Tuple | ast.List)
        if several and name in before and not isinstance(expression(before[name]), ast.Tuple | ast.List):
            raise UsageError(
                "bad-setting",
                f"--set {name}: expected one value, because {name} = {before[name]} in kernel.py, got {value}; "
                "to try several values, write ./ratchet.sh sweep before the message",
            )


def _attempt_with(names: set[str], contest: Path) -> int | None:
    """The newest attempt whose kernel.py has constants of all these names; None if there is none, or no ledger."""
    with suppress(RatchetError):
        place = place_of(contest)
        for row in reversed(history.rows(place, _NEWEST)[0]):
            candidate = candidate_of(place, row.number)
            if candidate is not None and names <= dict(candidate.constants).keys():
                return row.number
    return None


def attempt_of(candidate: Candidate, place: Place) -> int | None:
    """The newest attempt with exactly this text; None if there is none."""
    rows, _ = history.rows(place)
    return next((row.number for row in reversed(rows) if row.kernel_sha256 == candidate.sha256), None)


def screened_settings(place: Place, rows: Sequence[Row]) -> tuple[tuple[int, Settings], ...]:
    """The settings screened by the sweeps among these attempts, under any judge, with the attempt of each."""
    screened: list[tuple[int, Settings]] = []
    for row in rows:
        with suppress(RatchetError):
            sweep = history.attempt(place, row.number).sweep
            screened += [(row.number, setting.settings) for setting in sweep.screened] if sweep else []
    return tuple(screened)


def timed_settings(
    place: Place, rows: Sequence[Row], others: Mapping[int, Candidate], evidence: Evidence
) -> tuple[TimedSettings, ...]:
    """Times of sets of constants, from the attempts `rows` and their sweeps, oldest first.

    Only attempts at the problem of `evidence`, for its chip, count; a single attempt counts if it changed nothing but
    constants of the champion.
    """
    timed: list[TimedSettings] = []
    for row in rows:
        with suppress(RatchetError):
            attempt = history.attempt(place, row.number)
            if (attempt.evidence.problem, attempt.evidence.chip) == (evidence.problem, evidence.chip):
                timed += _timed(attempt, row, others)
    return tuple(timed)


def _timed(attempt: Attempt, row: Row, others: Mapping[int, Candidate]) -> Iterator[TimedSettings]:
    other = others.get(attempt.number)
    champion = others.get(attempt.champion.attempt) if attempt.champion else None
    if other is None:
        return
    constants = dict(other.tunable)
    if attempt.sweep is not None:
        screened = [(setting.settings, setting.seconds) for setting in attempt.sweep.screened]
        times = tuple(
            ({**constants, **dict(settings)}, seconds) for settings, seconds in screened if seconds is not None
        )
        yield TimedSettings(by=f"the sweep of attempt {attempt.number}", times=times)
    if champion is not None and row.time_ratio is not None and is_alike(champion, other):
        pair = ((dict(champion.tunable), 1.0), (constants, row.time_ratio))
        yield TimedSettings(by=f"attempt {attempt.number}", times=pair)


def candidate_of(place: Place, number: int) -> Candidate | None:
    """The candidate of an attempt; None if only its record is known here, as in a clone without the log."""
    try:
        return history.candidate(place, number)
    except RatchetError:
        return None
