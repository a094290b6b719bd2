"""A thin kernel.py around a function of an installed package or of a file: its options become constants for `--set`.

The package or file is read, never imported: only the sandbox runs it.
"""

import ast
import difflib
import importlib.metadata
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path

from harness.candidate import KERNEL, Candidate, read_file, rewrite
from harness.candidate import names as assigned
from harness.errors import RatchetError
from harness.records import Failure, Statement
from harness.records.problem import Parameter
from harness.sandbox.editable import editable_roots

_WRAPPERS = Path(__file__).parents[1] / "operators"
_WRAPS = re.compile(r"^Wraps: (\S+)$", re.M)
# Other names of a problem's parameters in published kernels.
_ALSO_CALLED = {
    "sm_scale": "scale",
    "softmax_scale": "scale",
    "is_causal": "causal",
    "epsilon": "eps",
    "num_heads": "heads",
}
# Options for debugging, or for a machine that is not judged.
_LEFT_OUT = ("interpret", "debug", "mesh", "cost_estimate", "name")
_LACKING = re.compile(r"No module named '([\w.]+)'")
_PINNED = re.compile(r"jax *(==|~=) *([\d.]+)")
# A name that was imported from elsewhere is followed through so many modules.
_MOST_IMPORTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingFunction:
    """A function of an installed package or of a file, which is `path`; `node` is None if it is no plain `def`.

    `helpers` are the file that defines it and the files beside it that this one imports, by the names that they get
    beside kernel.py; empty for a package.
    """

    module: str
    function: str
    path: Path
    node: ast.FunctionDef | None
    helpers: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`package.module:function`, or `file.py:function`."""
        return f"{self.module}{'.py' if self.helpers else ''}:{self.function}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One kernel.py, and its way of passing the problem's arrays, in words.

    `departures` are the options that differ from the function's defaults, in words.
    """

    candidate: Candidate
    words: str
    departures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """One option of the function: texts of its value and default (None: no default); `is_by_name`: from the problem."""

    name: str
    value: str
    default: str | None
    is_by_name: bool = False


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
        f"expected --from package.module:function, got {text!r}, which is no installed package but lies here; write "
        f"--from {'/'.join(module.split('.'))}{'/FILE' if inside.is_dir() else ''}.py:{function}",
    )


def variants(
    wanted: ExistingFunction, statement: Statement, settings: tuple[tuple[str, str], ...]
) -> Iterator[Variant]:
    """The kernels that call `wanted` for this problem, the likeliest first; `settings` are the user's constants.

    Raises RatchetError `missing-option` if the function needs a value that nobody gave.
    """
    for path in sorted(_WRAPPERS.glob("*/existing/*.py")):
        source = path.read_bytes()
        if wanted.name in _WRAPS.findall(ast.get_docstring(ast.parse(source)) or ""):
            yield _of_wrapper(source, statement)
            return
    options = _options(wanted, statement, dict(settings))
    # A parameter of the same name may mean something else here; then the package's default is right.
    left = tuple(option for option in options if not option.is_by_name or option.default is None)
    for some in (options, left) if left != options else (options,):
        departures = tuple(
            f"{option.name} = {option.value} ({'problem' if option.is_by_name else '--set'}; default: {option.default})"
            for option in some
            if option.default is not None and option.value != option.default
        )
        for body, words in _bodies(statement):
            yield Variant(candidate=_candidate(wanted, statement, some, body), words=words, departures=departures)


def install(package: str) -> str:
    """The command that installs a package into this environment, if it is published by that name."""
    return f"{shlex.quote(sys.executable)} -m pip install {package.replace('_', '-')}"


def missing_package(failure: Failure) -> str:
    """The imported package that is not installed, if the failure names one, else ""."""
    match = _LACKING.search(failure.message)
    return match[1].partition(".")[0] if match else ""


def other_jax_pinned(wanted: ExistingFunction) -> str:
    """`; tpu-inference 0.32.0 asks for jax==0.11.2, here is 0.10.2` if the package pins another JAX, else ""."""
    top = wanted.module.partition(".")[0]
    here = importlib.metadata.version("jax")
    for name in importlib.metadata.packages_distributions().get(top, ()):
        for asked in importlib.metadata.requires(name) or ():
            text, _, condition = asked.partition(";")
            pinned = _PINNED.fullmatch(text.strip())
            if pinned is None or "extra" in condition:
                continue
            how, version = pinned.groups()
            parts = version.split(".")[: 2 if how == "~=" else None]
            if here.split(".")[: len(parts)] != parts:
                return f"; {name} {importlib.metadata.version(name)} asks for jax{how}{version}, here is {here}"
    return ""


# --- where a function is -----------------------------------------------------------------------


def _in_file(path: Path, function: str) -> ExistingFunction:
    # The user named it, so it may be a link.
    path = path.resolve()
    data = read_file(path)
    if data is None:
        raise RatchetError("unknown-function", f"expected --from file.py:function, found no file {path}")
    files = Candidate.of_file(path).files
    trees = {name: _parse(text, path.name if name == KERNEL else name) for name, text in files.items()}
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
    # kernel.py is the file that calls the function.
    module = function if path.stem in ("kernel", "prepare") or not path.stem.isidentifier() else path.stem
    if _is_taken(module) or f"{module}.py" in files:
        module = f"existing_{module}"
    return ExistingFunction(
        module=module,
        function=function,
        path=path,
        node=definitions.get(function) or brought.get(function),
        helpers={**{name: text for name, text in files.items() if name != KERNEL}, f"{module}.py": files[KERNEL]},
    )


def _parse(data: bytes, name: str) -> ast.Module:
    try:
        return ast.parse(data, name)
    except (SyntaxError, ValueError) as error:
        raise RatchetError("syntax-error", f"{name} is not valid Python: {error}") from None


def _require_copied_imports(tree: ast.Module, name: str, path: Path, files: Mapping[str, bytes]) -> None:
    """Raises RatchetError `not-copied` if a file imports from beside it what does not come along."""
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
                reason = "is a symbolic link" if file.is_symlink() else "has the name of an installed module"
                if is_contests:
                    reason = "has the name of one of the contest's own files"
                way = "put a copy of the file there" if file.is_symlink() else "rename it, and import it by that name"
                raise RatchetError("not-copied", f"{where} imports {top}, but {file.name} {reason}: {way}")
            if inside.is_dir() and not _is_taken(top):
                raise RatchetError(
                    "not-copied",
                    f"{where} imports from the folder {top}, but only files beside {path.name} are copied: put the "
                    f"module beside {path.name}, and import it by its own name",
                )


def _is_taken(module: str) -> bool:
    """True if an installed module has this name; what lies in the working directory does not count."""
    homes = [place for place in sys.path if {"site-packages", "dist-packages"} & set(Path(place).parts)]
    return module in sys.stdlib_module_names or PathFinder.find_spec(module, homes) is not None


def _definitions(tree: ast.Module) -> dict[str, ast.FunctionDef | None]:
    """The names that a module defines at its top level; the node is None for what is no plain `def`."""
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
                    return ExistingFunction(module=asked, function=function, path=original.path, node=original.node)
    names = _definitions(tree)
    if function not in names:
        near = difflib.get_close_matches(function, names, 5, 0.4) or sorted(names)[:5]
        raise RatchetError(
            "unknown-function", f"{module} has no function {function}; it has {', '.join(near) or 'none at all'}"
        )
    return ExistingFunction(module=asked, function=function, path=path, node=names[function])


def _imported_from(node: ast.ImportFrom, module: str, path: Path) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    return ".".join((*package[: len(package) - node.level + 1], *(node.module or "").split("."))).rstrip(".")


def _source(module: str) -> Path:
    """The file of an installed module, located without importing any of its packages."""
    top, *parts = module.split(".")
    # An editable installation may have a finder of its own, which imports nothing either.
    spec = PathFinder.find_spec(top) or importlib.util.find_spec(top)
    path = None
    if spec is not None:
        folders = [Path(place) for place in spec.submodule_search_locations or ()]
        places = [folder.joinpath(*parts) for folder in folders]
        files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
        path = next(filter(Path.is_file, files if parts else [Path(spec.origin or "")]), None)
    if path is None or path.suffix != ".py" or not _is_installed(path):
        raise RatchetError(
            "not-installed",
            f"expected {module} to be a Python module of an installed package, found none; install the package into "
            f"the environment that ratchet.sh runs in ({install(top)}, with --no-deps where its kernels need JAX "
            "alone; a package of your own with -e); for a function in a file of yours write --from file.py:function",
        )
    return path


def _is_installed(path: Path) -> bool:
    is_edited = any(path.resolve().is_relative_to(root) for root in editable_roots())
    return is_edited or bool({"site-packages", "dist-packages"} & set(path.parts))


# --- the text ----------------------------------------------------------------------------------


def _of_wrapper(source: bytes, statement: Statement) -> Variant:
    """One of our wrappers, with the constants named like the problem's parameters set to their values."""
    left = dict(Candidate(text=source).tunable)
    for name, value in statement.parameters:
        if name.upper() in left:
            source = rewrite(source, name.upper(), repr(value), "kernel.py")
            del left[name.upper()]
    # None in a wrapper leaves the choice to the package.
    departures = tuple(f"{name} = {value}" for name, value in left.items() if value != "None")
    return Variant(candidate=Candidate(text=source), words="as its own wrapper does", departures=departures)


def _options(wanted: ExistingFunction, statement: Statement, settings: Mapping[str, str]) -> tuple[_Option, ...]:
    """The function's options beside the problem's arrays, with the text of each value."""
    if wanted.node is None:
        return ()
    arguments = wanted.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    count = len(statement.inputs)
    if len(positional) < count and arguments.vararg is None:
        raise RatchetError(
            "missing-option",
            f"expected {wanted.function} to take the problem's {count} arrays "
            f"({', '.join(array.name for array in statement.inputs)}), it takes {len(positional)}",
        )
    absent: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [*zip(positional, (*absent, *arguments.defaults), strict=True)][count:]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    parameters: dict[str, Parameter] = dict(statement.parameters)
    options: list[_Option] = []
    missing = []
    for argument, default in pairs:
        name = argument.arg
        meant = _ALSO_CALLED.get(name, name)
        if name in _LEFT_OUT:
            continue
        default_text = None if default is None else ast.unparse(default)
        if name.upper() in settings:
            by_name = meant in parameters
            options.append(_Option(name=name, value=settings[name.upper()], default=default_text, is_by_name=by_name))
        elif meant in parameters:
            options.append(_Option(name=name, value=repr(parameters[meant]), default=default_text, is_by_name=True))
        elif default_text is None:
            missing.append(name.upper())
        elif default is not None and _is_literal(default):
            options.append(_Option(name=name, value=default_text, default=default_text))
    if missing:
        raise RatchetError(
            "missing-option",
            f"{wanted.function} needs {', '.join(missing)}, which the problem does not say: give each with --set "
            "NAME=VALUE, or write kernel.py by hand",
        )
    return tuple(options)


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _bodies(statement: Statement) -> Iterator[tuple[str, str]]:
    """The bodies of kernel_fn to try, which use `call` (the function with its options), each with a description."""
    names = ", ".join(array.name for array in statement.inputs)
    yield f"    return call({names})", "with the arrays as they are"
    if len(statement.results) > 1:
        return
    axes = max(len(array.shape) for array in statement.inputs)
    dtype = statement.outputs[0].dtype
    yield f'    return call({names}).astype("{dtype}")', f"with the output converted to {dtype}"
    for more in range(1, 5 - axes):
        new = ", ".join(["None"] * more)
        old = ", ".join(["0"] * more)
        yield (
            f"    return call(*(x[{new}] for x in ({names},)))[{old}]",
            f"with {more} more leading {'axes' if more > 1 else 'axis'}",
        )
        whole = [array.name for array in statement.inputs if len(array.shape) == axes]
        if len(whole) < len(statement.inputs):
            mixed = ", ".join(
                f"{array.name}[{new}]" if array.name in whole else array.name for array in statement.inputs
            )
            description = f"with {more} more leading {'axes' if more > 1 else 'axis'} of {' and '.join(whole)}"
            yield f"    return call({mixed})[{old}]", description
    for less in range(1, axes - 1):
        yield f"    return {'jax.vmap(' * less}call{')' * less}({names})", f"mapped over {less} leading axes"
    # Heads after the sequence, as in many published functions.
    turned = {
        2: (f"    return call(*(x[None, :, None] for x in ({names},)))[0, :, 0]"),
        3: (f"    return call(*(x.swapaxes(0, 1)[None] for x in ({names},)))[0].swapaxes(0, 1)"),
        4: (f"    return call(*(x.swapaxes(1, 2) for x in ({names},))).swapaxes(1, 2)"),
    }
    if axes in turned and all(len(array.shape) == axes for array in statement.inputs):
        yield turned[axes], "with the heads behind the sequence"


def _candidate(wanted: ExistingFunction, statement: Statement, options: tuple[_Option, ...], body: str) -> Candidate:
    names = ", ".join(array.name for array in statement.inputs)
    # `--set` finds a constant by its name alone, in whichever file.
    of_helpers = frozenset[str]().union(*(assigned(data) for data in wanted.helpers.values()))
    named = {
        option: f"{wanted.function.upper()}_{name}" if (name := option.name.upper()) in of_helpers else name
        for option in options
    }
    constants = "".join(f"{name} = {option.value}\n" for option, name in named.items())
    handed = ", ".join(f"{option.name}={name}" for option, name in named.items())
    jax = "import jax\n" if "jax." in body else ""
    home = wanted.name.partition(":")[0]
    text = (
        f'"""{statement.operation} by {wanted.function} of {home}: what an experiment changes."""\n\n'
        f"import functools\n\n{jax}from {wanted.module} import {wanted.function} as existing\n\n"
        f'KERNEL_NAME = "{wanted.function}"\nPROBLEM_DESCRIPTION = "{statement.operation}"\n\n'
        f"{constants}{chr(10) if constants else ''}\n"
        f"def kernel_fn({names}):\n    call = functools.partial(existing{', ' + handed if handed else ''})\n{body}\n"
    )
    return Candidate.of_files({**wanted.helpers, KERNEL: text.encode()})
