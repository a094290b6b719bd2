"""The entries of the user's index, and the files of the working tree that differ from HEAD; nothing is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from git import Repo

from harness.ledger import git
from harness.ledger.git import TreeEntry
from harness.ledger.git.command import names_in, run


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One path in the user's index; `stages` other than ("0",) mean a conflict, `tag` is from `git ls-files -v`."""

    entry: TreeEntry
    stages: tuple[str, ...]
    tag: str


def changed_paths(repository: Repo, paths: Sequence[Path]) -> tuple[str, ...]:
    """Files under `paths` that differ from HEAD: staged, edited, deleted, untracked (ignored ones do not count).

    Files marked assume-unchanged or skip-worktree are compared by content, since `git status`
    would not look at them.
    """
    if not paths:
        return ()
    names = [git.relative_path(repository, path) for path in paths]
    output = run(repository, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", *names)
    changed = [record[3:] for record in names_in(output)]
    hidden = [path for path, tag in _index_tags(repository, names).items() if tag == "S" or tag.islower()]
    for path in hidden:
        file = git.root(repository) / path
        # A file that a sparse checkout leaves out is not there, and so is not changed.
        if file.is_file():
            entry = git.entry_at(repository, "HEAD", path)
            if entry is None or entry.blob != git.hash_of(repository, file.read_bytes(), path):
                changed.append(path)
    return tuple(dict.fromkeys(changed))


def index_entries(repository: Repo, paths: Sequence[str]) -> dict[str, IndexEntry]:
    """The entries of the user's index at exactly `paths`; paths that the index lacks are left out."""
    tags = _index_tags(repository, paths)
    entries: dict[str, IndexEntry] = {}
    for record in names_in(run(repository, "ls-files", "-z", "--stage", "--", *paths)):
        facts, _, path = record.partition("\t")
        mode, blob, stage = facts.split(" ")
        if path in paths:
            stages = (*entries[path].stages, stage) if path in entries else (stage,)
            entries[path] = IndexEntry(entry=TreeEntry(mode=mode, blob=blob), stages=stages, tag=tags.get(path, "H"))
    return entries


def staged(repository: Repo) -> bytes:
    """The user's index as git lists it: modes, blobs, stages and paths, without times of files."""
    return run(repository, "ls-files", "-z", "--stage")


def _index_tags(repository: Repo, paths: Sequence[str]) -> Mapping[str, str]:
    return {record[2:]: record[0] for record in names_in(run(repository, "ls-files", "-z", "-v", "--", *paths))}
