"""Advice on the size of a block: edits that an attempt or a sweep has tried are left out, or marked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.advice.kernel_changes import kinds_of_change
from harness.candidate import Candidate, Settings
from harness.records import Edit, Hint

Known = dict[frozenset[tuple[str, str]], str]
# The number that stands for a sweep that no attempt recorded.
UNRECORDED = 0


def untried(
    hints: Sequence[Hint],
    candidate: Candidate,
    others: Mapping[int, Candidate],
    screened: Sequence[tuple[int, Settings]],
) -> tuple[tuple[Hint, ...], tuple[str, ...]]:
    """The hints on `candidate` without those whose every edit was tried in it, and a sentence on each hint left out.

    `others` are the attempts' candidates. `screened` are the settings that sweeps tried, each with the attempt of its
    sweep.
    """
    tried_by = who_tried(candidate, others, screened)
    left, left_out = [], []
    for hint in hints:
        by = {edit: _by(edit, candidate, tried_by) for edit in hint.edits}
        who = ", ".join(dict.fromkeys(filter(None, by.values())))
        if by and all(by.values()):
            left_out.append(f"advice left out, because it was tried by {who}: {hint.suggestion}")
            continue
        done = [f"{'/'.join(edit.constants)}={edit.new} by {name}" for edit, name in by.items() if name]
        words = f"{hint.suggestion}; tried already: {', '.join(dict.fromkeys(done))}" if done else hint.suggestion
        left.append(replace(hint, suggestion=words))
    return tuple(left), tuple(left_out)


def _by(edit: Edit, candidate: Candidate, tried_by: Known) -> str:
    """The attempts or sweeps that tried the edit, with all other constants unchanged; "" if one constant is untried."""
    present = dict(candidate.tunable)
    who = [tried_by.get(frozenset({**present, name: str(edit.new)}.items()), "") for name in edit.constants]
    return ", ".join(dict.fromkeys(who)) if all(who) else ""


def who_tried(candidate: Candidate, others: Mapping[int, Candidate], screened: Sequence[tuple[int, Settings]]) -> Known:
    """The attempt or sweep that tried each set of constants in a kernel that is otherwise the same."""
    alike = {number: dict(other.tunable) for number, other in others.items() if _is_alike(candidate, other)}
    tried_by: Known = {}
    for number, settings in screened:
        if number == UNRECORDED:
            tried_by[frozenset({**dict(candidate.tunable), **dict(settings)}.items())] = "this sweep"
        elif number in alike:
            tried_by[frozenset({**alike[number], **dict(settings)}.items())] = f"the sweep of attempt {number}"
    return tried_by | {frozenset(constants.items()): f"attempt {number}" for number, constants in alike.items()}


def _is_alike(candidate: Candidate, other: Candidate) -> bool:
    return set(kinds_of_change(candidate.source, other.source)) <= {"constants", "claims"}
