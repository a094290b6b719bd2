"""Names without meaning and docstrings without a subject: no file of harness, tests and benchmarks has them.

A local called `found` says that something was found; what it is, a reader has to remember. A docstring that begins with
"What ..." is a relative clause in place of a noun: it begins with the thing returned ("True if ..." of a statement).
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NO_NAMES = frozenset(
    {"found", "given", "held", "known", "lost", "one", "own", "said", "sighted", "taken", "told", "tried"}
)
NO_BEGINNINGS = ("What ", "Whether ", "Which ", "Where ", "Who ")
# Fields of records and of documents of --json keep their names, by the file that defines them.
FIELDS = {
    "benchmarks/peers_entries.py": {"tried"},
    "harness/loop/attack.py": {"found"},
    "harness/loop/tuning_table/row.py": {"tried"},
    "harness/records/attack.py": {"said", "tried"},
    "harness/records/revocation.py": {"tried"},
    "harness/records/search_state.py": {"tried"},
    "harness/records/validation.py": {"found"},
    "harness/verbs/revoke.py": {"tried"},
    "harness/verbs/selftest.py": {"tried"},
}
# Files below these folders are kernels, or somebody else's text.
_NOT_OURS = ("candidates", "templates", "existing", "fixtures")


def _files(folder: Path) -> Iterator[Path]:
    for top in ("harness", "tests", "benchmarks"):
        for path in (folder / top).rglob("*.py"):
            if not set(_NOT_OURS) & set(path.relative_to(folder).parts):
                yield path


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


# The field with the name, by kind of node; names and attributes count where they are assigned.
_NAMED_BY: dict[type[ast.AST], str] = {ast.Name: "id", ast.arg: "arg", ast.FunctionDef: "name", ast.Attribute: "attr"}
_STORE = ast.Store()


def no_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each local, argument, attribute and function whose name names nothing."""
    for node in ast.walk(tree):
        name = getattr(node, _NAMED_BY.get(type(node), ""), "")
        if name.lstrip("_") in NO_NAMES and isinstance(getattr(node, "ctx", _STORE), ast.Store):
            yield getattr(node, "lineno", 1), name


def subjectless(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and first words of each docstring that begins with a relative clause."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node) or ""
            if text.startswith(NO_BEGINNINGS):
                yield getattr(node, "lineno", 1), text[:40]


FAULTS = {"names": no_names, "docstrings": subjectless}


@pytest.mark.long
@pytest.mark.parametrize("kind", FAULTS)
def test_every_name_and_docstring_says_what_it_is(kind: str) -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted(_files(ROOT))
        for line, text in FAULTS[kind](_tree(path))
        if text not in FIELDS.get(path.relative_to(ROOT).as_posix(), ())
    ]
    assert not faults, "name the thing, or begin with what is returned:\n" + "\n".join(faults)


def test_both_are_seen() -> None:
    text = "class Rule:\n    told: int\n\ndef lost(given):\n    'What is lost.'\n    self.own = lambda one: one\n"
    assert [name for _, name in no_names(ast.parse(text))] == ["lost", "told", "given", "own", "one"]
    assert [words for _, words in subjectless(ast.parse(text))] == ["What is lost."]
