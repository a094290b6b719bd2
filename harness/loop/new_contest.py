"""A new contest in a repository: scaffolded and committed."""

import shlex
import shutil
from contextlib import ExitStack
from pathlib import Path

from git import Repo

from harness import contest as contests
from harness.errors import RatchetError
from harness.ledger import git
from harness.ledger.git import write
from harness.loop import scaffold
from harness.records import Statement


def new(directory: Path, like: str, settings: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Makes a contest in `directory` like the template called `like` and commits exactly its files.

    Where `directory` lies in no git repository it becomes one. Raises RatchetError as `scaffold.scaffold` does,
    `bad-prepare` where the constants make no problem, and where a commit could not be made; nothing is
    written then.
    """
    with ExitStack() as undo:
        for folder in reversed([folder for folder in (directory, *directory.parents) if not folder.exists()]):
            folder.mkdir()
            undo.callback(folder.rmdir)
        repository, is_new = _repository(directory, undo)
        git.require_committable(repository, may_be_empty=True)
        written = scaffold.scaffold(directory, like, settings)
        for path in written:
            undo.callback(path.unlink, missing_ok=True)
        statement = contests.load(directory).problem.statement()
        commit = _commit(repository, written, f"Add the contest {directory.name}, like {like}")
        undo.pop_all()
    shown = directory if not directory.is_absolute() else directory.resolve()
    return (
        *((f"made a git repository in {shown}",) if is_new else ()),
        f"made {', '.join(path.name for path in written)} in {shown} and committed them ({commit[:10]})",
        _signature(statement),
        f'next: ./ratchet.sh -C {shlex.quote(str(shown))} "experiment: baseline"',
    )


def _repository(directory: Path, undo: ExitStack) -> tuple[Repo, bool]:
    """The repository that `directory` lies in, or a new one there, which `undo` removes again."""
    try:
        return git.open_repository(directory), False
    except RatchetError as error:
        if error.kind != "not-a-repository":
            raise
    undo.callback(shutil.rmtree, directory / ".git")
    Repo.init(directory).close()
    return git.open_repository(directory), True


def _signature(statement: Statement) -> str:
    """What kernel.py has to define, in one sentence."""
    outputs = ", ".join(f"{array.name} {list(array.shape)} {array.dtype}" for array in statement.outputs)
    names = ", ".join(array.name for array in statement.inputs)
    return f"kernel_fn({names}) -> {outputs}; compute_flops() must return {statement.work.flops:,}"


def _commit(repository: Repo, paths: tuple[Path, ...], message: str) -> str:
    """One commit on the branch that adds exactly these files; other staged entries stay as they are."""
    head = git.commit_of(repository, "HEAD")
    names = {git.relative_path(repository, path): path for path in paths}
    changes = {
        name: git.Entry(mode="100644", blob=write.write_blob(repository, path.read_bytes(), name))
        for name, path in names.items()
    }
    private_index = git.git_directory(repository) / "ratchet" / "new.index"
    tree = write.write_tree(repository, head, changes, private_index)
    sign = git.is_set(repository, "commit.gpgsign", False)
    commit = write.write_commit(repository, tree, (head,) if head else (), f"{message}\n", sign=sign)
    write.move_ref(repository, git.branch(repository), commit, head, "ratchet: new contest")
    write.set_index_entries(repository, changes)
    return commit
