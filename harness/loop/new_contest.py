"""A new contest in a repository: scaffolded and committed."""

import ast
import shlex
import shutil
from contextlib import ExitStack
from pathlib import Path

from git import Repo

from harness import contest as contests
from harness.candidate import constants
from harness.contest import Contest
from harness.errors import RatchetError
from harness.judge.evaluate.request import Progress
from harness.ledger import git
from harness.ledger.git import write
from harness.loop import find_function, scaffold, trace_text, wrap_function
from harness.records import KERNEL, Statement


def new(
    directory: Path,
    like: str,
    settings: tuple[tuple[str, str], ...],
    progress: Progress,
    *,
    around: str | None = None,
    base: Path | None = None,
) -> tuple[str, ...]:
    """Makes a contest in `directory` like the template called `like`, commits exactly its files, and returns messages.

    `around` names a function for a thin kernel.py to call: `package.module:function` of an installed package, or
    `file.py:function` with a path relative to `base`; the file is copied into the folder of kernel.py. Makes a git
    repository of `directory` if it lies in none. If anything is raised, nothing is written. Raises RatchetError

    - as `find_function.target`, `scaffold.scaffold` and `wrap_function.wrap` do, and if a commit cannot be made;
    - `formula-from` if `around` is combined with the template `formula`, which states no operation;
    - `bad-prepare` if the constants do not make a problem;
    - `weak-contest` if the problem cannot tell a right kernel from a wrong kernel;
    - `does-not-trace` if the template's kernel.py does not trace with these constants, or if no way of
      calling the function traces.
    """
    if around and like == scaffold.FORMULA:
        raise RatchetError(
            "formula-from",
            f"expected --like to name the operation of {around}, got `{like}`, whose prepare.py you have yet to write; "
            "make the contest without --from, state the arrays and the formula in its prepare.py, and call the "
            "function in its kernel.py (docs/OPERATORS.md, `A problem of your own`)",
        )
    # Looked up first, because the function's package may not be installed.
    target = find_function.target(around, base or Path()) if around else None
    _require_own_folder(directory)
    with ExitStack() as undo:
        for folder in reversed([folder for folder in (directory, *directory.parents) if not folder.exists()]):
            folder.mkdir()
            undo.callback(folder.rmdir)
        repository, is_new = _repository(directory, undo)
        git.require_committable(repository, may_be_empty=True)
        ignores = not git.are_ignored(repository, _ignored_folders(repository, directory))
        written = scaffold.scaffold(directory, like, settings, own_kernel=target is None, ignores=ignores)
        for path in written:
            undo.callback(path.unlink, missing_ok=True)
        contest = contests.load(directory)
        contest.require_conforming()
        if target is not None:
            wrapped = wrap_function.wrap(contest, target, settings, progress)
            words, first = wrapped.words, wrapped.first
            for name, data in wrapped.candidate.files.items():
                path = directory / name
                if path not in written:
                    written = (*written, path)
                    undo.callback(path.unlink, missing_ok=True)
                path.write_bytes(data)
        else:
            words, first = (), ""
            if settings:
                _require_traceable(contest, like, progress)
        commit = _commit(repository, written, f"Add the contest {directory.name}, like {like}")
        undo.pop_all()
    shown = directory if not directory.is_absolute() else directory.resolve()
    return (
        *((f"made a git repository in {shown}",) if is_new else ()),
        f"made {', '.join(path.name for path in written)} in {shown} and committed them ({commit[:10]})",
        _signature(contest.problem.statement(), contest.kernel_path.read_bytes()),
        *words,
        *_next_steps(shlex.quote(str(shown)), first, is_template=like == scaffold.FORMULA),
    )


def _next_steps(folder: str, first: str, *, is_template: bool) -> tuple[str, ...]:
    """The commands up to the first attempt, which refuses a prepare.py that is not committed."""
    baseline = f'./ratchet.sh -C {folder} "experiment: baseline"'
    commit = f"git -C {folder} add . && git -C {folder} commit -m 'State the problem'"
    if is_template:
        return (
            "next: put your operation into prepare.py and its kernel into kernel.py (docs/OPERATORS.md, `A problem of "
            f"your own`), until this passes: ./ratchet.sh -C {folder} judge",
            f"then commit both, because an attempt needs a committed prepare.py: {commit}",
            f"then: {baseline}",
        )
    return (f"next: {first}{baseline}", f"after a change of prepare.py, commit it before the next attempt: {commit}")


def _require_own_folder(directory: Path) -> None:
    """Raises RatchetError `exists` if the folder has entries that are not hidden, unless it is a repository's top."""
    if not directory.is_dir() or (directory / ".git").exists():
        return
    other = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
    if other:
        raise RatchetError(
            "exists",
            f"expected a new folder, or an empty one, got {directory}, which holds {other[0]}"
            f"{f' and {len(other) - 1} more' if other[1:] else ''}; nothing was written. If `new` was "
            "stopped before it committed, remove the folder. To judge a kernel in a file, name a new folder and the "
            "file: ./ratchet.sh new FOLDER --like OPERATION --from FILE.py:FUNCTION",
        )


def _require_traceable(contest: Contest, like: str, progress: Progress) -> None:
    """Raises RatchetError `does-not-trace` if the template's kernel.py does not trace with the changed constants."""
    candidate = contest.candidate()
    failure = trace_text.trace_failure(contest, candidate, progress)
    if failure is None:
        return
    sizes = [name for name, value in constants(candidate.text) if value.isdigit()]
    ways = ["choose constants of the problem that the kernel accepts"]
    if sizes:
        ways.append(f"set the kernel's own constants too ({', '.join(f'--set {name}=...' for name in sizes[:3])})")
    if others := scaffold.siblings(like):
        ways.append(f"start from another template of the operation (--like {', '.join(others)})")
    raise RatchetError(
        "does-not-trace",
        f"the kernel.py of {like} does not trace with these constants: {failure.message}; nothing was written. Do one "
        f"of these: {'; '.join(ways)}",
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


def _ignored_folders(repository: Repo, directory: Path) -> tuple[str, ...]:
    """The folders in `directory` that git has to ignore, as paths in the repository with a slash at their end."""
    names = scaffold.IGNORED.decode().split()
    return tuple(f"{git.relative_path(repository, directory / name)}/" for name in names)


def _signature(statement: Statement, kernel: bytes) -> str:
    """A sentence on the function in `kernel`; for a suite, a line for each function with each set of arrays."""
    if statement.members is None:
        flops = f"{statement.work.flops:,}"
        return f"{_call(statement, KERNEL, kernel)}; compute_flops(), if there is one, must return {flops}"
    names_by_call: dict[str, list[str]] = {}
    for member in statement.members:
        names_by_call.setdefault(_call(member.statement, member.function, kernel), []).append(member.name)
    return "\n".join(f"{call} at {', '.join(names)}" for call, names in names_by_call.items())


def _call(statement: Statement, function: str, kernel: bytes) -> str:
    """The call with the arrays in the kernel's order; in the problem's order if the names differ."""
    arrays = {array.name: f"{array.name} {list(array.shape)} {array.dtype}" for array in statement.inputs}
    outputs = ", ".join(f"{array.name} {list(array.shape)} {array.dtype}" for array in statement.results)
    names = list(arrays)
    for node in ast.parse(kernel).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            names = arguments if sorted(arguments) == sorted(names) else names
    return f"{function}({', '.join(arrays[name] for name in names)}) -> {outputs}"


def _commit(repository: Repo, paths: tuple[Path, ...], message: str) -> str:
    """One commit on the branch that adds exactly these files; other staged entries stay as they are."""
    head = git.commit_of(repository, "HEAD")
    names = {git.relative_path(repository, path): path for path in paths}
    changes = {
        name: git.TreeEntry(blob=write.write_blob(repository, path.read_bytes(), name)) for name, path in names.items()
    }
    private_index = git.git_directory(repository) / "ratchet" / "new.index"
    tree = write.write_tree(repository, head, changes, private_index)
    commit = write.write_commit(repository, tree, (head,) if head else (), f"{message}\n")
    write.move_ref(repository, git.branch(repository), commit, head, "ratchet: new contest")
    write.set_index_entries(repository, changes)
    return commit
