"""Advice on the size of a block: edits that were tried are left out, edits of which a time is known are marked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.advice.diagnose import is_below
from harness.advice.kernel_changes import kinds_of_change
from harness.candidate import Candidate, Settings
from harness.records import Edit, Hint
from harness.records.report_words import less_time
from harness.units import percent

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
    least_gain: float = 0.0,
) -> tuple[tuple[Hint, ...], tuple[str, ...]]:
    """The hints on `candidate` without hints whose edits were all tried in it; and a sentence on each hint left out.

    `others` are the attempts' candidates. `screened` are the settings that sweeps tried, each with the attempt of its
    sweep. Edits that were slower in another kernel, by `timed`, or that saved less there than the threshold
    `least_gain`, are marked and not left out. Hints whose known gains are all below the threshold come last.
    """
    tried_by = who_tried(candidate, others, screened)
    left: list[Hint] = []
    last: list[Hint] = []
    left_out: list[str] = []
    for hint in hints:
        by = {edit: _by(edit, candidate, tried_by) for edit in hint.edits}
        who = ", ".join(dict.fromkeys(filter(None, by.values())))
        if by and all(by.values()):
            left_out.append(f"advice left out, because it was tried by {who}: {hint.suggestion}")
            continue
        done = [f"{'/'.join(edit.constants)}={edit.new} by {name}" for edit, name in by.items() if name]
        words = f"{hint.suggestion}; tried already: {', '.join(dict.fromkeys(done))}" if done else hint.suggestion
        elsewhere = {
            edit: _times_elsewhere(edit, candidate, timed, least_gain) for edit, name in by.items() if not name
        }
        edits_by_fate: dict[str, list[str]] = {}
        for fate, its_edit in (each for times in elsewhere.values() for each in times):
            edits_by_fate.setdefault(fate, []).append(its_edit)
        for fate, those in edits_by_fate.items():
            words += f"; {fate}: {', '.join(dict.fromkeys(those))}"
        is_last = is_below(hint, least_gain) or (hint.gain is None and bool(elsewhere) and all(elsewhere.values()))
        (last if is_last else left).append(replace(hint, suggestion=words))
    return (*left, *last), tuple(left_out)


def _times_elsewhere(
    edit: Edit, candidate: Candidate, timed: Sequence[TimedSettings], least_gain: float
) -> tuple[tuple[str, str], ...]:
    """For each of the edit's constants, the newest record that compares its values, in words, and the change.

    Such as `slower in another kernel, by the sweep of attempt 3` and `BR=256 (1.1% more time)`.

    () if a constant has no such record, or if the new value saves `least_gain` in one of these records. A record
    compares the values of a constant if
    - it has times with the present and with the new value, all other constants the same, and
    - the other constants that its kernel shares with `candidate` have the present values.
    """
    present = dict(candidate.tunable)
    changes: list[tuple[str, str]] = []
    for name in edit.constants:
        ratios = ((record.by, _time_ratio(record, present, name, str(edit.new))) for record in reversed(timed))
        by, ratio = next(((by, ratio) for by, ratio in ratios if ratio is not None), ("", 0.0))
        if ratio <= 1 - least_gain:
            return ()
        fate = "slower" if ratio > 1 else f"below the threshold of {percent(least_gain)}"
        changes.append((f"{fate} in another kernel, by {by}", f"{name}={edit.new} ({less_time(ratio)})"))
    return tuple(changes)


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
