"""Runs a prepare.py in a confined child; in this process, its problem returns the child's answers."""

import contextlib
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from harness.errors import RatchetError
from harness.operators import Member, Space, Suite, prepare_module
from harness.operators.probes import Probe
from harness.operators.timing import Stated
from harness.prepare.messages import (
    MOST_TIMING_BYTES,
    Answered,
    Asked,
    AskedRecipe,
    Complaints,
    StatedContest,
    StatedRecipe,
    StatedShape,
)
from harness.records import Failure, Statement
from harness.sandbox import confinement, environment
from harness.sandbox.child import Children

_Reply = TypeVar("_Reply")
# Enough on a busy machine: stating a problem of harness.operators takes 0.1 s, checking it takes a few seconds.
_SECONDS = 120.0
_MEMORY_BYTES = 8 << 30
# A reply has the timing inputs in base64, which takes four bytes for three.
_REPLY_BYTES = 2 * MOST_TIMING_BYTES


def _elsewhere(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("a problem of prepare.py computes in confined children alone")


class Confined:
    """A problem with a class that only confined children load; the methods here return a child's answers.

    Methods that need arrays work in the children alone; here they raise RuntimeError.
    """

    def __init__(self, source: bytes, path: str, answered: Answered) -> None:
        self.source = source
        self.path = path
        self._answered = answered

    @property
    def name(self) -> str:
        """The problem's name in its suite; "" if it belongs to no suite."""
        return self._answered.name

    @property
    def has_space(self) -> bool:
        """True if the problem has recipes of inputs."""
        return self._answered.has_space

    def __reduce__(self) -> tuple[Any, ...]:
        """The child's pickle of the problem, for the children of a judgement.

        If prepare.py defines the class, the pickle includes the source of prepare.py, which these children run first.
        """
        if self._answered.is_own:
            return prepare_module.restore, (self.source, self.path, self._answered.pickled)
        return pickle.loads, (self._answered.pickled,)

    def statement(self) -> Statement:
        return self._answered.statement

    def families(self, full: bool) -> tuple[str, ...]:
        return self._answered.full if full else self._answered.small

    def reduced(self) -> "Iterator[_Shaped]":
        return map(_Shaped, self._answered.reduced)

    def second_shape(self, small: "_Shaped") -> "_Shaped | None":
        second = small.shape.second
        return None if second is None else _Shaped(StatedShape(statement=second))

    def probes(self, full: bool, seed: int) -> tuple[Probe, ...]:
        """Probes that have only names, because a judgement also lists the probes that it does not run."""
        names = self._answered.probes if full else ()
        return tuple(Probe(name=name, family="", regions=(), moves=(), stays=()) for name in names)

    def timing_inputs(self) -> Stated:
        arrays = {array.name: array for array in self.statement().inputs}
        return {
            name: {
                table: np.frombuffer(values, arrays[table].dtype).reshape(arrays[table].shape).copy()
                for table, values in contents.items()
            }
            for name, contents in self._answered.timing.items()
        }

    make_inputs = sample_rows = reference = honest = rounding = _elsewhere


class _Shaped(Confined):
    """A confined problem at another shape; only its statement is known in this process."""

    __reduce__ = _elsewhere

    def __init__(self, shape: StatedShape) -> None:
        self.shape = shape

    def statement(self) -> Statement:
        return self.shape.statement


def read(source: bytes, path: str) -> tuple[Confined | Suite, str]:
    """The problem and the chip that this prepare.py states.

    Raises RatchetError `bad-prepare`, and `unconfined-prepare` if this Linux kernel cannot confine the child.
    """
    stated = _ask_child(source, path, "prepare", StatedContest)
    if stated.error:
        raise RatchetError("bad-prepare", f"{path}: {stated.error}")
    problems = tuple(Confined(source, path, answered) for answered in stated.problems)
    if stated.may_lose is None:
        return problems[0], stated.chip
    members = tuple(
        Member(name=answered.name, problem=problem, weight=answered.weight, function=answered.function)
        for answered, problem in zip(stated.problems, problems, strict=True)
    )
    return Suite(members=members, may_lose=stated.may_lose), stated.chip


def complaints(source: bytes, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rules that the file's problems break, and the wrong answers that pass. Raises as `read` does."""
    answer = _ask_child(source, path, "complain", Complaints)
    return answer.broken, answer.weak


@contextlib.contextmanager
def space(problem: object, children: Children) -> Iterator[Space]:
    """Yields the Space of a problem's inputs; a child that `children` starts draws the recipes of a confined problem.

    Raises RatchetError `no-space` if the problem has none.
    """
    if isinstance(problem, Space):
        yield problem
    elif isinstance(problem, Confined) and problem.has_space:
        with _asking(problem.source, problem.path, children) as ask:
            yield _Recipes(problem, ask)
    else:
        raise RatchetError(
            "no-space",
            "expected a problem with recipes of inputs (their methods are in docs/OPERATORS.md), got a problem with "
            "input families only",
        )


class _Recipes:
    """The recipes of a confined problem; a child draws each of them."""

    def __init__(self, problem: Confined, ask: "_Ask") -> None:
        self._problem, self._ask = problem, ask
        self._words: dict[str, str] = {}

    def families(self, full: bool) -> tuple[str, ...]:
        return self._problem.families(full)

    def recipe(self, family: str, seed: int) -> str:
        return self._drawn(family, seed)

    def draw_recipe(self, random: np.random.Generator) -> str:
        return self._drawn("", int(random.integers(1 << 31)))

    def mutate_recipe(self, recipe: str, random: np.random.Generator) -> str:
        return self._drawn(recipe, int(random.integers(1 << 31)))

    def recipe_in_words(self, recipe: str) -> str:
        return self._words[recipe]

    def _drawn(self, start: str, seed: int) -> str:
        def asked(source: Asked) -> AskedRecipe:
            return AskedRecipe(asked=source, name=self._problem.name, start=start, seed=seed)

        stated = self._ask("recipe", asked, StatedRecipe)
        self._words[stated.text] = stated.words
        return stated.text


def _ask_child(source: bytes, path: str, task: str, reply_type: type[_Reply]) -> _Reply:
    with Children(_MEMORY_BYTES, reply_bytes=_REPLY_BYTES) as children, _asking(source, path, children) as ask:
        return ask(task, lambda asked: asked, reply_type)


class _Ask(Protocol):
    """A function that asks the child; `argument` makes the task's argument from the file."""

    def __call__(self, task: str, argument: Callable[[Asked], object], reply_type: type[_Reply]) -> _Reply: ...


@contextlib.contextmanager
def _asking(source: bytes, path: str, children: Children) -> Iterator[_Ask]:
    """Yields a function that asks a confined child about the file. Raises RatchetError `unconfined-prepare`."""
    if confinement.isolation(True).landlock is None:
        raise RatchetError(
            "unconfined-prepare",
            f"{path} runs code (docs/OPERATORS.md), which needs Landlock; without it the file would run with your "
            "permissions. State a problem of harness.operators there, or use Linux 5.13 or newer",
        )
    with tempfile.TemporaryDirectory(prefix="ratchet-") as folder:
        written = Path(folder) / "prepare.txt"
        written.write_bytes(source)
        child = children.start("prepare", "harness.prepare.child", Path(folder), environment.on_cpu())

        def ask(task: str, argument: Callable[[Asked], object], reply_type: type[_Reply]) -> _Reply:
            asked = argument(Asked(source=str(written), path=path))
            children.ask(child, "prepare.py", "contract", task, asked, reply_type, _SECONDS)
            _, reply = children.wait()
            if isinstance(reply, Failure):
                raise RatchetError("bad-prepare", f"{path}: {reply.kind}: {reply.message}")
            assert isinstance(reply, reply_type)
            return reply

        yield ask
