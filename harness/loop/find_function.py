"""A function of an installed package or of a file, with the neighbouring files that this file imports.

Packages and files are read, never imported: only the sandbox runs them.
"""

import ast
import difflib
import importlib.metadata
import importlib.util
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from pathlib import Path

from harness.candidate import KERNEL, Candidate
from harness.errors import RatchetError
from harness.sandbox.editable import editable_roots

# An imported name is followed through at most this many modules.
_MOST_IMPORTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingFunction:
    """A function of an installed package or of a file; `path` is its file, `node` is None if it is not a plain `def`.

    `home` is the name of the module at `path`. It may differ from `module`, which may only import the function. For a
    file, `helpers` has the bytes of this file and of the neighbouring files that it imports, by their new names in the
    contest; for a package, `helpers` is empty.
    """

    module: str
    function: str
    path: Path
    node: ast.FunctionDef | None
    home: str
    helpers: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the function: `package.module:function`, or `file.py:function`."""
        return f"{self.module}{'.py' if self.helpers else ''}:{self.function}"

    @property
    def importable(self) -> str:
        """The module to import the function from: `home` for a file, because only code in its folder can import it."""
        return self.home if self.helpers else self.module


def target(text: str, folder: Path = Path()) -> ExistingFunction:
    """The function `package.module:function`, or `file.py:function` with a path relative to `folder`.

    Raises RatchetError `unknown-function`, `not-installed`, `not-copied`, `syntax-error` or `reserved-line`.
    """
    module, _, function = text.rpartition(":") if ":" in text else (text, "", "")
    if module.endswith(".py"):
        return _in_file(folder / module, function)
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise RatchetError(
            "unknown-function",
            f"expected --from package.module:function or --from file.py:function, got {text!r}; for instance "
            "--from jax.experimental.pallas.ops.tpu.flash_attention:flash_attention",
        )
    try:
        return _find(module, function, _MOST_IMPORTS, module)
    except RatchetError as error:
        inside = folder.joinpath(*module.split("."))
        if error.kind != "not-installed" or not (inside.with_suffix(".py").is_file() or inside.is_dir()):
            raise
    raise RatchetError(
        "unknown-function",
        f"expected --from package.module:function, got {text!r}, which is not an installed package but a path here; "
        f"write --from {'/'.join(module.split('.'))}{'/FILE' if inside.is_dir() else ''}.py:{function}",
    )


def install(package: str) -> str:
    """The command that installs the package imported as `package`, whose distribution may have another name."""
    command = f"{shlex.quote(sys.executable)} -m pip install {package.replace('_', '-')}"
    return f"{command}, or the distribution's name if it differs from the package's"


def versions(package: str) -> tuple[str, ...]:
    """The installed distributions that provide the package `package`, as `marin-levanter 1.2`."""
    names = sorted(set(importlib.metadata.packages_distributions().get(package, ())))
    return tuple(f"{name} {importlib.metadata.version(name)}" for name in names)


def packages(function: ExistingFunction) -> frozenset[str]:
    """The packages that the function needs: its own, and those that its files import and use."""
    used: set[str] = set()
    for tree in map(ast.parse, function.helpers.values()):
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for node in ast.walk(tree):
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                if (alias.asname or alias.name.partition(".")[0]) in names:
                    module = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
                    used.add(module.partition(".")[0])
    return frozenset((*used, function.module.partition(".")[0]))


def definition(function: ExistingFunction, name: str) -> tuple[str, ast.stmt | None]:
    """The module that defines `name` of the function's file, and the class, function or assignment itself.

    "" and None if `name` is neither defined in the file nor imported from a helper or from an installed package.
    """
    home, path = function.home, function.path
    text = path.read_bytes()
    for _ in range(_MOST_IMPORTS):
        tree = ast.parse(text)
        for node in tree.body:
            is_assigned = isinstance(node, ast.Assign) and name in {ast.unparse(at) for at in node.targets}
            if is_assigned or (isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name):
                return home, node
        imports = [
            (node, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if (alias.asname or alias.name) == name
        ]
        if not imports:
            break
        node, name = imports[0]
        home = _imported_from(node, home, path)
        if f"{home}.py" in function.helpers:
            text = function.helpers[f"{home}.py"]
            continue
        try:
            path = _source(home)
        except RatchetError:
            break
        text = path.read_bytes()
    return "", None


def _in_file(path: Path, function: str) -> ExistingFunction:
    # A symbolic link is followed, because the user named it.
    path = path.resolve()
    if not path.is_file():
        raise RatchetError("unknown-function", f"expected --from file.py:function, found no file {path}")
    files = Candidate.of_file(path).files
    trees: dict[str, ast.Module] = {}
    for name, text in files.items():
        shown = path.name if name == KERNEL else name
        try:
            trees[name] = ast.parse(text, shown)
        except (SyntaxError, ValueError) as error:
            raise RatchetError("syntax-error", f"{shown} is not valid Python: {error}") from None
    for name, tree in trees.items():
        _require_copied_imports(tree, path.name if name == KERNEL else name, path, files)
    definitions = _definitions(trees[KERNEL])
    brought = {
        alias.asname or alias.name: _definitions(trees[f"{node.module}.py"]).get(alias.name)
        for node in trees[KERNEL].body
        if isinstance(node, ast.ImportFrom) and f"{node.module}.py" in trees
        for alias in node.names
    }
    if function not in definitions and function not in brought:
        asked = f"{path.name} has no function {function}" if function else f"expected --from {path}:FUNCTION"
        functions = [name for name, node in definitions.items() if node is not None]
        raise RatchetError("unknown-function", f"{asked}; it has {', '.join(functions) or 'none at all'}")
    # The copy cannot be called kernel.py, because kernel.py calls the function.
    module = function if path.stem in ("kernel", "prepare") or not path.stem.isidentifier() else path.stem
    # The folder that contains the harness is on the import path.
    is_beside_the_harness = any(
        Path(place, f"{module}.py").is_file() for place in sys.path if Path(place, "harness").is_dir()
    )
    if _is_taken(module) or f"{module}.py" in files or is_beside_the_harness:
        module = f"existing_{module}"
    return ExistingFunction(
        module=module,
        function=function,
        path=path,
        node=definitions.get(function) or brought.get(function),
        home=path.stem,
        helpers={**{name: text for name, text in files.items() if name != KERNEL}, f"{module}.py": files[KERNEL]},
    )


def _require_copied_imports(tree: ast.Module, name: str, path: Path, files: Mapping[str, bytes]) -> None:
    """Raises RatchetError `not-copied` if a file imports a module from its own folder that is not copied."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        where = f"{name} line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.level:
            raise RatchetError(
                "not-copied",
                f"expected absolute imports, got a relative one in {where}: in a contest all files lie side by side, "
                f"so write `from {node.module or 'name'} import ...`",
            )
        for top in (module.partition(".")[0] for module in modules):
            file, inside = path.with_name(f"{top}.py"), path.with_name(top)
            is_contests = top in ("kernel", "prepare")
            if file.exists() and (is_contests or (file.name not in files and file != path)):
                reason, way = "has the name of an installed module", "rename it, and import it by its new name"
                if file.is_symlink():
                    reason, way = "is a symbolic link", "replace it by a copy of the file"
                if is_contests:
                    reason = "has the name of one of the contest's own files"
                raise RatchetError("not-copied", f"{where} imports {top}, but {file.name} {reason}: {way}")
            if inside.is_dir() and not _is_taken(top):
                raise RatchetError(
                    "not-copied",
                    f"{where} imports from the folder {top}, but only files next to {path.name} are copied: put the "
                    f"module next to {path.name}, and import it by its own name",
                )


def _is_taken(module: str) -> bool:
    """True if an installed or standard module has this name; files in the working directory do not count."""
    homes = [place for place in sys.path if {"site-packages", "dist-packages"} & set(Path(place).parts)]
    return module in sys.stdlib_module_names or PathFinder.find_spec(module, homes) is not None


def _definitions(tree: ast.Module) -> dict[str, ast.FunctionDef | None]:
    """The names that a module defines at its top level; the node is None for a name without a plain `def`."""
    names: dict[str, ast.FunctionDef | None] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.ClassDef):
            names[node.name] = None
        elif isinstance(node, ast.Assign):
            names.update({each.id: None for each in node.targets if isinstance(each, ast.Name)})
    return names


def _find(module: str, function: str, most: int, asked: str) -> ExistingFunction:
    path = _source(module)
    tree = ast.parse(path.read_bytes())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and most:
            for alias in node.names:
                if (alias.asname or alias.name) == function:
                    home = _imported_from(node, module, path)
                    original = _find(home, alias.name, most - 1, asked)
                    return replace(original, module=asked, function=function)
    names = _definitions(tree)
    if function not in names:
        near = difflib.get_close_matches(function, names, 5, 0.4) or sorted(names)[:5]
        raise RatchetError(
            "unknown-function", f"{module} has no function {function}; it has {', '.join(near) or 'none at all'}"
        )
    return ExistingFunction(module=asked, function=function, path=path, node=names[function], home=module)


def _imported_from(node: ast.ImportFrom, module: str, path: Path) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    return ".".join((*package[: len(package) - node.level + 1], *(node.module or "").split("."))).rstrip(".")


def _import_error(module: str, folders: Sequence[str]) -> str:
    """The reason why a module without a file cannot be imported, in Python's words; `folders` are those of its package.

    Nothing is imported.
    """
    top, *parts = module.split(".")
    name, places = top, [Path(folder) for folder in folders]
    while places and parts:
        part = parts.pop(0)
        name, places = f"{name}.{part}", [place / part for place in places if (place / part).is_dir()]
    why = "its folder has no __init__.py" if places else f"No module named {name!r}"
    return f"{module} cannot be imported: {why}"


def _source(module: str) -> Path:
    """The file of an installed module, located without importing any of its packages."""
    top, *parts = module.split(".")
    # Only find_spec knows the finders of editable installations; for a top-level name it imports nothing either.
    spec = PathFinder.find_spec(top) or importlib.util.find_spec(top)
    path, folders = None, spec.submodule_search_locations or () if spec is not None else ()
    if spec is not None:
        places = [Path(folder).joinpath(*parts) for folder in folders]
        files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
        path = next(filter(Path.is_file, files if parts else [Path(spec.origin or "")]), None)
    homes = {"site-packages", "dist-packages"}
    is_edited = path is not None and any(path.resolve().is_relative_to(root) for root in editable_roots())
    if path is None or path.suffix != ".py" or not (is_edited or homes & set(path.parts)):
        installed = " and ".join(versions(top))
        lacking, another = "found none", "the package"
        if installed:
            why = "it has no Python source in site-packages" if path is not None else _import_error(module, folders)
            lacking, another = f"{installed} is installed, but {why}", "another version of the package"
        raise RatchetError(
            "not-installed",
            f"expected {module} to be a Python module of an installed package, {lacking}; install {another} into "
            f"the environment that ratchet.sh runs in ({install(top)}; add --no-deps if its kernels need JAX alone, "
            "and -e for a package of your own); for a function in a file of yours write --from file.py:function",
        )
    return path
