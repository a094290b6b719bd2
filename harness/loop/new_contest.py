"""A new contest in a repository: scaffolded and committed."""

import ast
import re
import shlex
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from git import Repo

from harness import contest as contests
from harness.candidate import Candidate, constants, names, rewrite
from harness.contest import Contest
from harness.errors import RatchetError
from harness.judge.evaluate.request import Progress
from harness.ledger import git
from harness.ledger.git import write
from harness.loop import existing, find_function, scaffold, trace_text
from harness.records import KERNEL, Failure, Statement, SuiteMember
from harness.records.report_words import simulated
from harness.units import seconds

# A package that lacks more than this cannot be used.
_MOST_LACKING = 8
_BEHIND_CHIP = re.compile(rb"^CHIP = .*\n", re.M)
_STAND_IN = "packages that are not installed; stand-ins take their places while kernel.py is traced"


def new(
    directory: Path,
    like: str,
    settings: tuple[tuple[str, str], ...],
    progress: Progress,
    *,
    around: str | None = None,
    base: Path | None = None,
) -> tuple[str, ...]:
    """Makes a contest in `directory` like the template called `like` and commits exactly its files.

    `around` names a function for a thin kernel.py to call: one of an installed package (`package.module:function`), or
    one of a file (`file.py:function`, a path relative to `base`), which is copied beside kernel.py. Makes a git
    repository of `directory` if it lies in none. If anything is raised, nothing is written. Raises RatchetError

    - as `scaffold.scaffold` and `existing` do, and if a commit cannot be made;
    - `formula-from` if a function is to be called for the template of any operation, which states none of its own;
    - `bad-prepare` if the constants make no problem;
    - `weak-contest` if they make one that cannot tell right from wrong;
    - `does-not-trace` if the template's kernel.py does not trace with these constants, or no way of calling the
      function.
    """
    if around and like == scaffold.FORMULA:
        raise RatchetError(
            "formula-from",
            f"expected an operation for {around}, got the template whose prepare.py you have yet to write; make the "
            "contest without --from, state the arrays and the formula in its prepare.py, and call the function in its "
            "kernel.py (docs/OPERATORS.md, `A problem of your own`)",
        )
    # First of all, because it may not be installed.
    target = find_function.target(around, base or Path()) if around else None
    _require_own_folder(directory)
    with ExitStack() as undo:
        for folder in reversed([folder for folder in (directory, *directory.parents) if not folder.exists()]):
            folder.mkdir()
            undo.callback(folder.rmdir)
        repository, is_new = _repository(directory, undo)
        git.require_committable(repository, may_be_empty=True)
        written = scaffold.scaffold(directory, like, settings, own_kernel=target is None)
        for path in written:
            undo.callback(path.unlink, missing_ok=True)
        contest = contests.load(directory)
        contest.require_conforming()
        if target is not None:
            contest, lacking = _add_stand_ins(contest, target, settings, progress)
            candidate, words, is_right = _wrap_function(contest, target, settings, progress)
            words = (*words, *_copied(target), *lacking)
            for name, data in candidate.files.items():
                path = directory / name
                if path not in written:
                    written = (*written, path)
                    undo.callback(path.unlink, missing_ok=True)
                path.write_bytes(data)
        else:
            words, is_right = (), True
            if settings:
                _require_traceable(contest, like, progress)
        commit = _commit(repository, written, f"Add the contest {directory.name}, like {like}")
        undo.pop_all()
    first = "" if is_right else "mend the kernel, then "
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
    """Raises RatchetError `exists` for a folder with other files; the top of a repository may hold a contest."""
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
    ways = ["choose constants of the problem that it takes"]
    if sizes:
        ways.append(f"set its own too ({', '.join(f'--set {name}=...' for name in sizes[:3])})")
    if others := scaffold.siblings(like):
        ways.append(f"start from another template of the operation (--like {', '.join(others)})")
    raise RatchetError(
        "does-not-trace",
        f"the kernel.py of {like} does not trace with these constants: {failure.message}; nothing was written. One of: "
        f"{'; '.join(ways)}",
    )


def _add_stand_ins(
    contest: Contest, target: find_function.ExistingFunction, settings: tuple[tuple[str, str], ...], progress: Progress
) -> tuple[Contest, tuple[str, ...]]:
    """The contest with STUBS for packages that `target` imports and that are not installed; sentences on them."""
    problem = names(contest.directory.joinpath("prepare.py").read_bytes())
    first = next(existing.variants(target, _for_one_function(contest), settings))
    candidate = _set(first.candidate, settings, problem)
    lacking: list[str] = []
    while len(lacking) < _MOST_LACKING:
        failure = trace_text.trace_failure(contest, candidate, progress)
        package = existing.missing_package(failure) if failure is not None else ""
        if not package or package in (*contest.stubs, target.module.partition(".")[0]):
            break
        lacking.append(package)
        contest = _with_stub(contest, package)
    return contest, tuple(
        f"{package} is not installed, and {target.module} imports it: STUBS of prepare.py lets a stand-in take its "
        f"place. Where the kernel needs it, remove it there and install it ({find_function.install(package)})"
        for package in lacking
    )


def _with_stub(contest: Contest, package: str) -> Contest:
    path = contest.directory / "prepare.py"
    text = path.read_bytes()
    if contests.STUBS in names(text):
        text = rewrite(text, contests.STUBS, repr((*contest.stubs, package)), path.name)
    else:
        text = _BEHIND_CHIP.sub(rf'\g<0>{contests.STUBS} = ("{package}",)  # {_STAND_IN}\n'.encode(), text, count=1)
    path.write_bytes(text)
    return contests.load(contest.directory)


def _wrap_function(
    contest: Contest, target: find_function.ExistingFunction, settings: tuple[tuple[str, str], ...], progress: Progress
) -> tuple[Candidate, tuple[str, ...], bool]:
    """The first kernel.py around `target` that passes at small shapes, else the first that traces.

    With sentences on it, and whether it passes.
    """
    problem = names(contest.directory.joinpath("prepare.py").read_bytes())
    statement = _for_one_function(contest)
    refused: list[Failure] = []
    traced: list[tuple[existing.Variant, Failure]] = []
    for variant in existing.variants(target, statement, settings):
        candidate = _set(variant.candidate, settings, problem)
        failure = trace_text.trace_failure(contest, candidate, progress)
        if failure is not None:
            refused.append(failure)
            continue
        evidence = trace_text.evidence(contest, candidate, progress)
        if evidence.failure is None:
            time = evidence.latency.seconds if evidence.latency else None
            took = f"{seconds(time)} [{simulated(contest.chip.name)}]" if time is not None else "an unknown time"
            sentence = f"kernel.py calls {target.name} {variant.words}: right at small shapes, {took}"
            return candidate, (sentence, *_departures(variant)), True
        traced.append((replace(variant, candidate=candidate), evidence.failure))
    if not traced:
        first = refused[0]
        raise RatchetError(
            "does-not-trace",
            f"{target.name} does not take the problem's arrays: {first.message}{_on_stand_ins(contest)}"
            f"{existing.other_jax_pinned(target)}; nothing was "
            "written. Make a contest without --from, and call it in kernel.py as it wants to be called",
        )
    variant, failure = traced[0]
    sentence = f"kernel.py calls {target.function} {variant.words}, which fails: {failure.kind}: {failure.message}"
    sentence += existing.other_jax_pinned(target)
    return variant.candidate, (sentence, *_departures(variant)), False


def _on_stand_ins(contest: Contest) -> str:
    if not contest.stubs:
        return ""
    return f"; {' and '.join(contest.stubs)}, not installed, had stand-ins: install them if the kernel needs them"


def _departures(variant: existing.Variant) -> tuple[str, ...]:
    return (f"not at the function's defaults: {', '.join(variant.departures)}",) if variant.departures else ()


def _copied(target: find_function.ExistingFunction) -> tuple[str, ...]:
    """A sentence on the files that now lie beside kernel.py, if there are any."""
    if not target.helpers:
        return ()
    return (f"copied {', '.join(sorted(target.helpers))} beside kernel.py, which imports it: change the kernel there",)


def _for_one_function(contest: Contest) -> Statement:
    """The problem of the function, of a suite its first member. Raises RatchetError `is-suite`."""
    statement = contest.problem.statement()
    if statement.members is None:
        return statement
    functions = [member.function for member in statement.members if member.function != KERNEL]
    if functions:
        raise RatchetError(
            "is-suite", f"--from wraps one function for all members, but this suite also needs {', '.join(functions)}"
        )
    return statement.members[0].statement


def _set(candidate: Candidate, settings: tuple[tuple[str, str], ...], problem: frozenset[str]) -> Candidate:
    """`candidate` with its own constants set; raises for a constant that neither it nor the problem has."""
    files = candidate.files
    for name, value in settings:
        homes = [file for file, data in files.items() if name in names(data)]
        # A helper's constant of the same name as one of the problem's may mean something else.
        home = KERNEL if KERNEL in homes or name in problem or not homes else homes[0]
        if home in homes or name not in problem:
            files[home] = rewrite(files[home], name, value, home)
    return Candidate.of_files(files)


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


def _signature(statement: Statement, kernel: bytes) -> str:
    """A sentence on the function in `kernel`; for a suite, one for each of its functions."""
    if statement.members is None:
        flops = f"{statement.work.flops:,}"
        return f"{_call(statement, KERNEL, kernel)}; compute_flops(), if there is one, must return {flops}"
    called: dict[str, list[SuiteMember]] = {}
    for member in statement.members:
        called.setdefault(member.function, []).append(member)
    return "\n".join(
        f"{_call(members[0].statement, function, kernel)} at {', '.join(member.name for member in members)}"
        for function, members in called.items()
    )


def _call(statement: Statement, function: str, kernel: bytes) -> str:
    """The call with its arguments in the kernel's order; in the problem's order if the names differ."""
    outputs = ", ".join(f"{array.name} {list(array.shape)} {array.dtype}" for array in statement.results)
    names = [array.name for array in statement.inputs]
    for node in ast.parse(kernel).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            names = arguments if sorted(arguments) == sorted(names) else names
    return f"{function}({', '.join(names)}) -> {outputs}"


def _commit(repository: Repo, paths: tuple[Path, ...], message: str) -> str:
    """One commit on the branch that adds exactly these files; other staged entries stay as they are."""
    head = git.commit_of(repository, "HEAD")
    names = {git.relative_path(repository, path): path for path in paths}
    changes = {
        name: git.TreeEntry(mode="100644", blob=write.write_blob(repository, path.read_bytes(), name))
        for name, path in names.items()
    }
    private_index = git.git_directory(repository) / "ratchet" / "new.index"
    tree = write.write_tree(repository, head, changes, private_index)
    sign = git.is_set(repository, "commit.gpgsign", False)
    commit = write.write_commit(repository, tree, (head,) if head else (), f"{message}\n", sign=sign)
    write.move_ref(repository, git.branch(repository), commit, head, "ratchet: new contest")
    write.set_index_entries(repository, changes)
    return commit
