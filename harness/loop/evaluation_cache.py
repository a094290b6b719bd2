"""kernel.py as it stands, judged, and what that found kept for those who ask again: nothing of it is recorded."""

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from harness import files
from harness.contest import Contest
from harness.judge.evaluate.request import Listener, Progress
from harness.ledger import lock as locking
from harness.loop.evaluate import Options, evaluate, request
from harness.records import Evidence, Key, Policy

WORK = "judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the last judgement found, and of what."""

    kernel_sha256: str
    key: Key
    evidence: Evidence


def judge(contest: Contest, options: Options, policy: Policy, progress: Progress) -> Evidence:
    """The evidence about kernel.py as it stands, taken now; its files lie in `profile_data/judge` until the next time.

    The constants that `options.settings` names are rewritten first, in what is judged and not in the file.

    Raises RatchetError `busy` and what `evaluate` raises.
    """
    with locking.held(contest.directory / "profile_data" / "judge.lock", "judge"):
        # First of all: what is kept must never speak of schedules that are being replaced.
        if _path(contest).exists():
            files.remove(_path(contest))
        candidate = contest.candidate().set(options.settings)
        asked = replace(request(contest, candidate, WORK, on=options.on), deep=options.deep, policy=policy)
        evidence = evaluate(asked, Listener(progress=progress))
        found = _Found(kernel_sha256=candidate.sha256, key=_key(contest), evidence=evidence)
        files.write_atomically(_path(contest), msgspec.json.encode(found))
        return evidence


def evidence(contest: Contest, policy: Policy, progress: Progress) -> Evidence:
    """The same, but what was found last if neither kernel.py nor the judge, chip or compiler has changed since."""
    return kept(contest) or judge(contest, Options(), policy, progress)


def kept(contest: Contest) -> Evidence | None:
    """What was found last about kernel.py as it stands, None where it was not judged so."""
    try:
        found = msgspec.json.decode(_path(contest).read_bytes(), type=_Found)
    except (OSError, msgspec.DecodeError):
        return None
    is_same = found.kernel_sha256 == contest.candidate().sha256 and found.key.counts_for(_key(contest))
    return found.evidence if is_same else None


def _key(contest: Contest) -> Key:
    # What is simulated does not depend on the machine, wherever the latency was taken.
    return contest.key("simulated")


def _path(contest: Contest) -> Path:
    return contest.directory / "profile_data" / WORK / "found.json"
