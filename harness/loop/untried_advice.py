"""Advice on the size of a block: what an attempt or a sweep has tried already is left out, or says so."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.advice.kernel_changes import kinds_of_change
from harness.candidate import Candidate, Settings
from harness.records import Edit, Hint

Known = dict[frozenset[tuple[str, str]], str]


def untried(
    hints: Sequence[Hint],
    candidate: Candidate,
    others: Mapping[int, Candidate],
    screened: Sequence[tuple[int, Settings]],
) -> tuple[tuple[Hint, ...], tuple[str, ...]]:
    """The hints on `candidate` without those whose every edit was tried in it, and a sentence on each of those.

    `others` are those of the attempts. `screened` are the settings that sweeps tried, each with the attempt that
    came of the sweep.
    """
    known = _known(candidate, others, screened)
    left, said = [], []
    for hint in hints:
        by = {edit: _by(edit, candidate, known) for edit in hint.edits}
        who = ", ".join(dict.fromkeys(filter(None, by.values())))
        if by and all(by.values()):
            said.append(f"advice left out, tried by {who}: {hint.suggestion}")
            continue
        done = [f"{'/'.join(edit.constants)}={edit.new} by {one}" for edit, one in by.items() if one]
        words = f"{hint.suggestion}; tried already: {', '.join(done)}" if done else hint.suggestion
        left.append(replace(hint, suggestion=words))
    return tuple(left), tuple(said)


def _by(edit: Edit, candidate: Candidate, known: Known) -> str:
    """Who tried the edit, with all other constants as they are; where several may make it, each of them."""
    present = dict(candidate.tunable)
    who = [known.get(frozenset({**present, name: str(edit.new)}.items()), "") for name in edit.constants]
    return ", ".join(dict.fromkeys(who)) if all(who) else ""


def _known(candidate: Candidate, others: Mapping[int, Candidate], screened: Sequence[tuple[int, Settings]]) -> Known:
    """Who tried which constants in a kernel that is else the same."""
    alike = {number: dict(other.tunable) for number, other in others.items() if _is_alike(candidate, other)}
    found: Known = {}
    for number, settings in screened:
        if number in alike:
            found[frozenset({**alike[number], **dict(settings)}.items())] = f"the sweep of attempt {number}"
    return found | {frozenset(own.items()): f"attempt {number}" for number, own in alike.items()}


def _is_alike(candidate: Candidate, other: Candidate) -> bool:
    return set(kinds_of_change(candidate.source, other.source)) <= {"constants", "claims"}
