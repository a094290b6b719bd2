"""The module of a prepare.py, run from bytes that travel with its problem, so that any process can run them."""

import hashlib
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import harness
from harness.operators.problem import Problem
from harness.tracebacks import PREPARE


def run(source: bytes, path: str) -> ModuleType:
    """The module that these bytes of a prepare.py define; the same module for the same bytes.

    The module has no `__file__`: a prepare.py must contain everything that it states. Raises whatever the code raises.
    """
    name = PREPARE + hashlib.sha256(source).hexdigest()[:16]
    loaded_module = sys.modules.get(name)
    if loaded_module is not None:
        return loaded_module
    module = ModuleType(name)
    # The module must be in sys.modules before its code runs, because dataclasses look it up.
    sys.modules[name] = module
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def is_prepare(module: str) -> bool:
    """True if a module of this name was made by `run` from a prepare.py."""
    return module.startswith(PREPARE)


def foreign_imports(before: Sequence[str]) -> dict[str, str]:
    """The modules, with their files, that have been loaded since `before` and belong to no installed package."""
    homes = [Path(path).resolve() for path in _installed()]
    files = {name: getattr(sys.modules[name], "__file__", None) for name in sorted(set(sys.modules) - set(before))}
    paths = {name: Path(file).resolve() for name, file in files.items() if file}
    return {name: str(path) for name, path in paths.items() if not any(path.is_relative_to(home) for home in homes)}


def _installed() -> Iterator[str]:
    yield str(Path(harness.__file__).parent)
    yield from (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield str(Path(sys.base_prefix, sys.platlibdir))


def restore(source: bytes, path: str, pickled: bytes) -> Any:
    """The problem that was pickled. First runs `source`, the bytes of the prepare.py at `path`, for its classes."""
    run(source, path)
    return pickle.loads(pickled)


def require_home(module: ModuleType, problem: Problem) -> None:
    """Raises ValueError if the class of `problem` is defined neither in harness.operators nor in `module`."""
    home = type(problem).__module__
    if home.split(".")[:2] != ["harness", "operators"] and home != module.__name__:
        raise ValueError(
            "expected the class of problem() to be defined in prepare.py or in harness.operators, got "
            f"{home}.{type(problem).__name__}, which the judge's hash does not cover"
        )


def missing_methods(problem: object) -> tuple[str, ...]:
    """The methods of a Problem that `problem` lacks."""
    wanted = [name for name in vars(Problem) if not name.startswith("_")]
    return tuple(name for name in wanted if not callable(getattr(problem, name, None)))
