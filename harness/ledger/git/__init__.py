"""Questions about a repository, one function each; nothing is written. The module `write` changes repositories."""

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from git import Repo
from git.exc import InvalidGitRepositoryError, NoSuchPathError

from harness.errors import RatchetError
from harness.ledger.git.command import attempted, environment_here, names_in, refusal, run

# The mode of a symbolic link.
LINK = "120000"
# Files in the git directory that show an operation that the user has not finished.
_OPERATIONS = (
    ("MERGE_HEAD", "a merge", "merge --continue, or --abort"),
    ("rebase-merge", "a rebase", "rebase --continue, or --abort"),
    ("rebase-apply", "a rebase or git am", "rebase --continue, or --abort"),
    ("CHERRY_PICK_HEAD", "a cherry-pick", "cherry-pick --continue, or --abort"),
    ("REVERT_HEAD", "a revert", "revert --continue, or --abort"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """An entry of a tree or of the index at one path: the mode as git writes it and the object's id."""

    mode: str = "100644"
    blob: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit of a log: its id, its parents' ids and its whole message."""

    id: str
    parents: tuple[str, ...]
    message: str


# --- the repository ----------------------------------------------------------------------------


def open_repository(path: Path) -> Repo:
    """The repository whose working tree `path` lies in; variables such as GIT_DIR, which hooks set, are ignored.

    Raises RatchetError `not-a-repository`, `bare-repository` or `unsafe-repository`.
    """
    folder = path if path.is_dir() else path.parent
    try:
        repository = Repo(folder.resolve(), search_parent_directories=True, expand_vars=False)
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise RatchetError(
            "not-a-repository",
            f"expected a folder in a git repository, got {path}: the ledger lives in git. "
            "Run `git init` and make a first commit, or name another folder with -C",
        ) from error
    if repository.working_tree_dir is None:
        raise RatchetError(
            "bare-repository",
            f"{repository.git_dir} is bare: it has no files to experiment on. Use a clone or a worktree",
        )
    if folder.resolve().is_relative_to(git_directory(repository)):
        # A commit may contain the files of a git directory, whose configuration may name programs that git runs.
        raise RatchetError(
            "bare-repository",
            f"{repository.git_dir} is laid out as a git directory, so it is not a working tree. Name another folder "
            "with -C: if this folder came with a clone, its configuration could run any program",
        )
    top = str(repository.working_tree_dir)
    overrides = environment_here(str(repository.git_dir), _common_directory(str(repository.git_dir)), top)
    repository.git.update_environment(**overrides)
    # So far only files were read. This first git command checks the owner of the repository.
    run(repository, "rev-parse", "--git-dir")
    return repository


def find_repository(path: Path) -> Repo | None:
    """The repository that `path` lies in, None if it lies in no usable one."""
    try:
        return open_repository(path)
    except RatchetError:
        return None


def root(repository: Repo) -> Path:
    """The top folder of the working tree."""
    return Path(str(repository.working_tree_dir)).resolve()


def shell_command(repository: Repo) -> str:
    """The words `git -C ROOT`, with which a command in a message works in any folder; ROOT is quoted for a shell."""
    return f"git -C {shlex.quote(str(root(repository)))}"


def git_directory(repository: Repo) -> Path:
    """The git directory of this working tree; a linked worktree has its own."""
    return Path(str(repository.git_dir)).resolve()


def common_directory(repository: Repo) -> Path:
    """The git directory that all worktrees of the repository share: objects, branches, refs/ratchet."""
    return Path(_common_directory(str(repository.git_dir))).resolve()


def relative_path(repository: Repo, path: Path) -> str:
    """`path` as git names it: from the top, with slashes. Raises RatchetError `outside` if it lies elsewhere."""
    try:
        return path.resolve().relative_to(root(repository)).as_posix()
    except ValueError as error:
        raise RatchetError("outside", f"{path} does not lie in the repository {root(repository)}") from error


def is_set(repository: Repo, name: str, default: bool) -> bool:
    """The value of a boolean setting, such as `commit.gpgsign`, or `default` if it is not set."""
    status, output, complaint = attempted(repository, "config", "--type=bool", "--get", name)
    if status == 1:
        return default
    if status != 0:
        raise refusal(("config", name), status, complaint)
    return output.strip() == b"true"


def operation_in_progress(repository: Repo) -> tuple[str, str] | None:
    """The user's unfinished operation (`a merge`) and the git commands that end it, or None."""
    for name, words, remedy in _OPERATIONS:
        if (git_directory(repository) / name).exists():
            return words, remedy
    return None


def require_committable(repository: Repo, *, may_be_empty: bool = False) -> None:
    """Raises RatchetError if an accept could not be committed, before anybody waits for a verdict.

    Kinds: `no-commit` (unless it `may_be_empty`), `detached-head`, `in-progress`, `identity`, `read-only`.
    """
    if not may_be_empty:
        head_commit(repository)
    branch(repository)
    unfinished = operation_in_progress(repository)
    if unfinished:
        raise RatchetError(
            "in-progress",
            f"{unfinished[0]} is not finished here; finish or end it first: "
            f"{shell_command(repository)} {unfinished[1]}",
        )
    for variable in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
        status, _, complaint = attempted(repository, "var", variable)
        if status != 0:
            raise RatchetError(
                "identity",
                "git does not know who you are, and attempts are commits. Tell it once:\n"
                '  git config --global user.name "Your Name"\n  git config --global user.email you@example.org\n'
                f"git says: {complaint.splitlines()[-1] if complaint else 'nothing'}",
            )
    for folder in (common_directory(repository) / "objects", git_directory(repository), root(repository)):
        if not os.access(folder, os.W_OK):
            raise RatchetError(
                "read-only",
                f"{folder} cannot be written, and attempts are commits; make it writable for you, or clone the "
                "repository",
            )


# --- commits and refs --------------------------------------------------------------------------


def head_commit(repository: Repo) -> str:
    """The commit at HEAD. Raises RatchetError `no-commit` in a repository without one."""
    commit = commit_of(repository, "HEAD")
    if commit is None:
        raise RatchetError(
            "no-commit",
            "expected a commit to judge against, got an empty repository: git add your files and commit them",
        )
    return commit


def branch(repository: Repo) -> str:
    """The ref that HEAD names, such as `refs/heads/main`. Raises RatchetError `detached-head`."""
    name = branch_or_none(repository)
    if name is None:
        raise RatchetError(
            "detached-head",
            "expected HEAD on a branch, got a detached HEAD: an accept would have no branch to go to. Run "
            f"{shell_command(repository)} switch BRANCH, or switch -c NEW",
        )
    return name


def branch_or_none(repository: Repo) -> str | None:
    """The ref that HEAD names, or None if it is detached."""
    status, output, _ = attempted(repository, "symbolic-ref", "--quiet", "HEAD")
    return output.decode("utf-8", "surrogateescape").strip() if status == 0 else None


def commit_of(repository: Repo, name: str) -> str | None:
    """The commit that a ref or another name stands for, or None."""
    status, output, _ = attempted(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return output.decode().strip() if status == 0 else None


def is_ancestor(repository: Repo, old: str, new: str) -> bool:
    """True if `old` is in the history of `new`; False also if either commit is missing."""
    return attempted(repository, "merge-base", "--is-ancestor", old, new)[0] == 0


def merge_bases(repository: Repo, commit: str, other: str) -> tuple[str, ...]:
    """The newest common ancestors: several after criss-cross merges, () if none is here."""
    status, output, _ = attempted(repository, "merge-base", "--all", commit, other)
    return tuple(output.decode().split()) if status == 0 else ()


def log(
    repository: Repo,
    tips: Sequence[str],
    *,
    hidden: Sequence[str] = (),
    limit: int | None = None,
    first_parent: bool = False,
    containing: str = "",
    path: str = "",
) -> tuple[Commit, ...]:
    """The commits reachable from `tips` and not from `hidden`, newest first, in one process.

    `tips` may hold `--branches`. `containing` keeps only commits whose message has that text, `path` only commits that
    changed that path.
    """
    options = ["--topo-order", "--format=%H %P%n%B"]
    options += [f"--max-count={limit}"] if limit is not None else []
    options += ["--first-parent"] if first_parent else []
    options += ["--fixed-strings", f"--grep={containing}"] if containing else []
    hiding = ["--not", *hidden] if hidden else []
    output = run(repository, "log", "-z", *options, *tips, *hiding, "--", *([path] if path else []))
    commits = []
    for record in output.decode("utf-8", "replace").split("\0"):
        if record:
            ids, _, message = record.partition("\n")
            commit_id, *parents = ids.split()
            commits.append(Commit(id=commit_id, parents=tuple(parents), message=message))
    return tuple(commits)


# --- trees and blobs ---------------------------------------------------------------------------


def entries(repository: Repo, commit: str, folder: str) -> dict[str, TreeEntry]:
    """Files directly in `folder` of a commit, by name; empty if there is no such folder."""
    where = f"{folder}/" if folder else ""
    return {
        path.removeprefix(where): TreeEntry(mode=mode, blob=blob)
        for mode, kind, blob, path in _tree_lines(repository, commit, where)
        if kind == "blob"
    }


def entry_at(repository: Repo, commit: str, path: str) -> TreeEntry | None:
    """The entry of one file in a commit, or None if the commit has no such file."""
    lines = _tree_lines(repository, commit, path)
    return next(
        (TreeEntry(mode=mode, blob=blob) for mode, kind, blob, at in lines if (at, kind) == (path, "blob")), None
    )


def kind_at(repository: Repo, commit: str, path: str) -> str | None:
    """The kind of entry at `path` in a commit: "blob", "link", "tree" or "commit" (a submodule), or None."""
    lines = _tree_lines(repository, commit, path)
    return next(("link" if mode == LINK else kind for mode, kind, _, at in lines if at == path), None)


def file_at(repository: Repo, commit: str, path: str) -> bytes | None:
    """The bytes of one file in a commit, as git stores them, or None if the commit has no such file."""
    return read_blobs(repository, (f"{commit}:{path}",))[0]


def read_blobs(repository: Repo, names: Sequence[str]) -> tuple[bytes | None, ...]:
    """The blobs called `names` (ids, or `COMMIT:PATH`), None where there is no such blob, in one process."""
    output = _objects(repository, "--batch=%(objecttype) %(objectsize)", names)
    blobs: list[bytes | None] = []
    position = 0
    for _ in names:
        end = output.index(b"\n", position)
        words = output[position:end].split(b" ")
        position = end + 1
        # The answer for an unknown name is `NAME missing`; a name may itself have spaces.
        if words[-1] in (b"missing", b"ambiguous"):
            blobs.append(None)
            continue
        size = int(words[1])
        blobs.append(output[position : position + size] if words[0] == b"blob" else None)
        position += size + 1
    return tuple(blobs)


def readable_blobs(repository: Repo, names: Sequence[str]) -> tuple[bytes | None, ...]:
    """The blobs called `names`, with None in place of each that is missing or damaged; git stops at a damaged one."""
    try:
        return read_blobs(repository, names)
    except (RatchetError, ValueError):
        half = len(names) // 2
        if not half:
            return (None,) * len(names)
        return (*readable_blobs(repository, names[:half]), *readable_blobs(repository, names[half:]))


def blob_ids(repository: Repo, names: Sequence[str]) -> tuple[str | None, ...]:
    """The ids of the blobs called `names` (`COMMIT:PATH`), None where there is no such blob, in one process."""
    output = _objects(repository, "--batch-check=%(objecttype) %(objectname)", names)
    lines = [line.split(" ") for line in output.decode("utf-8", "surrogateescape").splitlines()]
    return tuple(words[1] if words[0] == "blob" and len(words) == 2 else None for words in lines)


def in_working_tree_form(repository: Repo, blob: str, path: str) -> bytes:
    """A blob as a checkout would write it to `path`: line endings and smudge filters applied."""
    return run(repository, "cat-file", "--filters", f"--path={path}", blob)


def differing_paths(repository: Repo, old: str, new: str, paths: Iterable[str]) -> tuple[str, ...]:
    """The files under `paths` that differ between the two commits."""
    output = run(repository, "diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new, "--", *paths)
    return names_in(output)


def tracked_paths(repository: Repo, folders: Sequence[str]) -> tuple[str, ...]:
    """The sorted paths, from the top, of the files that git tracks in these folders; without folders, of all files."""
    return names_in(run(repository, "ls-files", "-z", "--full-name", "--", *folders))


def last_commit_of(repository: Repo, path: str, text: str = "") -> str | None:
    """The newest commit in HEAD's history that added or changed the file at `path`, or None; removals do not count.

    With `text`, the newest commit that changed the number of times that the file contains `text`.
    """
    search = [f"-S{text}"] if text else []
    output = run(repository, "log", "-1", "--format=%H", "--diff-filter=AMT", *search, "HEAD", "--", path)
    return output.decode().strip() or None


def paths_changed_in(repository: Repo, commit: str, folder: str) -> tuple[str, ...]:
    """The files below `folder` in which a commit differs from its first parent."""
    options = ("-r", "-z", "--root", "--name-only", "--no-renames", "--no-commit-id", "-m", "--first-parent")
    return names_in(run(repository, "diff-tree", *options, commit, "--", folder))


def is_shallow(repository: Repo) -> bool:
    """True if the history is cut off before its beginning."""
    return run(repository, "rev-parse", "--is-shallow-repository").strip() == b"true"


def attribute(repository: Repo, path: str, name: str) -> str:
    """The value of an attribute of a path in the working tree, such as `union` of `merge`, or `unspecified`."""
    output = run(repository, "check-attr", "-z", name, "--", path)
    return output.decode("utf-8", "surrogateescape").split("\0")[2]


def are_ignored(repository: Repo, paths: Iterable[str]) -> bool:
    """True if .gitignore files of the repository name all of these paths; the user's own excludes do not count.

    A path of a folder that need not exist ends with a slash.
    """
    # The command refuses literal pathspecs, so `./` is what keeps a colon from being magic.
    names = [f"./{path}" for path in paths]
    arguments = ("--no-literal-pathspecs", "check-ignore", "-z", "--verbose", "--stdin")
    stdin = "".join(f"{name}\0" for name in names).encode("utf-8", "surrogateescape")
    status, output, complaint = attempted(repository, *arguments, stdin=stdin, settings=("core.excludesFile=",))
    if status not in (0, 1):
        raise refusal(arguments, status, complaint)
    # For each path that a pattern matches: the file of the pattern, its line, the pattern, and the path.
    fields = output.decode("utf-8", "surrogateescape").split("\0")
    matches = zip(fields[0::4], fields[2::4], strict=False)
    ignoring = [rule for file, rule in matches if file.endswith(".gitignore") and not rule.startswith("!")]
    return len(ignoring) == len(names)


def hash_of(repository: Repo, data: bytes, path: str) -> str:
    """The blob id that `data` would get at `path`, clean filters applied; writes nothing."""
    return run(repository, "hash-object", "--stdin", f"--path={path}", stdin=data).decode().strip()


def _common_directory(git_directory: str) -> str:
    try:
        pointer = (Path(git_directory) / "commondir").read_text(encoding="utf-8", errors="surrogateescape").strip()
    except FileNotFoundError:
        return git_directory
    return os.path.normpath(os.path.join(git_directory, pointer))


def _tree_lines(repository: Repo, commit: str, where: str) -> Iterable[tuple[str, str, str, str]]:
    """Mode, kind, id and path of each entry of a commit's tree at `where`; "" is the top."""
    for record in names_in(run(repository, "ls-tree", "-z", "--full-tree", commit, *([where] if where else []))):
        facts, _, path = record.partition("\t")
        mode, kind, blob = facts.split(" ")
        yield mode, kind, blob, path


def _objects(repository: Repo, form: str, names: Sequence[str]) -> bytes:
    """The answers of `git cat-file` about the objects called `names`; empty without names."""
    for name in names:
        if "\n" in name:
            raise RatchetError("git", f"a path with a line break cannot be looked up: {name!r}; rename it")
    asked = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
    return run(repository, "cat-file", form, stdin=asked) if names else b""
