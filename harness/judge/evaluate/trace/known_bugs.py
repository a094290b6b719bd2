"""Bugs of some versions of JAX that affect kernels. Under these versions, an affected kernel is not judged."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.sandbox.messages import Rejected

_NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A bug of the versions `first` to `last` (inclusive). The source of an affected kernel contains the name `word`.

    `issue` is the address of a description, and `instead` a way to avoid the bug.
    """

    first: tuple[int, int, int]
    last: tuple[int, int, int]
    what: str
    word: str
    issue: str
    instead: str


KNOWN_BUGS = (
    Bug(
        first=(0, 11, 0),
        last=(0, 11, 2),
        what=(
            "pl.num_programs returns the grid size of an earlier trace of the same function: a kernel that is called "
            "with two grids, or traced at a second shape, gets a wrong size"
        ),
        # In the trace the grid's size is a plain number; only the source shows that the kernel asks for it.
        word="num_programs",
        issue="https://github.com/jax-ml/jax/issues/40847",
        instead="pass the number of steps to the kernel with functools.partial",
    ),
)


def refuse(sources: Iterable[bytes], version: str) -> None:
    """Raises Rejected `known-jax-bug` if a bug of this version of JAX affects the kernel.

    A version that cannot be parsed is treated as free of bugs, because all known bugs are in released versions.
    """
    numbers = _NUMBERS.match(version)
    if numbers is None:
        return
    here = (int(numbers[1]), int(numbers[2]), int(numbers[3]))
    trees = [ast.parse(source) for source in sources]
    for bug in KNOWN_BUGS:
        if bug.first <= here <= bug.last and any(_names(tree, bug.word) for tree in trees):
            versions = " to ".join(".".join(map(str, end)) for end in (bug.first, bug.last))
            message = (
                f"expected a kernel that no known bug of jax {version} affects, got one with this bug: {bug.what} "
                f"({bug.issue}, jax {versions}); {bug.instead}, or judge the kernel with another version"
            )
            raise Rejected("static", "known-jax-bug", message)


def _names(tree: ast.AST, word: str) -> bool:
    """True if a source names `word` as an attribute, a variable or an import, or in a text."""
    return any(
        word in (getattr(node, "attr", None), getattr(node, "id", None), getattr(node, "name", None))
        or (isinstance(node, ast.Constant) and node.value == word)
        for node in ast.walk(tree)
    )
