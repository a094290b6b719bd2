"""Simulates the edits of one constant that the diagnosis advises, before anybody spends an attempt on them."""

from collections.abc import Callable, Sequence

from harness.advice.edits import SimulatedEdits, is_made_by
from harness.candidate import Candidate
from harness.contest import Contest
from harness.judge.verdict.roofline import finished_run, latency_seconds
from harness.loop import screening
from harness.loop.settings import value_of
from harness.records import Edit, Evidence, Policy

# Each takes some seconds of one core.
_MOST_EDITS = 8


def simulated(
    contest: Contest,
    candidate: Candidate,
    base: Evidence,
    edits: Sequence[Edit],
    policy: Policy,
    progress: Callable[[str, str, float], None],
) -> tuple[SimulatedEdits, ...]:
    """The edits of `candidate` that one constant makes, compiled and simulated beside `base`, the fastest first.

    A constant is tried for an edit where its value is the block's size; which blocks it really changes only the
    program says. Nothing is checked for being right, and nothing recorded. Empty where `base` was not simulated.
    """
    run = finished_run(base)
    before = run.mean_seconds if run else None
    if not before:
        return ()
    asked = _settings(candidate, edits)
    waiting = list(asked)
    found: list[SimulatedEdits] = []

    def tell(candidate: Candidate, evidence: Evidence) -> None:
        name, old, new = asked[candidate]
        made = tuple(edit for edit in edits if is_made_by(edit, evidence))
        seconds = latency_seconds(evidence)
        kind, said = screening.why_no_latency(evidence) if seconds is None else ("", "")
        ratio = None if seconds is None else seconds / before
        # What fails to compile has no trace that says which blocks it would have had: those of this size.
        made = made or tuple(
            edit for edit in edits if seconds is None and (edit.size, edit.new) == (int(old), int(new))
        )
        progress(f"{name}={new}", kind or "done", sum(stage.seconds for stage in evidence.stages))
        found.append(
            SimulatedEdits(
                constant=name, old=old, new=new, edits=made, time_ratio=ratio, why=f"{kind}: {said}" if kind else ""
            )
        )

    screening.screen(
        contest,
        lambda: waiting.pop(0) if waiting else None,
        tell,
        policy,
        on="simulated",
        places=screening.local(min(len(waiting), screening.cores_to_use()) or 1),
        work="edits",
    )
    return tuple(sorted(found, key=lambda one: (one.time_ratio is None, one.time_ratio or 0.0, one.words)))


def _settings(candidate: Candidate, edits: Sequence[Edit]) -> dict[Candidate, tuple[str, str, str]]:
    """The candidate with one constant rewritten -> its name, its value and the new one, of the first edits."""
    sizes = {name: value_of(value) for name, value in candidate.constants}
    found: dict[Candidate, tuple[str, str, str]] = {}
    for edit in edits:
        for name, value in sizes.items():
            if type(value) is int and value == edit.size and len(found) < _MOST_EDITS:
                found[candidate.set(((name, str(edit.new)),))] = (name, str(value), str(edit.new))
    return found
