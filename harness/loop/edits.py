"""Simulates the one-constant edits that a diagnosis advises, before anybody spends an attempt on them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from harness import files
from harness.advice.edits import SimulatedEdits, is_made_by
from harness.candidate import Candidate, Settings
from harness.contest import Contest
from harness.judge.verdict.roofline import finished_run, latency_seconds
from harness.loop import installed, screening
from harness.loop.bench import Bench
from harness.loop.settings import value_of
from harness.loop.untried_advice import TimedSettings
from harness.records import Edit, Evidence, Key

# Compiling and simulating an edit takes some seconds of one core.
_MOST_EDITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptEdits:
    """Simulated edits of the kernel that was diagnosed last, with its text and key; `asked` are the advised edits.

    `constants` are the kernel's constants; () in a file of an earlier version.
    """

    kernel_sha256: str
    key: Key
    asked: tuple[Edit, ...]
    simulated: tuple[SimulatedEdits, ...]
    constants: Settings = ()


def kept_edits(contest: Contest, candidate: Candidate, asked: Sequence[Edit] = ()) -> tuple[SimulatedEdits, ...] | None:
    """The edits of `candidate` that were simulated before under this key; None unless they cover all of `asked`."""
    kept = _kept(contest)
    is_same = kept is not None and kept.kernel_sha256 == candidate.sha256
    return kept.simulated if kept is not None and is_same and set(asked) <= set(kept.asked) else None


def timed_edits(contest: Contest, candidate: Candidate) -> tuple[TimedSettings, ...]:
    """The times that `diagnose` simulated for another kernel than `candidate`; () if there are none under this key."""
    kept = _kept(contest)
    if kept is None or not kept.constants or kept.kernel_sha256 == candidate.sha256:
        return ()
    before = dict(kept.constants)
    after = [
        ({**before, edit.constant: edit.new}, edit.time_ratio) for edit in kept.simulated if edit.time_ratio is not None
    ]
    return (TimedSettings(by="diagnose", times=((before, 1.0), *after)),)


def _kept(contest: Contest) -> _KeptEdits | None:
    """The kept edits; None if there are none, or if they were simulated under another key."""
    try:
        kept = msgspec.json.decode(_kept_path(contest).read_bytes(), type=_KeptEdits)
    except (OSError, msgspec.DecodeError):
        return None
    return kept if kept.key.counts_for(contest.key("simulated")) else None


def _kept_path(contest: Contest) -> Path:
    return contest.directory / "profile_data" / "edits" / "simulated.json"


def simulate(bench: Bench, candidate: Candidate, base: Evidence, edits: Sequence[Edit]) -> tuple[SimulatedEdits, ...]:
    """The simulated results of changing one constant so that one of `edits` may be made; times relative to `base`.

    The fastest comes first; () if `base` was not simulated. A constant of `candidate` is tried if its value is the
    size of an edit's block; the traced program then shows which blocks the constant changes. Correctness is not
    checked, and nothing is recorded. The results are kept for `kept_edits`.
    """
    contest = bench.contest
    if installed.is_unchanged(base) and (kept := kept_edits(contest, candidate, edits)) is not None:
        return kept
    run = finished_run(base)
    before = run.mean_seconds if run else None
    if not before:
        return ()
    asked = _settings(candidate, edits)
    waiting = list(asked)
    simulated: list[SimulatedEdits] = []

    def tell(candidate: Candidate, evidence: Evidence) -> None:
        name, old, new = asked[candidate]
        made = tuple(edit for edit in edits if is_made_by(edit, evidence))
        seconds = latency_seconds(evidence)
        kind, message = screening.why_no_latency(evidence) if seconds is None else ("", "")
        ratio = None if seconds is None else seconds / before
        # Without a latency the trace may be missing too; then all edits from the old size to the new one are listed.
        made = made or tuple(
            edit for edit in edits if seconds is None and (edit.size, edit.new) == (int(old), int(new))
        )
        bench.progress(f"{name}={new}", kind or "done", sum(stage.seconds for stage in evidence.stages))
        simulated.append(
            SimulatedEdits(
                constant=name, old=old, new=new, edits=made, time_ratio=ratio, why=f"{kind}: {message}" if kind else ""
            )
        )

    places = screening.local(min(len(waiting), screening.cores_to_use()) or 1)
    screening.screen(
        replace(bench, on="simulated"), lambda: waiting.pop(0) if waiting else None, tell, places, work="edits"
    )
    simulated.sort(key=lambda edit: (edit.time_ratio is None, edit.time_ratio or 0.0, edit.words))
    new = _KeptEdits(
        kernel_sha256=candidate.sha256,
        key=contest.key("simulated"),
        asked=tuple(edits),
        simulated=tuple(simulated),
        constants=candidate.tunable,
    )
    files.write_atomically(_kept_path(contest), msgspec.json.encode(new))
    return tuple(simulated)


def _settings(candidate: Candidate, edits: Sequence[Edit]) -> dict[Candidate, tuple[str, str, str]]:
    """Each candidate with one constant rewritten, and the constant's name, old value and new value, up to the limit."""
    sizes = {name: value_of(value) for name, value in candidate.constants}
    settings: dict[Candidate, tuple[str, str, str]] = {}
    for edit in edits:
        for name, value in sizes.items():
            if type(value) is int and value == edit.size and len(settings) < _MOST_EDITS:
                settings[candidate.set(((name, str(edit.new)),))] = (name, str(value), str(edit.new))
    return settings
