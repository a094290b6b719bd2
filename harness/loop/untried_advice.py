"""Advice on the size of a block: edits that an attempt or a sweep has tried are left out, or marked."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness.advice.kernel_changes import kinds_of_change
from harness.candidate import Candidate, Settings
from harness.errors import RatchetError
from harness.ledger import history
from harness.ledger.paths import Place, place_of
from harness.records import Edit, Hint, Row, Sweep

Known = dict[frozenset[tuple[str, str]], str]
# As many attempts as `next` looks into.
_NEWEST = 50
# The number of a sweep that no attempt recorded.
_UNRECORDED = 0


def untried(
    hints: Sequence[Hint],
    candidate: Candidate,
    others: Mapping[int, Candidate],
    screened: Sequence[tuple[int, Settings]],
) -> tuple[tuple[Hint, ...], tuple[str, ...]]:
    """The hints on `candidate` without those whose every edit was tried in it, and a sentence on each of those.

    `others` are the attempts' candidates. `screened` are the settings that sweeps tried, each with the attempt of its
    sweep.
    """
    who_tried = _who_tried(candidate, others, screened)
    left, left_out = [], []
    for hint in hints:
        by = {edit: _by(edit, candidate, who_tried) for edit in hint.edits}
        who = ", ".join(dict.fromkeys(filter(None, by.values())))
        if by and all(by.values()):
            left_out.append(f"advice left out, tried by {who}: {hint.suggestion}")
            continue
        done = [f"{'/'.join(edit.constants)}={edit.new} by {name}" for edit, name in by.items() if name]
        words = f"{hint.suggestion}; tried already: {', '.join(done)}" if done else hint.suggestion
        left.append(replace(hint, suggestion=words))
    return tuple(left), tuple(left_out)


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
        settings += tuple((_UNRECORDED, setting.settings) for setting in sweep.screened)
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


def _by(edit: Edit, candidate: Candidate, who_tried: Known) -> str:
    """The attempts or sweeps that tried the edit, with all other constants unchanged; "" if one constant is untried."""
    present = dict(candidate.tunable)
    who = [who_tried.get(frozenset({**present, name: str(edit.new)}.items()), "") for name in edit.constants]
    return ", ".join(dict.fromkeys(who)) if all(who) else ""


def _who_tried(
    candidate: Candidate, others: Mapping[int, Candidate], screened: Sequence[tuple[int, Settings]]
) -> Known:
    """The attempt or sweep that tried each set of constants in a kernel that is otherwise the same."""
    alike = {number: dict(other.tunable) for number, other in others.items() if _is_alike(candidate, other)}
    who_tried: Known = {}
    for number, settings in screened:
        if number == _UNRECORDED:
            who_tried[frozenset({**dict(candidate.tunable), **dict(settings)}.items())] = "this sweep"
        elif number in alike:
            who_tried[frozenset({**alike[number], **dict(settings)}.items())] = f"the sweep of attempt {number}"
    return who_tried | {frozenset(constants.items()): f"attempt {number}" for number, constants in alike.items()}


def _is_alike(candidate: Candidate, other: Candidate) -> bool:
    return set(kinds_of_change(candidate.source, other.source)) <= {"constants", "claims"}
