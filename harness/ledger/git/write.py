"""Writes objects, refs and exactly named index entries into a repository, with git plumbing commands.

Commits are built with `commit-tree` instead of `git commit`, without the user's index and working tree. So pre-commit
and commit-msg hooks do not run. The `reference-transaction` hook runs, and may refuse the change.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from git import Repo

from harness.errors import RatchetError
from harness.files import refusals_in_words
from harness.ledger import git
from harness.ledger.git import index, locks
from harness.ledger.git.command import attempted, run

# Editors and prompts hold index.lock for moments when they refresh; a process that holds it longer does real work.
_INDEX_PATIENCE_SECONDS = 3.0
_INDEX_PAUSE_SECONDS = 0.05
# Settings for the index that a user may have switched on, and that must be off for a private index.
_PLAIN_INDEX = ("core.splitIndex=false", "core.fsmonitor=false", "core.untrackedCache=false", "index.sparse=false")


def write_blob(repository: Repo, data: bytes, path: str | None = None) -> str:
    """Stores `data` and returns the blob's id; with `path`, applies its line endings and filters like `git add`."""
    form = f"--path={path}" if path is not None else "--no-filters"
    return run(repository, "hash-object", "-w", "--stdin", form, stdin=data).decode().strip()


def write_tree(repository: Repo, base: str | None, changes: Mapping[str, git.TreeEntry], private_index: Path) -> str:
    """Stores the tree of commit `base` (None: empty) with `changes` by path, and returns its id.

    Uses an index at `private_index`, which is removed afterwards. Raises RatchetError, for example if there is a folder
    in the place of a file.
    """
    leftovers = (private_index, private_index.with_name(f"{private_index.name}.lock"))
    command = partial(run, settings=_PLAIN_INDEX, environment={"GIT_INDEX_FILE": str(private_index)})
    with refusals_in_words(f"preparing {private_index}"):
        private_index.parent.mkdir(parents=True, exist_ok=True)
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
    try:
        command(repository, "read-tree", base or "--empty")
        command(repository, "update-index", "-z", "--index-info", stdin=_index_lines(changes))
        # --missing-ok: a partial clone need not fetch blobs that nobody changed.
        return command(repository, "write-tree", "--missing-ok").decode().strip()
    finally:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)


def deletion(commit: str) -> git.TreeEntry:
    """The change that deletes a path, in a repository with ids as long as that of `commit`."""
    # Mode 0 is git's word for a deletion.
    return git.TreeEntry(mode="0", blob="0" * len(commit))


def write_commit(repository: Repo, tree: str, parents: Sequence[str], message: str) -> str:
    """Stores a commit by the user, now, and returns its id; it is signed if the user's configuration says so.

    Raises RatchetError `signing` or `identity`.
    """
    sign = git.is_set(repository, "commit.gpgsign", False)
    options = [word for parent in parents for word in ("-p", parent)]
    options += ["--gpg-sign"] if sign else ["--no-gpg-sign"]
    # A commit message cannot hold a NUL, nor text that is not UTF-8; the record keeps both.
    text = message.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    try:
        return run(repository, "commit-tree", tree, *options, stdin=text).decode().strip()
    except RatchetError as error:
        if sign and error.kind == "git":
            raise RatchetError(
                "signing",
                f"commit.gpgsign is set and signing the commit failed: {error}\n"
                f"Make signing work, or `{git.shell_command(repository)} config commit.gpgsign false`; the next "
                "command then finishes what was begun",
            ) from error
        raise


def commit_files(
    repository: Repo, files: Mapping[str, bytes | None], message: str, private_index: Path
) -> tuple[str, int] | None:
    """Commits these files, by their paths from the top, on the branch that is checked out; None deletes a file.

    Returns the commit and the number of files that it changes, or None if HEAD already has all of these files. Other
    staged or changed files stay out of the commit, and the user's index is updated at these paths. Raises RatchetError
    `ref-moved` if somebody else committed meanwhile, and the errors of `require_committable`.
    """
    git.require_committable(repository)
    head, branch = git.head_commit(repository), git.branch(repository)
    gone = deletion(head)
    entries = {
        path: gone if data is None else git.TreeEntry(blob=write_blob(repository, data, path))
        for path, data in files.items()
    }
    changes = {
        path: entry for path, entry in entries.items() if (git.entry_at(repository, head, path) or gone) != entry
    }
    if not changes:
        return None
    tree = write_tree(repository, head, changes, private_index)
    commit = write_commit(repository, tree, (head,), message)
    move_ref(repository, branch, commit, head, f"ratchet: {message.splitlines()[0]}")
    set_index_entries(repository, changes)
    return commit, len(changes)


def require_signing(repository: Repo) -> None:
    """Raises RatchetError `signing` if commits must be signed but cannot be, before anybody waits for a verdict.

    Stores one commit that nothing refers to.
    """
    if git.is_set(repository, "commit.gpgsign", False):
        tree = run(repository, "rev-parse", "HEAD^{tree}").decode().strip()
        write_commit(repository, tree, (), "whether commits can be signed")


def move_ref(repository: Repo, ref: str, new: str, old: str | None, reason: str) -> None:
    """Points `ref` at `new` if it still is at `old` (None: does not exist yet). Raises RatchetError `ref-moved`."""
    run(repository, "update-ref", "-m", reason, ref, new, old or "0" * len(new))


def moves_ref(repository: Repo, ref: str, new: str, old: str | None, reason: str) -> bool:
    """True if `move_ref` succeeds, False if another process moved the ref first."""
    try:
        move_ref(repository, ref, new, old, reason)
    except RatchetError as error:
        if error.kind != "ref-moved":
            raise
        return False
    return True


def delete_ref(repository: Repo, ref: str, old: str) -> None:
    """Deletes `ref` if it still is at `old`. Raises RatchetError `ref-moved`."""
    run(repository, "update-ref", "-d", ref, old)


def set_index_entries(repository: Repo, changes: Mapping[str, git.TreeEntry]) -> None:
    """Makes the user's index hold exactly `changes` at these paths; every other entry stays byte for byte.

    Marks (assume-unchanged, skip-worktree) are kept. If another git command holds the index, this waits a few seconds,
    then raises RatchetError `index-locked`.
    """
    if not changes:
        return
    tags = {path: entry.tag for path, entry in index.index_entries(repository, tuple(changes)).items()}
    _patiently(repository, "update-index", "-z", "--index-info", stdin=_index_lines(changes))
    _mark(repository, "--assume-unchanged", (path for path, tag in tags.items() if tag.islower()))
    _mark(repository, "--skip-worktree", (path for path, tag in tags.items() if tag.upper() == "S"))
    unmarked = [path for path, entry in changes.items() if entry.mode != "0" and tags.get(path, "H") == "H"]
    refresh_index(repository, unmarked)


def refresh_index(repository: Repo, paths: Sequence[str]) -> None:
    """Updates times and sizes of the files at `paths` in the index, so that plumbing sees them clean; stages nothing.

    This is a convenience for scripts: if it is not possible (a locked index), `git status` does it later.
    """
    if paths:
        # File times advance in steps of some milliseconds and may lie behind the clock.
        began = time.time() - 0.05
        status, _, _ = attempted(repository, "add", "--refresh", "--ignore-errors", "--", *paths)
        if status:
            # On a full disk git is ended by a signal and leaves its lock behind.
            locks.remove_dead(repository, (), began)


def _mark(repository: Repo, mark: str, paths: Iterable[str]) -> None:
    lines = "".join(f"{path}\0" for path in paths).encode("utf-8", "surrogateescape")
    if lines:
        _patiently(repository, "update-index", mark, "-z", "--stdin", stdin=lines)


def _patiently(repository: Repo, *arguments: str, stdin: bytes = b"") -> None:
    deadline = time.monotonic() + _INDEX_PATIENCE_SECONDS
    while True:
        try:
            run(repository, *arguments, stdin=stdin)
            return
        except RatchetError as error:
            if error.kind != "index-locked" or time.monotonic() > deadline:
                raise
        time.sleep(_INDEX_PAUSE_SECONDS)


def _index_lines(changes: Mapping[str, git.TreeEntry]) -> bytes:
    lines = "".join(f"{entry.mode} {entry.blob}\t{path}\0" for path, entry in sorted(changes.items()))
    return lines.encode("utf-8", "surrogateescape")
