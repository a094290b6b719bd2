"""A new contest in a repository: scaffolded and committed."""

import shlex
from pathlib import Path

from git import Repo

from harness import contest as contests
from harness.ledger import git
from harness.ledger.git import write
from harness.loop import scaffold
from harness.records import Statement


def new(directory: Path, like: str, settings: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Makes a contest in `directory` like the template called `like` and commits exactly its files.

    Raises RatchetError as `scaffold.scaffold` does, and where a commit could not be made; nothing is written then.
    """
    existing = next(folder for folder in (directory, *directory.resolve().parents) if folder.is_dir())
    repository = git.open_repository(existing)
    git.require_committable(repository)
    written = scaffold.scaffold(directory, like, settings)
    try:
        commit = _commit(repository, written, f"Add the contest {directory.name}, like {like}")
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    shown = directory if not directory.is_absolute() else directory.resolve()
    return (
        f"made {', '.join(path.name for path in written)} in {shown} and committed them ({commit[:10]})",
        _signature(contests.load(directory).problem.statement()),
        f'next: ./ratchet.sh -C {shlex.quote(str(shown))} "experiment: baseline"',
    )


def _signature(statement: Statement) -> str:
    """What kernel.py has to define, in one sentence."""
    outputs = ", ".join(f"{array.name} {list(array.shape)} {array.dtype}" for array in statement.outputs)
    names = ", ".join(array.name for array in statement.inputs)
    return f"kernel_fn({names}) -> {outputs}; compute_flops() must return {statement.work.flops:,}"


def _commit(repository: Repo, paths: tuple[Path, ...], message: str) -> str:
    """One commit on the branch that adds exactly these files; other staged entries stay as they are."""
    head = git.head_commit(repository)
    names = {git.relative_path(repository, path): path for path in paths}
    changes = {
        name: git.Entry(mode="100644", blob=write.write_blob(repository, path.read_bytes(), name))
        for name, path in names.items()
    }
    private_index = git.git_directory(repository) / "ratchet" / "new.index"
    tree = write.write_tree(repository, head, changes, private_index)
    sign = git.is_set(repository, "commit.gpgsign", False)
    commit = write.write_commit(repository, tree, (head,), f"{message}\n", sign=sign)
    write.move_ref(repository, git.branch(repository), commit, head, "ratchet: new contest")
    write.set_index_entries(repository, changes)
    return commit
