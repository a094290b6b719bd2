"""Judges what the commits of a change do to the contests of a repository; nothing is recorded, nothing checked out.

Both sides are judged in the same run, by the same judge and compiler, under the base's prepare.py: who proposes a
change does not choose the problem that it is judged by.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from git import Repo

from harness import contest as contests
from harness import files
from harness.advice.comparison import ComparedSide, compare
from harness.candidate import KERNEL, Candidate
from harness.contest import Contest
from harness.errors import RatchetError, UsageError
from harness.judge.evaluate.request import Progress
from harness.ledger import git
from harness.ledger.diff import unified
from harness.loop.bench import Bench
from harness.records import Evidence
from harness.records.comparison import Comparison
from harness.records.gate import GatedContest, GateOutcome, PrepareState
from harness.units import percent

_OF_A_CONTEST = (KERNEL, "prepare.py")
_KINDS = {"link": "symbolic link", "commit": "submodule", "tree": "folder", "blob": "file"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is merged into what: `base` is where the two histories part, both are commit ids."""

    repository: Repo
    base: str
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One contest as it was judged: the finding, and both sides, None where there is none."""

    gated: GatedContest
    before: ComparedSide | None
    after: ComparedSide | None
    contest: Contest | None


def change(folder: Path, base: str, head: str) -> Change:
    """The change from where `head` left `base`.

    Raises UsageError `unknown-commit`, RatchetError `no-merge-base`, `several-merge-bases`.
    """
    repository = git.open_repository(folder)
    commits = []
    for name in (base, head):
        commit = git.commit_of(repository, name)
        if commit is None:
            raise UsageError("unknown-commit", f"expected a commit or branch, got {name!r}, which is not in this clone")
        commits.append(commit)
    parting = git.merge_bases(repository, *commits)
    if not parting:
        raise RatchetError(
            "no-merge-base",
            f"{base} and {head} have no commit in common here: a shallow clone has to be deepened "
            "(git fetch --unshallow; fetch-depth: 0 for actions/checkout)",
        )
    if len(parting) > 1:
        # What one of them has and the change takes back would be no difference from the other.
        raise RatchetError(
            "several-merge-bases",
            f"expected one commit where {head} left {base}, got {len(parting)}, since each has merged from the other "
            f"({', '.join(commit[:12] for commit in parting)}): merge {base} into {head} first",
        )
    return Change(repository=repository, base=parting[0], head=commits[1])


def touched(change: Change, below: str = "") -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The folder of each contest whose files differ between the two, and the names of those files, sorted."""
    paths = git.differing_paths(change.repository, change.base, change.head, [below or "."])
    folders: dict[str, set[str]] = {}
    for path in map(PurePosixPath, paths):
        folders.setdefault("" if str(path.parent) == "." else str(path.parent), set()).add(path.name)
    found = []
    for folder, names in folders.items():
        own = {
            name
            for commit in (change.base, change.head)
            for name in _own_files(change.repository, commit, folder, names)
        }
        main = names & {*_OF_A_CONTEST}
        if main and any(_obstacle(change.repository, commit, folder) for commit in (change.base, change.head)):
            own |= main
        if names & own:
            found.append((folder, tuple(sorted(names & own))))
    return tuple(sorted(found))


def moved(change: Change, folders: Sequence[str], into: Path) -> dict[str, str]:
    """The folder that a contest had in the base, by its folder now: of those that state the same problem and chip.

    Of several the one with the same kernel is it, else one with the same name. Files go below `into`.
    """
    gone = {folder: found for folder in folders if (found := _stated(change, change.base, change.head, folder, into))}
    come = {folder: found for folder in folders if (found := _stated(change, change.head, change.base, folder, into))}
    origins: dict[str, str] = {}
    for folder, (problem, candidate) in come.items():
        alike = [old for old, (stated, _) in gone.items() if stated == problem and old not in origins.values()]
        if alike:
            name = PurePosixPath(folder).name
            origins[folder] = min(alike, key=lambda old: (gone[old][1] != candidate, PurePosixPath(old).name != name))
    return origins


def _stated(
    change: Change, commit: str, other: str, folder: str, into: Path
) -> tuple[tuple[str, str], Candidate] | None:
    """What a contest states that is in `commit` and not in the `other`, and its candidate; None where it is not so."""
    try:
        here, there = (candidate_at(change.repository, one, folder) for one in (commit, other))
    except RatchetError:
        return None
    prepare = _file(change.repository, commit, folder, "prepare.py")
    if here is None or there is not None or prepare is None:
        return None
    try:
        contest = _written(
            into / hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:16], prepare, here
        )
    except RatchetError:
        return None
    return (contest.problem_digest, contest.chip.name), here


def judge(
    change: Change,
    folder: str,
    changed: tuple[str, ...],
    into: Path,
    threshold: float,
    progress: Progress,
    *,
    origin: str | None = None,
) -> Judged:
    """Judges both sides of the contest in `folder`, in the base in `origin`; its files go below `into`."""
    was = folder if origin is None else origin
    obstacle = _obstacle(change.repository, change.base, was) or _obstacle(change.repository, change.head, folder)
    if obstacle is not None:
        return _alone(folder, "inconclusive", obstacle, "same", changed)
    try:
        before, after = (
            candidate_at(change.repository, change.base, was),
            candidate_at(change.repository, change.head, folder),
        )
    except RatchetError as error:
        return _alone(folder, "inconclusive", f"{error.kind}: {error}", "same", changed)
    prepare, state = _prepare(change, was, folder)
    if after is None or prepare is None:
        return _alone(folder, "removed", "the change removes it", "same", changed)
    try:
        contest = _written(into, prepare, after)
    except RatchetError as error:
        return _alone(folder, "inconclusive", f"{error.kind}: {error}", state, changed)
    label = folder or "."
    new = _side(contest, change.head, after, f"{label} after", "after", progress)
    if before is None:
        outcome, reason = _failing(new.evidence) or ("new", "there is no base to hold it against")
        alone = _alone(folder, outcome, reason, state, changed, new.evidence)
        return replace(alone, after=new, contest=contest)
    is_same = before == after
    old = new if is_same else _side(contest, change.base, before, f"{label} before", "before", progress, is_base=True)
    comparison = compare(old, new, unified(before.text, after.text))
    outcome, reason = _outcome(comparison, old.evidence, new.evidence, threshold)
    reason += "" if was == folder else f"; before in {was or '.'}"
    gated = GatedContest(
        contest=folder,
        outcome=outcome,
        reason=reason,
        prepare=state,
        changed=changed,
        comparison=comparison,
        seconds=_simulated_seconds(new.evidence),
        chip=contest.chip.name,
    )
    return Judged(gated=gated, before=old, after=new, contest=contest)


def _alone(
    folder: str,
    outcome: GateOutcome,
    reason: str,
    state: PrepareState,
    changed: tuple[str, ...],
    evidence: Evidence | None = None,
) -> Judged:
    gated = GatedContest(
        contest=folder,
        outcome=outcome,
        reason=reason,
        prepare=state,
        changed=changed,
        seconds=_simulated_seconds(evidence) if evidence else None,
        chip=evidence.chip if evidence else "",
    )
    return Judged(gated=gated, before=None, after=None, contest=None)


def _simulated_seconds(evidence: Evidence) -> float | None:
    latency = evidence.latency
    return latency.seconds if latency is not None and latency.source == "simulated" else None


def _side(
    contest: Contest,
    commit: str,
    candidate: Candidate,
    label: str,
    work: str,
    progress: Progress,
    *,
    is_base: bool = False,
) -> ComparedSide:
    """One side, judged. Of the base the time is asked for: it is not checked at the full shape."""
    # What is simulated is the same on every machine; for other chips there is no simulator.
    on = "simulated" if contest.chip.platform == "tpu" else None
    bench = Bench(contest=contest, progress=progress, on=on)
    evidence = bench.judge(candidate, work, f"{label}:", is_slower=(lambda _: True) if is_base else None)
    return ComparedSide(name=commit[:12], candidate=candidate, evidence=evidence)


def _outcome(found: Comparison, before: Evidence, after: Evidence, threshold: float) -> tuple[GateOutcome, str]:
    """What the change does, and why that is said."""
    failing = _failing(after)
    if failing is not None:
        outcome, reason = failing
        return outcome, f"{reason}{'; the base fails too' if before.failure is not None else ''}"
    if before.failure is not None:
        said = f"the base fails ({before.failure.kind}: {before.failure.message}), the change does not"
        # A machine that had no memory or time for the base says nothing about it.
        return "inconclusive" if before.failure.may_pass_next_time else "fixed", said
    ratios = [(program.name, program.time_ratio) for program in found.programs]
    unknown = [name or "the whole" for name, ratio in ratios if ratio is None]
    if unknown:
        return "inconclusive", f"no latency to compare: {', '.join(unknown)}"
    known = [(name, ratio) for name, ratio in ratios if ratio is not None]
    # The whole comes first: of a suite the mean over its members.
    slowest, whole = max(known, key=lambda one: one[1]), known[0][1]
    if slowest[1] >= 1 + threshold:
        where = f" at {slowest[0]}" if slowest[0] else ""
        return "slower", f"{percent(slowest[1] - 1, 2)} more simulated time{where}"
    if whole <= 1 - threshold:
        return "faster", f"{percent(1 - whole, 2)} less simulated time"
    is_same = all(program.is_same_program for program in found.programs)
    return "same", "the same program" if is_same else f"within {percent(threshold)} of the base's simulated time"


def _failing(evidence: Evidence) -> tuple[GateOutcome, str] | None:
    failure = evidence.failure
    if failure is None:
        return None
    outcome: GateOutcome = "inconclusive" if failure.may_pass_next_time else "wrong"
    return outcome, f"{failure.kind}: {failure.message}"


# --- what the commits hold -----------------------------------------------------------------------


def _own_files(repository: Repo, commit: str, folder: str, changed: Collection[str]) -> Iterator[str]:
    """prepare.py, kernel.py and its helpers, where there is a contest in `folder`.

    Where a candidate is none, as with a reserved line, any module among the `changed` files may be a helper.
    """
    try:
        candidate = candidate_at(repository, commit, folder)
    except RatchetError:
        yield from (name for name in changed if name.endswith(".py"))
        return
    if candidate is not None and _file(repository, commit, folder, "prepare.py") is not None:
        yield from (*candidate.files, "prepare.py")


def candidate_at(repository: Repo, commit: str, folder: str) -> Candidate | None:
    """The candidate that a commit has in `folder`, None where there is no kernel.py.

    Raises RatchetError `reserved-line`.
    """
    kernel = _file(repository, commit, folder, KERNEL)
    if kernel is None:
        return None
    return Candidate.of_kernel(kernel, lambda name: _file(repository, commit, folder, name))


def _prepare(change: Change, was: str, folder: str) -> tuple[bytes | None, PrepareState]:
    """The prepare.py to judge under: the base's, or the change's own where the base has no such contest."""
    before = _file(change.repository, change.base, was, "prepare.py")
    after = _file(change.repository, change.head, folder, "prepare.py")
    if before is None:
        return after, "new"
    return before, "same" if before == after else "touched"


def _obstacle(repository: Repo, commit: str, folder: str) -> str | None:
    """Why it cannot be told what a commit has in `folder`; None where it can, or there is no contest.

    A link or a submodule in the way to its files, or instead of one, is: a checkout may make a contest of it.
    """
    found = []
    for name in _OF_A_CONTEST:
        path = PurePosixPath(folder, name)
        for part in (*reversed(path.parents[:-1]), path):
            kind = git.kind_at(repository, commit, str(part))
            if kind is None:
                return None
            if kind != ("blob" if part == path else "tree"):
                found.append(f"{part} is a {_KINDS[kind]}: expected the files themselves in the folder")
                break
    return found[0] if found else None


def _file(repository: Repo, commit: str, folder: str, name: str) -> bytes | None:
    """A file as the commit has it; a link is somebody else's file."""
    entry = git.entry_at(repository, commit, f"{folder}/{name}" if folder else name)
    # By its id, since a path may hold a line break.
    return None if entry is None or entry.mode == git.LINK else git.read_blobs(repository, (entry.blob,))[0]


def _written(into: Path, prepare: bytes, candidate: Candidate) -> Contest:
    """A contest in a folder of its own. Raises RatchetError as `contest.load` does."""
    with files.refusals_in_words(f"writing {into}"):
        into.mkdir(parents=True, exist_ok=True)
        for name, data in {**candidate.files, "prepare.py": prepare}.items():
            (into / name).write_bytes(data)
    return contests.load(into)
