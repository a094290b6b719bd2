"""The comparability key: what has to be equal for two attempts to be compared, and a hash of the judge in it.

The judge is what its entry points import, whatever folder it lies in: a file counts if and only if a verdict can depend
on it. Comments, docstrings and formatting do not count.
"""

import ast
import hashlib
import json
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple
from functools import cache
from pathlib import Path

import msgspec

import harness
from harness import files
from harness.errors import RatchetError
from harness.judge.sandbox.environment import environment
from harness.records import Key, Source

_PACKAGE = Path(harness.__file__).parent
# From a kernel.py to its evidence, and from that to a verdict. Processes that are started by the name of their module
# are found by that name.
ENTRY_POINTS = (
    "harness.judge.evaluate.evaluation",
    "harness.judge.evaluate.timing.paired_benchmark",
    "harness.judge.evaluate.timing.resimulation",
    "harness.judge.key",
    "harness.judge.simulate.machine_variants",
    "harness.judge.verdict.champion_evidence",
    "harness.judge.verdict.decision",
)


def key(prepare: Path, problem_digest: str, chip_name: str, source: Source) -> Key:
    """The key of evidence taken now, of the problem that `prepare` states."""
    here = environment()
    return Key(
        judge=judge_digest(prepare),
        problem=problem_digest,
        chip=chip_name,
        source=source,
        jax=here.jax,
        jaxlib=here.jaxlib,
        libtpu=here.libtpu or "",
        machine="" if source == "simulated" else here.machine,
    )


def key_digest(key: Key) -> str:
    """Twelve hex digits that stand for `key` in tables and trailers."""
    return hashlib.sha256(json.dumps(astuple(key)).encode()).hexdigest()[:12]


def key_difference(old: Key, new: Key) -> str:
    """What differs between two keys, in words."""
    names = [name for name in Key.__dataclass_fields__ if getattr(old, name) != getattr(new, name)]
    shown = [f"{name} {getattr(old, name) or 'none'} -> {getattr(new, name) or 'none'}" for name in names]
    return f"another comparability key ({', '.join(shown)})" if shown else "the same comparability key"


def judge_digest(prepare: Path) -> str:
    """Sixteen hex digits that stand for the judge of a contest: its prepare.py and the files of `judge_files`."""
    own = _code_digest(prepare.read_bytes())
    return hashlib.sha256(json.dumps([own, _harness_digest(_bytes_digest())[0]]).encode()).hexdigest()[:16]


def judge_files() -> tuple[Path, ...]:
    """The files of the harness that a verdict can depend on, sorted."""
    return tuple(_PACKAGE / name for name in _harness_digest(_bytes_digest())[1])


def _bytes_digest() -> str:
    """A hash over every byte of the harness's code: while it is the same, so is what follows from it."""
    digest = hashlib.sha256(platform.python_version().encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(json.dumps([path.relative_to(_PACKAGE).as_posix(), content]).encode())
    return digest.hexdigest()


@cache
def _harness_digest(of_bytes: str) -> tuple[str, tuple[str, ...]]:
    """The digest of the judge's code and its files below the package, read from a cache of the user's if it is there.

    Reading the imports of 150 files takes a second, and every question after the state of a contest needs the answer.
    """
    folder = files.cache_directory()
    # Without a home, a folder that cannot be: nothing is kept.
    kept = (folder or Path(os.devnull)) / f"judge-{of_bytes}.json"
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(kept.read_bytes(), type=tuple[str, tuple[str, ...]])
    found = {path.relative_to(_PACKAGE).as_posix(): path for path in _closure().values()}
    parts = [[name, _code_digest(found[name].read_bytes())] for name in sorted(found)]
    result = hashlib.sha256(json.dumps(parts).encode()).hexdigest(), tuple(sorted(found))
    # A home that cannot be written costs a second each time, no more.
    with suppress(OSError, RatchetError):
        files.write_atomically(kept, json.dumps(result).encode())
    return result


def _closure() -> dict[str, Path]:
    """Every module that the entry points import, directly or not, and the packages these lie in, by name."""
    found: dict[str, Path] = {}
    todo = list(ENTRY_POINTS)
    while todo:
        name = todo.pop()
        path = _path(name)
        # The package itself holds the version and nothing else.
        if path is None or name in found or name == "harness":
            continue
        found[name] = path
        todo += [name.rpartition(".")[0], *_named(path)]
    return found


def _path(module: str) -> Path | None:
    """The file of a module of the harness, None for anything else."""
    top, *parts = module.split(".")
    if top != "harness" or not all(parts):
        return None
    place = _PACKAGE.joinpath(*parts)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def _named(path: Path) -> Iterator[str]:
    """What a file imports, and the modules that it names in a string."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("harness."):
            yield node.value


def _code_digest(source: bytes) -> str:
    """A hash of what Python makes of `source`: the same for other comments, docstrings and formatting."""
    try:
        said = repr(_bare(ast.parse(source))).encode()
    except (SyntaxError, ValueError):
        # No Python at all, as when a prepare.py was changed while the attempt ran.
        said = source
    return hashlib.sha256(said).hexdigest()


def _bare(node: object) -> object:
    """A syntax tree as nested tuples, equal in every version of Python: no places, no docstrings, nothing empty."""
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
