"""The two keys. Only times with equal timing keys are compared. Checks are valid only under the same checks key.

Each key hashes the code of all modules that its entry points import, directly or not. The timing key covers the code
that compiles and simulates, this chip's facts, and the timed problem. The checks key covers all code that decides
whether a kernel is right, the contest's operator, and its prepare.py. A contest's keys contain only the contest's chip,
its operator, and the operators that this operator uses. Comments, docstrings and formatting do not change a key.
docs/KEYS.md lists, for each file, the keys that depend on it.
"""

import ast
import hashlib
import itertools
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import harness
from harness import chips, files
from harness.errors import RatchetError
from harness.operators import OPERATORS
from harness.operators.former_names import present_name
from harness.records import Key, Source, Statement
from harness.sandbox.environment import environment

_PACKAGE = Path(harness.__file__).parent
_MODULES = "harness."
# The entry points of a simulated time. Modules that run as processes are started by name, without an import, so each of
# them is a separate entry point.
_OF_TIMING = (
    "harness.judge.evaluate.compile.compilation",
    "harness.judge.evaluate.timing.latency",
    "harness.judge.evaluate.timing.simulation",
    "harness.sandbox.environment",
    "harness.judge.simulate",
)
# The further entry points of a measured time.
_OF_MEASURING = (
    "harness.judge.evaluate.timing.device",
    "harness.judge.evaluate.timing.device_timing",
    "harness.judge.evaluate.timing.paired_benchmark",
)
_OF_CHECKS = (
    "harness.judge.evaluate.candidate",
    "harness.judge.evaluate.compile.certificate",
    "harness.judge.evaluate.correctness",
    "harness.judge.evaluate.evaluation",
    "harness.judge.verdict.schedule_checks",
)
# The entry points of all code from a kernel.py to its evidence, and from the evidence to a verdict.
_OF_JUDGE = (
    *_OF_TIMING,
    *_OF_MEASURING,
    *_OF_CHECKS,
    "harness.judge.evaluate.timing.resimulation",
    "harness.judge.key",
    "harness.judge.simulate.machine_variants",
    "harness.judge.verdict.champion_evidence",
    "harness.judge.verdict.decision",
)
# The modules of operators, and the module for problems that contests define.
_OPERATORS = (*(f"harness.operators.{home}" for home in OPERATORS.values()), "harness.operators.formula")
# The modules that run a prepare.py to get its problem.
_OF_CONFINED = ("harness.prepare.child", "harness.prepare.confined")
# Code with one of these words may import without an import statement.
_WAYS_TO_IMPORT = (b"import_module", b"__import__", b"getattr", b"eval", b"exec", b"sys.modules")
# Modules that compute nothing. `harness` has the version. The two sandbox modules import modules in advance for forked
# children. `harness.operators` re-exports names of its modules.
_NOT_FOLLOWED = ("harness", "harness.sandbox.warm", "harness.sandbox.forking", "harness.operators")
# Fields that change no time: the title of a problem, and the counts that reports expect.
_NOT_TIMED = ("title", "expected")
# Fields that were added to statements later, with their empty values, newest first: older keys do not contain them.
_LATER_FIELDS: tuple[Mapping[str, Any], ...] = (
    {"overwrites": ()},
    {"split": (), "link_bytes": 0, "mesh": ()},
    {"updates": ()},
)


def key(
    prepare: Path,
    statement: Statement,
    timing_inputs: Any,
    chip_name: str,
    source: Source,
    *,
    is_confined: bool = False,
) -> Key:
    """The keys of evidence taken now for the problem that `prepare` states.

    `timing_inputs` are the tables of the timed calls: for each call's name, a dict of arrays by table name.
    `is_confined`: prepare.py is code that must be run, not data.
    """
    here, graph = environment(), _graph()
    facts = _facts(chip_name)
    timed = _closure(graph, _entries_of_timing(source))
    checking = _closure(graph, _entries_of_checks(prepare, is_confined))
    prepare_code = _code_digest(prepare.read_bytes())
    return Key(
        judge=_hash([prepare_code, _codes(graph, _judge_modules(graph))]),
        problem=problem_digest(statement),
        chip=chip_name,
        source=source,
        jax=here.jax,
        jaxlib=here.jaxlib,
        libtpu=here.libtpu or "",
        machine="" if source == "simulated" else here.machine,
        timing=_hash([_tables(timing_inputs), facts, _codes(graph, timed)]),
        checks=_hash([prepare_code, statement_digest(statement), facts, _codes(graph, checking)]),
    )


def key_digest(key: Key) -> str:
    """Twelve hex digits, a hash of the timing key; only times with equal digests are compared."""
    return hashlib.sha256(json.dumps(key.timed).encode()).hexdigest()[:12]


def checks_digest(key: Key) -> str:
    """Twelve hex digits, a hash of the checks key; "" for a record before schema 11, which has no such key."""
    if not key.checks:
        return ""
    parts = [key.checks, key.chip, key.jax, key.jaxlib, key.libtpu]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def key_difference(old: Key, new: Key) -> str:
    """A description of the fields in which two keys differ, and of the key (timing or checks) that they change."""
    names = [name for name in Key.__dataclass_fields__ if getattr(old, name) != getattr(new, name)]
    if old.timing and new.timing:
        # The hash of the whole judge differs whenever one of the two keys does.
        names = [name for name in names if name != "judge"]
    elif new.timing:
        # The older record has only one key, so it is unknown which of the two keys would differ.
        names = ["judge", *(name for name in names if name not in ("judge", "timing", "checks", "problem"))]
    shown = [f"{name} {getattr(old, name) or 'none'} -> {getattr(new, name) or 'none'}" for name in names]
    if not shown:
        return "the same keys"
    which = "another checks key" if key_digest(old) == key_digest(new) else "another timing key"
    return f"{which} ({', '.join(shown)})"


def judge_digest(prepare: bytes) -> str:
    """Sixteen hex digits, a hash of the whole judge of a contest: its prepare.py and the files of `judge_files`."""
    graph = _graph()
    return _hash([_code_digest(prepare), _codes(graph, _judge_modules(graph))])


def judge_files() -> tuple[Path, ...]:
    """The files of the harness that a verdict of any contest can depend on, sorted."""
    graph = _graph()
    return tuple(sorted(_PACKAGE / graph[name].file for name in _judge_modules(graph)))


def timing_modules(source: Source) -> tuple[str, ...]:
    """The modules that a time from this source depends on, except its chip's; sorted."""
    return _closure(_graph(), _entries_of_timing(source))


def checks_modules(prepare: Path) -> tuple[str, ...]:
    """The modules that decide whether a kernel of this contest is right, except its chip's; sorted."""
    return _closure(_graph(), _entries_of_checks(prepare))


# --- what is timed -----------------------------------------------------------------------------


def statement_digest(statement: Statement) -> str:
    """Sixteen hex digits, a hash of a problem as the judge states it; for checks keys and keys before schema 11."""
    return _stated_digest(msgspec.to_builtins(statement))


def problem_digest(statement: Statement) -> str:
    """Sixteen hex digits, a hash of a problem as it is timed: its statement without titles and expected counts."""
    return _timed_digest(msgspec.to_builtins(statement))


def problem_digests(statement: Statement, *, is_timed: bool) -> frozenset[str]:
    """All digests of one problem that keys may contain: of its statement, with and without later fields.

    If `is_timed`, these are digests of the problem as it is timed; otherwise, digests in keys before schema 11.
    """
    digest = _timed_digest if is_timed else _stated_digest
    forms = itertools.accumulate(_LATER_FIELDS, _without, initial=msgspec.to_builtins(statement))
    return frozenset(map(digest, forms))


def _timed_digest(stated: Any) -> str:
    timed = _without_none(stated)
    for statement_fields in (timed, *(member["statement"] for member in timed.get("members", ()))):
        for name in _NOT_TIMED:
            statement_fields.pop(name, None)
    return _hash(timed)


def _stated_digest(stated: Any) -> str:
    # Fields that are None stay in tuples, as in keys before schema 11.
    return hashlib.sha256(msgspec.json.encode(_without_none(stated, within=list))).hexdigest()[:16]


def _without(stated: Any, fields: Mapping[str, Any]) -> Any:
    if isinstance(stated, dict):
        left = {name: value for name, value in stated.items() if name not in fields or fields[name] != value}
        return {name: _without(value, fields) for name, value in left.items()}
    # A tuple stays a tuple, because hashes in old keys distinguish tuples from lists.
    return tuple(_without(value, fields) for value in stated) if isinstance(stated, tuple) else stated


def _tables(contents: Any) -> Any:
    """Nested dicts of arrays, each array as its dtype, its shape and a hash of its numbers."""
    if isinstance(contents, dict):
        return {name: _tables(contents[name]) for name in sorted(contents)}
    numbers = np.ascontiguousarray(contents)
    return [numbers.dtype.name, list(numbers.shape), hashlib.sha256(numbers.tobytes()).hexdigest()]


def _without_none(stated: Any, within: Any = (list, tuple)) -> Any:
    """The statement without fields that are None. So a new field changes no hash of a problem that does not set it."""
    if isinstance(stated, dict):
        return {name: _without_none(value, within) for name, value in stated.items() if value is not None}
    return [_without_none(value, within) for value in stated] if isinstance(stated, within) else stated


def _hash(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


# --- which files -------------------------------------------------------------------------------


class _SourceModule(msgspec.Struct, frozen=True):
    """A module of the harness: its file below the package, a hash of its code, and the modules that it imports."""

    file: str
    code: str
    imports: tuple[str, ...]


_Graph = Mapping[str, _SourceModule]


def _entries_of_timing(source: Source) -> tuple[str, ...]:
    return _OF_TIMING if source == "simulated" else (*_OF_TIMING, *_OF_MEASURING)


def _entries_of_checks(prepare: Path, is_confined: bool = False) -> tuple[str, ...]:
    source = prepare.read_bytes()
    entries = (*_OF_CHECKS, *_imports(source, is_contest=True))
    if not is_confined:
        return entries
    # A prepare.py that is run can get an operator without an import statement. If it might do so, all operators count.
    may_use_any = "harness.operators" in entries or any(word in source for word in _WAYS_TO_IMPORT)
    return (*entries, *_OF_CONFINED, *(_OPERATORS if may_use_any else ()))


def _facts(chip_name: str) -> list[list[str]]:
    """A chip's row as values, without the section that only the workbench reads; empty for an unknown chip."""
    if chip_name not in chips.names():
        return []
    row = chips.row(chip_name)
    names = (field.name for field in fields(row) if field.name != "workbench")
    return [[name, repr(getattr(row, name))] for name in names]


def _judge_modules(graph: _Graph) -> tuple[str, ...]:
    modules = _closure(graph, (*_OF_JUDGE, *_OPERATORS, *_every_chip()), not_followed=("harness",))
    # The files of the packages themselves count too, because they are run, although they compute nothing.
    return tuple(sorted({*modules, *(package for name in modules for package in _packages(name))}))


def _packages(name: str) -> Iterator[str]:
    """The packages that contain a module, without the harness itself."""
    while (name := name.rpartition(".")[0]) not in ("", "harness"):
        yield name


def _every_chip() -> tuple[str, ...]:
    return tuple(f"harness.chips.{name}" for name in chips.names())


def _codes(graph: _Graph, modules: Iterable[str]) -> list[list[str]]:
    source_modules = {name: graph[name] if name in graph else _read(name) for name in sorted(set(modules))}
    return [[module.file, module.code] for module in source_modules.values() if module is not None]


def _closure(graph: _Graph, entries: Iterable[str], not_followed: Sequence[str] = _NOT_FOLLOWED) -> tuple[str, ...]:
    """The entry points and all modules that they import, directly or not, except `not_followed`; sorted."""
    reached: set[str] = set()
    todo = list(entries)
    while todo:
        name = todo.pop()
        if name in reached or name in not_followed:
            continue
        module = graph[name] if name in graph else _read(name)
        if module is not None:
            reached.add(name)
            todo += module.imports
    return tuple(sorted(reached))


def _graph() -> _Graph:
    """The judge's modules, all operators, all chips, and all that these import, by name."""
    return _kept_graph(_bytes_digest())


def _bytes_digest() -> str:
    """A hash of all bytes of the harness's code. Results derived from the code are valid while the hash is the same."""
    digest = hashlib.sha256(platform.python_version().encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(json.dumps([path.relative_to(_PACKAGE).as_posix(), content]).encode())
    return digest.hexdigest()


@cache
def _kept_graph(of_bytes: str) -> _Graph:
    """The result of `_graph`, read from the user's cache if possible.

    Reading the imports of 200 files takes a second. Every verb that shows the state of a contest needs these imports.
    """
    # Without a home directory, the path is below os.devnull and cannot exist, so nothing is stored.
    kept = (files.cache_directory() or Path(os.devnull)) / f"keys-{of_bytes}.json"
    with suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        return msgspec.json.decode(kept.read_bytes(), type=dict[str, _SourceModule])
    graph: dict[str, _SourceModule] = {}
    todo = [*_OF_JUDGE, *_OPERATORS, *_every_chip()]
    while todo:
        name = todo.pop()
        module = None if name in graph else _read(name)
        if module is not None:
            graph[name] = module
            todo += (*module.imports, *_packages(name))
    # If the cache cannot be written, each call of a verb takes a second more.
    with suppress(OSError, RatchetError):
        files.write_atomically(kept, msgspec.json.encode(graph))
    return graph


def _read(name: str) -> _SourceModule | None:
    path = _path(name)
    if path is None:
        return None
    source = path.read_bytes()
    imports = tuple(sorted(set(_imports(source)) - {name}))
    return _SourceModule(file=path.relative_to(_PACKAGE).as_posix(), code=_code_digest(source), imports=imports)


def _path(module: str) -> Path | None:
    """The file of a module of the harness, None for anything else."""
    top, *parts = module.split(".")
    if top != "harness" or not all(parts):
        return None
    place = _PACKAGE.joinpath(*parts)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _imports(source: bytes, *, is_contest: bool = False) -> Iterator[str]:
    """The modules of the harness that a file imports or names in a string.

    If a package only re-exports names of its modules, the result has these modules. Imports for types alone do not
    count. In a contest's prepare.py, code under `__name__ == '__main__'` does not count either.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in _run(tree, is_contest):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _resolved(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield from _resolved(node.module, alias.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_MODULES):
            yield from _resolved(node.value)


def _run(node: ast.AST, is_contest: bool) -> Iterator[ast.AST]:
    """All nodes below `node`, except code for types alone and, in a contest, under `__name__ == '__main__'`."""
    left_out = ("TYPE_CHECKING", "__name__ == '__main__'") if is_contest else ("TYPE_CHECKING",)
    for child in ast.iter_child_nodes(node):
        parts: Sequence[ast.AST] = (child,)
        if isinstance(child, ast.If) and ast.unparse(child.test) in left_out:
            parts = child.orelse
        for part in parts:
            yield part
            yield from _run(part, is_contest)


def _resolved(module: str, name: str | None = None) -> Iterator[str]:
    """The module from which `from module import name` takes `name`, or which `import module` loads.

    Nothing for a module outside the harness.
    """
    part = None if name is None else present_name(f"{module}.{name}")
    if part is not None and _path(part) is not None:
        yield part
        return
    module = present_name(module)
    path = _path(module)
    if path is None:
        # The dotted name of a function in a module.
        home, _, last = module.rpartition(".")
        if name is None and home and _path(home) is not None:
            yield from _resolved(home, last)
    elif module == "harness.operators" and name in OPERATORS:
        yield f"{module}.{OPERATORS[name]}"
    elif name is not None and path.name == "__init__.py" and name in (home_of := _homes(path)):
        yield from _resolved(*home_of[name])
    else:
        yield module


@cache
def _homes(package: Path) -> dict[str, tuple[str, str]]:
    """The module and the original name of each name that a package's own file imports."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(ast.parse(package.read_bytes()))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


# --- the code of a file that counts ------------------------------------------------------------


def _code_digest(source: bytes) -> str:
    """A hash of the syntax tree of `source`: comments, docstrings and formatting do not change it."""
    try:
        code = repr(_bare(ast.parse(source))).encode()
    except (SyntaxError, ValueError):
        # Not valid Python, for example because prepare.py was changed while the attempt ran.
        code = source
    return hashlib.sha256(code).hexdigest()


def _bare(node: object) -> object:
    """A syntax tree as nested tuples, without line numbers, docstrings and empty fields. The same in every Python."""
    if isinstance(node, list):
        return tuple(map(_bare, node))
    if not isinstance(node, ast.AST):
        return node
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
        node.body = node.body[1:]
    if isinstance(node, ast.JoinedStr):
        # Python 3.12.1 ends formats such as {text:<{width}} with an empty string.
        node.values = [value for value in node.values if not (isinstance(value, ast.Constant) and value.value == "")]
    fields = ((name, value) for name, value in ast.iter_fields(node) if name not in ("ctx", "kind", "type_ignores"))
    return (type(node).__name__, *((name, _bare(value)) for name, value in fields if value not in (None, [])))
