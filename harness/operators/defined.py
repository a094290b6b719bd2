"""A problem that a prepare.py defines itself: its source travels with it, so that every process computes the same."""

import hashlib
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import harness
from harness.operators.outputs import Padded
from harness.operators.probes import Probe
from harness.operators.problem import Exact, Problem, Rows, Values
from harness.operators.state import new_state
from harness.operators.timing import Stated, Timed
from harness.operators.tolerance import Divided
from harness.records import Statement

_PREFIX = "contest_prepare_"


def run(source: bytes, path: str) -> ModuleType:
    """The module that these bytes of a prepare.py define; the same one for the same bytes.

    It has no `__file__`: what it states must stand in it. Raises whatever the code raises.
    """
    name = _PREFIX + hashlib.sha256(source).hexdigest()[:16]
    known = sys.modules.get(name)
    if known is not None:
        return known
    module = ModuleType(name)
    # Before its code runs: dataclasses look their module up.
    sys.modules[name] = module
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def is_prepare(module: str) -> bool:
    """Whether a module of this name is what `run` made of a prepare.py."""
    return module.startswith(_PREFIX)


def foreign_imports(before: Sequence[str]) -> dict[str, str]:
    """The modules that are loaded now, were not `before`, and belong to no installed package, with their files."""
    homes = [Path(path).resolve() for path in _installed()]
    files = {name: getattr(sys.modules[name], "__file__", None) for name in sorted(set(sys.modules) - set(before))}
    paths = {name: Path(file).resolve() for name, file in files.items() if file}
    return {name: str(path) for name, path in paths.items() if not any(path.is_relative_to(home) for home in homes)}


def _installed() -> Iterator[str]:
    yield str(Path(harness.__file__).parent)
    yield from (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield str(Path(sys.base_prefix, sys.platlibdir))


class Defined:
    """The `problem` of the prepare.py at `path`, whose bytes are `source`: a Problem that can be handed to children."""

    def __init__(self, source: bytes, path: str, problem: Problem) -> None:
        self.source = source
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is pickled: with the source, which is run before the problem is read."""
        return _restored, (self.source, self.path, pickle.dumps(self.problem))

    def statement(self) -> Statement:
        return self.problem.statement()

    def families(self, full: bool) -> tuple[str, ...]:
        return self.problem.families(full)

    def make_inputs(self, family: str, seed: int) -> tuple[Values, ...]:
        return self.problem.make_inputs(family, seed)

    def reduced(self) -> Iterator["Defined"]:
        return (self._like(problem) for problem in self.problem.reduced())

    def second_shape(self, small: "Defined") -> "Defined | None":
        found = self.problem.second_shape(small.problem)
        return None if found is None else self._like(found)

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        return self.problem.probes(full, seed)

    def sample_rows(self, seed: int) -> Rows:
        return self.problem.sample_rows(seed)

    def reference(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        return self.problem.reference(inputs, rows)

    def honest(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        return self.problem.honest(inputs, rows)

    def rounding(self, inputs: Sequence[Values], rows: Rows) -> Exact:
        return self.problem.rounding(inputs, rows)

    def timing_inputs(self) -> Stated:
        return self.problem.timing_inputs() if isinstance(self.problem, Timed) else {}

    def unused_rows(self, inputs: Sequence[Values]) -> Rows:
        return self.problem.unused_rows(inputs) if isinstance(self.problem, Padded) else np.arange(0)

    def border_rows(self, inputs: Sequence[Values]) -> Rows:
        return self.problem.border_rows(inputs) if isinstance(self.problem, Divided) else np.arange(0)

    def new_state(self, inputs: Sequence[Values]) -> tuple[Values, ...]:
        return new_state(self.problem, inputs)

    def _like(self, problem: Problem) -> "Defined":
        return Defined(self.source, self.path, problem)


def _restored(source: bytes, path: str, pickled: bytes) -> Defined:
    run(source, path)
    return Defined(source, path, pickle.loads(pickled))


def taken(module: ModuleType, source: bytes, path: str, problem: Problem) -> Problem:
    """`problem` as it can be handed on. Raises ValueError where its class is neither the judge's nor of that module."""
    home = type(problem).__module__
    if home.split(".")[:2] == ["harness", "operators"]:
        return problem
    if home != module.__name__:
        raise ValueError(
            f"expected the class of problem() to stand in prepare.py or in harness.operators, got {home}."
            f"{type(problem).__name__}, which the judge's hash does not cover"
        )
    return Defined(source, path, problem)


def missing_methods(problem: object) -> tuple[str, ...]:
    """The methods of a Problem that `problem` lacks."""
    wanted = [name for name in vars(Problem) if not name.startswith("_")]
    return tuple(name for name in wanted if not callable(getattr(problem, name, None)))
