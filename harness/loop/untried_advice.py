"""Advice on the size of a block: edits that an attempt or a sweep has tried are left out, or marked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.advice.kernel_changes import kinds_of_change
from harness.candidate import Candidate, Settings
from harness.records import Edit, Hint
from harness.records.report_words import less_time

Known = dict[frozenset[tuple[str, str]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSettings:
    """Constants of one kernel, and the times of the kernel with them; `by` names the attempt or sweep that timed them.

    Each entry of `times` is a set of constants and a time; only times of one record are compared.
    """

    by: str
    times: tuple[tuple[Mapping[str, str], float], ...]


# The number that stands for a sweep that no attempt recorded.
UNRECORDED = 0


def untried(
    hints: Sequence[Hint],
    candidate: Candidate,
    others: Mapping[int, Candidate],
    screened: Sequence[tuple[int, Settings]],
    timed: Sequence[TimedSettings] = (),
) -> tuple[tuple[Hint, ...], tuple[str, ...]]:
    """The hints on `candidate` without hints whose edits were all tried in it; and a sentence on each hint left out.

    `others` are the attempts' candidates. `screened` are the settings that sweeps tried, each with the attempt of its
    sweep. Edits that were slower in a kernel with another body, by `timed`, are marked and not left out.
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
        losses: dict[str, list[str]] = {}
        for edit in (edit for edit, name in by.items() if not name):
            for record, loss in _losses(edit, candidate, timed):
                losses.setdefault(record, []).append(loss)
        for record, those in losses.items():
            words += f"; slower with another body, by {record}: {', '.join(dict.fromkeys(those))}"
        left.append(replace(hint, suggestion=words))
    return tuple(left), tuple(left_out)


def _losses(edit: Edit, candidate: Candidate, timed: Sequence[TimedSettings]) -> tuple[tuple[str, str], ...]:
    """For each of the edit's constants, the newest record that compares its values, and `BR=256 (1.1% more time)`.

    () if a constant has no such record, or if the new value takes no more time in one of these records. A record
    compares the values of a constant if
    - it has times with the present and with the new value, all other constants the same, and
    - the other constants that its kernel shares with `candidate` have the present values.
    """
    present = dict(candidate.tunable)
    losses: list[tuple[str, str]] = []
    for name in edit.constants:
        ratios = ((record.by, _time_ratio(record, present, name, str(edit.new))) for record in reversed(timed))
        by, ratio = next(((by, ratio) for by, ratio in ratios if ratio is not None), ("", 0.0))
        if ratio <= 1:
            return ()
        losses.append((by, f"{name}={edit.new} ({less_time(ratio)})"))
    return tuple(losses)


def _time_ratio(record: TimedSettings, present: Mapping[str, str], name: str, new: str) -> float | None:
    """The least new / old time in `record` if only `name` changes from its present value to `new`, or None."""
    shared = {
        frozenset(constants.items()): seconds
        for constants, seconds in record.times
        if all(value == present[other] for other, value in constants.items() if other in present and other != name)
    }
    ratios = [
        seconds / shared[before]
        for after, seconds in shared.items()
        if (name, new) in after
        and (before := after - {(name, new)} | {(name, present.get(name, ""))}) in shared
        and shared[before]
    ]
    return min(ratios, default=None)


def _by(edit: Edit, candidate: Candidate, tried_by: Known) -> str:
    """The attempts or sweeps that tried the edit, with all other constants unchanged; "" if one constant is untried."""
    present = dict(candidate.tunable)
    who = [tried_by.get(frozenset({**present, name: str(edit.new)}.items()), "") for name in edit.constants]
    return ", ".join(dict.fromkeys(who)) if all(who) else ""


def who_tried(candidate: Candidate, others: Mapping[int, Candidate], screened: Sequence[tuple[int, Settings]]) -> Known:
    """The attempt or sweep that tried each set of constants in a kernel that is otherwise the same."""
    alike = {number: dict(other.tunable) for number, other in others.items() if is_alike(candidate, other)}
    tried_by: Known = {}
    for number, settings in screened:
        if number == UNRECORDED:
            tried_by[frozenset({**dict(candidate.tunable), **dict(settings)}.items())] = "this sweep"
        elif number in alike:
            tried_by[frozenset({**alike[number], **dict(settings)}.items())] = f"the sweep of attempt {number}"
    return tried_by | {frozenset(constants.items()): f"attempt {number}" for number, constants in alike.items()}


def is_alike(candidate: Candidate, other: Candidate) -> bool:
    """True if the two differ in nothing but constants and claims."""
    return set(kinds_of_change(candidate.source, other.source)) <= {"constants", "claims"}
