"""Judges the effect of a change's commits on the contests of a repository; nothing is recorded or checked out.

Both sides are judged in the same run, by the same judge and compiler, under the base's prepare.py, because the author
of a change must not choose the problem by which it is judged.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

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
class ProposedChange:
    """The ids of the commits to compare; `base` is the last commit that both histories have in common."""

    repository: Repo
    base: str
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedContest:
    """One contest of the change: its result, and both sides, each None if it was not judged."""

    gated: GatedContest
    before: ComparedSide | None
    after: ComparedSide | None
    contest: Contest | None


def change(folder: Path, base: str, head: str) -> ProposedChange:
    """The change that `head` makes since the commit where it left `base`.

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
            f"{base} and {head} have no commit in common here: if this is a shallow clone, deepen it "
            f"({git.shell_command(repository)} fetch --unshallow; fetch-depth: 0 for actions/checkout)",
        )
    if len(parting) > 1:
        # If the change reverts something that only one of these commits has, a diff against another of them does not
        # show this.
        raise RatchetError(
            "several-merge-bases",
            f"expected one commit where {head} left {base}, got {len(parting)}, since both were merged into each other "
            f"({', '.join(commit[:12] for commit in parting)}): merge {base} into {head} first",
        )
    return ProposedChange(repository=repository, base=parting[0], head=commits[1])


def touched_contests(change: ProposedChange, below: str = "") -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The folder of each contest whose files differ between base and head, with the names of those files, sorted."""
    paths = git.differing_paths(change.repository, change.base, change.head, [below or "."])
    folders: dict[str, set[str]] = {}
    for path in map(PurePosixPath, paths):
        folders.setdefault("" if str(path.parent) == "." else str(path.parent), set()).add(path.name)
    contests_touched = []
    for folder, names in folders.items():
        contest_files = {
            name
            for commit in (change.base, change.head)
            for name in _own_files(change.repository, commit, folder, names)
        }
        main = names & {*_OF_A_CONTEST}
        if main and any(_obstacle(change.repository, commit, folder) for commit in (change.base, change.head)):
            contest_files |= main
        if names & contest_files:
            contests_touched.append((folder, tuple(sorted(names & contest_files))))
    return tuple(sorted(contests_touched))


def origins_of_moved(change: ProposedChange, folders: Sequence[str], into: Path) -> dict[str, str]:
    """The origin of each moved contest: for its folder, which only head has, a folder that only the base has.

    A moved contest and its origin state the same problem and chip. If several folders could be the origin, the one with
    the same kernel is preferred, then the one with the same name. Files go below `into`.
    """
    gone, come = (
        {folder: contest for folder in folders if (contest := _contest_only_in(change, *commits, folder, into))}
        for commits in ((change.base, change.head), (change.head, change.base))
    )
    origins: dict[str, str] = {}
    for folder, (problem, candidate) in come.items():
        alike = [old for old, (stated, _) in gone.items() if stated == problem and old not in origins.values()]
        if alike:
            name = PurePosixPath(folder).name
            origins[folder] = min(alike, key=lambda old: (gone[old][1] != candidate, PurePosixPath(old).name != name))
    return origins


def _contest_only_in(
    change: ProposedChange, commit: str, other: str, folder: str, into: Path
) -> tuple[tuple[str, str], Candidate] | None:
    """Problem, chip and candidate of a contest that `commit` has and `other` does not; None if there is none."""
    try:
        here, there = (candidate_at(change.repository, commit_, folder) for commit_ in (commit, other))
    except RatchetError:
        return None
    prepare = _file(change.repository, commit, folder, "prepare.py")
    if here is None or there is not None or prepare is None:
        return None
    name = hashlib.sha256(folder.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    try:
        contest = _write_contest(into / name, prepare, here)
    except RatchetError:
        return None
    return (contest.problem_digest, contest.chip.name), here


def judge(
    change: ProposedChange,
    folder: str,
    changed: tuple[str, ...],
    into: Path,
    threshold: float,
    progress: Progress,
    *,
    origin: str | None = None,
) -> JudgedContest:
    """Judges both sides of the contest in `folder` (`origin` in the base, if it moved); writes below `into`."""
    was = folder if origin is None else origin

    def unjudged(outcome: GateOutcome, reason: str, state: PrepareState = "same") -> JudgedContest:
        gated = GatedContest(contest=folder, outcome=outcome, reason=reason, prepare=state, changed=changed)
        return JudgedContest(gated=gated, before=None, after=None, contest=None)

    obstacle = _obstacle(change.repository, change.base, was) or _obstacle(change.repository, change.head, folder)
    if obstacle is not None:
        return unjudged("inconclusive", obstacle)
    state: PrepareState = "same"
    try:
        before = candidate_at(change.repository, change.base, was)
        after = candidate_at(change.repository, change.head, folder)
        prepare, state = _prepare(change, was, folder)
        if after is None or prepare is None:
            return unjudged("removed", "the change removes the contest")
        contest = _write_contest(into, prepare, after)
    except RatchetError as error:
        return unjudged("inconclusive", f"{error.kind}: {error}", state)
    new = _side(contest, change.head, after, folder, "after", progress)
    old, comparison = None, None
    if before is None:
        outcome, reason = _outcome_of_failure(new.evidence) or ("new", "the base has no contest to compare with")
    else:
        old = new if before == after else _side(contest, change.base, before, folder, "before", progress)
        comparison = compare(old, new, unified(before.text, after.text))
        outcome, reason = _outcome(comparison, old.evidence, new.evidence, threshold)
        reason += "" if was == folder else f"; moved from {was or '.'}"
    latency = new.evidence.latency
    gated = GatedContest(
        contest=folder,
        outcome=outcome,
        reason=reason,
        prepare=state,
        changed=changed,
        comparison=comparison,
        seconds=latency.seconds if latency is not None and latency.source == "simulated" else None,
        chip=contest.chip.name,
    )
    return JudgedContest(gated=gated, before=old, after=new, contest=contest)


def _side(
    contest: Contest,
    commit: str,
    candidate: Candidate,
    folder: str,
    when: Literal["before", "after"],
    progress: Progress,
) -> ComparedSide:
    """One side, judged. The base (`before`) is judged only for its time: its full shape is not checked."""
    # TPUs are simulated, with the same result on every machine; other chips have no simulator.
    on = "simulated" if contest.chip.platform == "tpu" else None
    bench = Bench(contest=contest, progress=progress, on=on)
    is_slower = (lambda _: True) if when == "before" else None
    evidence = bench.judge(candidate, when, f"{folder or '.'} {when}:", is_slower=is_slower)
    return ComparedSide(name=commit[:12], candidate=candidate, evidence=evidence)


def _outcome(comparison: Comparison, before: Evidence, after: Evidence, threshold: float) -> tuple[GateOutcome, str]:
    """The outcome for a contest that both sides have, and the reason."""
    failing = _outcome_of_failure(after)
    if failing is not None:
        outcome, reason = failing
        return outcome, f"{reason}{'; the base fails too' if before.failure is not None else ''}"
    if before.failure is not None:
        reason_fixed = f"the base fails ({before.failure.kind}: {before.failure.message}), the change does not"
        # If the machine had not enough memory or time for the base, it is unknown whether the base fails.
        return "inconclusive" if before.failure.may_pass_next_time else "fixed", reason_fixed
    ratios = [(program.name, program.time_ratio) for program in comparison.programs]
    unknown = [name or "the whole" for name, ratio in ratios if ratio is None]
    if unknown:
        return "inconclusive", f"no latency to compare: {', '.join(unknown)}"
    compared = [(name, ratio) for name, ratio in ratios if ratio is not None]
    # The first ratio is the whole contest's; for a suite, it is the mean over the members.
    slowest, whole = max(compared, key=lambda pair: pair[1]), compared[0][1]
    if slowest[1] >= 1 + threshold:
        where = f" at {slowest[0]}" if slowest[0] else ""
        return "slower", f"{percent(slowest[1] - 1, 2)} more simulated time{where}"
    if whole <= 1 - threshold:
        return "faster", f"{percent(1 - whole, 2)} less simulated time"
    is_same = all(program.is_same_program for program in comparison.programs)
    return "same", "the same program" if is_same else f"within {percent(threshold)} of the base's simulated time"


def _outcome_of_failure(evidence: Evidence) -> tuple[GateOutcome, str] | None:
    failure = evidence.failure
    if failure is None:
        return None
    outcome: GateOutcome = "inconclusive" if failure.may_pass_next_time else "wrong"
    return outcome, f"{failure.kind}: {failure.message}"


# --- the commits' files --------------------------------------------------------------------------


def _own_files(repository: Repo, commit: str, folder: str, changed: Collection[str]) -> Iterator[str]:
    """prepare.py, kernel.py and its helpers, if there is a contest in `folder`.

    If the candidate is invalid (for instance, it has a reserved line), yields the `changed` modules instead, because
    each may be a helper.
    """
    try:
        candidate = candidate_at(repository, commit, folder)
    except RatchetError:
        yield from (name for name in changed if name.endswith(".py"))
        return
    if candidate is not None and _file(repository, commit, folder, "prepare.py") is not None:
        yield from (*candidate.files, "prepare.py")


def candidate_at(repository: Repo, commit: str, folder: str) -> Candidate | None:
    """The candidate of a commit in `folder`, None without a kernel.py.

    Raises RatchetError `reserved-line`.
    """
    kernel = _file(repository, commit, folder, KERNEL)
    if kernel is None:
        return None
    return Candidate.of_kernel(kernel, lambda name: _file(repository, commit, folder, name))


def _prepare(change: ProposedChange, was: str, folder: str) -> tuple[bytes | None, PrepareState]:
    """The prepare.py to judge under, and its state: the base's, or the change's own if the base has no such contest."""
    before = _file(change.repository, change.base, was, "prepare.py")
    after = _file(change.repository, change.head, folder, "prepare.py")
    if before is None:
        return after, "new"
    return before, "same" if before == after else "touched"


def _obstacle(repository: Repo, commit: str, folder: str) -> str | None:
    """The reason why `folder` in a commit cannot be read; None if it can be read or is not a contest.

    A link or a submodule in place of a contest's file or folder is a reason: a checkout may turn it into a contest.
    """
    obstacles = []
    for name in _OF_A_CONTEST:
        path = PurePosixPath(folder, name)
        for part in (*reversed(path.parents[:-1]), path):
            kind = git.kind_at(repository, commit, str(part))
            if kind is None:
                return None
            if kind != ("blob" if part == path else "tree"):
                obstacles.append(f"{part} is a {_KINDS[kind]}: expected the files themselves in the folder")
                break
    return obstacles[0] if obstacles else None


def _file(repository: Repo, commit: str, folder: str, name: str) -> bytes | None:
    """A file of the commit; None if it is missing or a link: a link may point to somebody else's file."""
    entry = git.entry_at(repository, commit, f"{folder}/{name}" if folder else name)
    # Read by id, since a path may hold a line break.
    return None if entry is None or entry.mode == git.LINK else git.read_blobs(repository, (entry.blob,))[0]


def _write_contest(into: Path, prepare: bytes, candidate: Candidate) -> Contest:
    """Writes a contest into the folder `into` and loads it. Raises RatchetError as `contest.load` does."""
    with files.refusals_in_words(f"writing {into}"):
        into.mkdir(parents=True, exist_ok=True)
        for name, data in {**candidate.files, "prepare.py": prepare}.items():
            (into / name).write_bytes(data)
    return contests.load(into)
