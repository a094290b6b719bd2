"""Guards files that no candidate may touch while its processes run, and restores them.

After a change, nobody can tell who made it: a person may also commit, fetch or edit during an attempt. So there are two
rules:

- The files of the judge and of the ledger, git's configuration and hooks (which can name programs) and the log belong
  to the attempt while its lock is held. A change is undone, its content is set aside, and the attempt fails. A change
  that a commit made stays; if it is in the judge's files, the attempt fails too.
- Branches, tags, HEAD and the index are the person's and are never moved back. Confined children cannot have touched
  them, and an accept checks the branch when it commits (`branch-moved`). If the children were not confined, any
  change makes the attempt fail, with a sentence on how to undo it.
"""

from dataclasses import dataclass
from pathlib import Path

from git import Repo

from harness import files
from harness.contest import PACKAGE, Contest
from harness.errors import RatchetError
from harness.ledger import Ledger, git, notes
from harness.ledger.git import index, write
from harness.ledger.git.refs import refs
from harness.records import Failure
from harness.sandbox import confinement

# Files in the git directory that configure git: each can name programs.
_CONFIGURATION = ("config", "config.worktree", "info/attributes", "hooks/*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The watched state.

    `patterns` are pairs of folder and name pattern for the ledger's files and git's configuration; they also find files
    that are created later. `ours` is the ref of the ledger's log.
    """

    repository: Repo
    patterns: tuple[tuple[Path, str], ...]
    contents: dict[Path, tuple[int, bytes]]
    ours: str
    head: str
    places: dict[str, str]
    staged: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tampering:
    """Changes that were undone, and changes that stay, in sentences."""

    undone: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences: first on the changes that were undone, then on those that stay."""
        return (*self.undone, *self.standing)

    def failure(self) -> Failure | None:
        """The attempt's failure, or None if nothing was changed."""
        sentences = self.sentences
        if not sentences:
            return None
        message = f"files or refs changed while the candidate's processes ran: {sentences[0]}"
        return Failure(stage="static", kind="tampered", message=message, detail="\n".join(sentences))


def begin(ledger: Ledger, contest: Contest) -> Watch:
    """The state that a candidate's processes may not touch: harness, contest, ledger, git's configuration."""
    judge = (*contest.judge_files(), *sorted(PACKAGE.rglob("*.py")), *sorted(contest.directory.glob("*.sh")))
    packed = ledger.place.packed_path
    records = (
        (ledger.place.experiments_directory, "*.json"),
        *((ledger.place.experiments_directory, name) for name in notes.FILES),
        (packed.parent, packed.name),
        (ledger.place.state_directory, "*.json"),
    )
    return watch(ledger.place.repository, judge, records, ledger.place.log_ref)


def accept_notes(ledger: Ledger, before: Watch) -> None:
    """Counts the ledger's present notes as untouched, because the ratchet itself has written some."""
    for path in (ledger.place.experiments_directory / name for name in notes.FILES):
        if (content := _content(path)) is not None:
            before.contents[path] = content


def end(ledger: Ledger, before: Watch, name: str, *, is_confined: bool) -> Tampering:
    """Undoes changes since `before`; changed contents are kept in the folder `set-aside/NAME` of the contest."""
    layers = confinement.isolation(is_confined)
    aside = ledger.place.state_directory / "set-aside" / name
    return put_right(before, aside, were_confined=layers.landlock is not None)


def watch(repository: Repo, judge: tuple[Path, ...], ledger: tuple[tuple[Path, str], ...], log_ref: str) -> Watch:
    """The present state of the judge's files, of files that match `ledger` (folder, pattern), and of the repository."""
    common = git.common_directory(repository)
    patterns = (*ledger, *((common, name) for name in _CONFIGURATION))
    paths = (*judge, *(path for folder, pattern in patterns for path in folder.glob(pattern)))
    return Watch(
        repository=repository,
        patterns=patterns,
        contents={path: content for path in paths if (content := _content(path)) is not None},
        ours=log_ref,
        head=git.head_commit(repository),
        places=_places(repository),
        staged=index.staged(repository),
    )


def put_right(before: Watch, aside: Path, *, were_confined: bool) -> Tampering:
    """Undoes forbidden changes since `before`, files first, because some of them configure git.

    Keeps the changed contents in the folder `aside`. Raises RatchetError if a file cannot be written.
    """
    undone, standing = _put_files_back(before, aside)
    undone += _remove_broken_log(before, aside)
    places = _places(before.repository)
    was, there = before.places.get(before.ours), places.get(before.ours)
    if was != there:
        if was is None:
            write.delete_ref(before.repository, before.ours, there or "")
        else:
            reason = "ratchet: undo what was changed during an attempt"
            write.move_ref(before.repository, before.ours, was, there, reason)
        undone.append(
            f"{before.ours} was moved from {_short(was)} to {_short(there)}, and was moved back; "
            "if you fetched it, fetch it again"
        )
    if were_confined:
        return Tampering(undone=tuple(undone), standing=tuple(standing))
    for name in sorted({*before.places, *places} - {before.ours}):
        was, there = before.places.get(name), places.get(name)
        if was != there:
            moved = f"{name} was at {_short(was)} and is at {_short(there)}"
            standing.append(f"{moved}; if that was not you: git {_remedy(name, was)}")
    if not standing and index.staged(before.repository) != before.staged:
        standing.append("the index was changed; if that was not you: git diff --cached shows how")
    return Tampering(undone=tuple(undone), standing=tuple(standing))


def _put_files_back(before: Watch, aside: Path) -> tuple[list[str], list[str]]:
    """Restores every changed file, unless HEAD now has its content: then a person committed or pulled meanwhile."""
    undone: list[str] = []
    standing: list[str] = []
    # The patterns are expanded again to find added files.
    present = {path for folder, pattern in before.patterns for path in folder.glob(pattern) if path.is_file()}
    for path in sorted({*before.contents, *present}):
        was = before.contents.get(path)
        there = _content(path)
        if was == there:
            continue
        if there is not None and _is_committed(before, path, there[1]):
            # Only a change of the judge's code matters: the verdict would come from two judges. Additional records in
            # .json and .jsonl files do no harm.
            if path.suffix not in (".json", ".jsonl"):
                standing.append(f"{_shown(before, path)} was changed by a commit, and stays; run the attempt again")
            continue
        if there is not None:
            files.write_atomically(aside / f"{len(undone)}-{path.name}", there[1])
        if was is None:
            files.remove(path)
            done = f"was added, and was removed again (kept in {_shown(before, aside)})"
        else:
            files.write_atomically(path, was[1])
            path.chmod(was[0])
            done = "was removed" if there is None else f"was changed (kept in {_shown(before, aside)})"
            done += ", and was restored"
        undone.append(f"{_shown(before, path)} {done}")
    return undone, standing


def _remove_broken_log(before: Watch, aside: Path) -> list[str]:
    """Removes the file of the log's ref if it names no commit: git would neither list nor move such a ref."""
    path = git.common_directory(before.repository) / before.ours
    if not path.is_file() or git.commit_of(before.repository, before.ours) is not None:
        return []
    files.write_atomically(aside / path.name, path.read_bytes())
    files.remove(path)
    return [f"{before.ours} named no commit, and was removed (kept in {_shown(before, aside)})"]


def _content(path: Path) -> tuple[int, bytes] | None:
    """Permissions and bytes of a file, None if it does not exist."""
    return (path.stat().st_mode & 0o7777, path.read_bytes()) if path.is_file() else None


def _is_committed(before: Watch, path: Path, there: bytes) -> bool:
    """True if HEAD has moved and now holds exactly this content."""
    if git.head_commit(before.repository) == before.head:
        return False
    try:
        name = git.relative_path(before.repository, path)
    except RatchetError:
        return False
    entry = git.entry_at(before.repository, "HEAD", name)
    return entry is not None and entry.blob == git.hash_of(before.repository, there, name)


def _places(repository: Repo) -> dict[str, str]:
    """Every ref with its target, and HEAD with its branch."""
    return {**refs(repository), "HEAD": git.branch_or_none(repository) or git.head_commit(repository)}


def _remedy(name: str, was: str | None) -> str:
    if was is None:
        return f"update-ref -d {name}"
    return f"symbolic-ref HEAD {was}" if name == "HEAD" else f"update-ref {name} {was}"


def _shown(before: Watch, path: Path) -> str:
    top = git.root(before.repository)
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else str(path)


def _short(place: str | None) -> str:
    return "nothing" if place is None else place if place.startswith("refs/") else place[:12]
