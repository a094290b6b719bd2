"""The rooms of the harness: floors, walls with their reasons, and the imports between them, read off the source."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import harness

PACKAGE = Path(harness.__file__).parent
PROJECT = PACKAGE.parent
# From the ground up. A part may import itself and the parts below it.
FLOORS = {
    "errors": 0,
    "tracebacks": 0,
    "units": 0,
    "chips": 0,
    "hardware": 1,
    "files": 1,
    "reading_limits": 1,
    "candidate": 2,
    "hlo": 2,
    "records": 2,
    "dumps": 3,
    "operators": 3,
    "sandbox": 4,
    "judge.simulate": 4,
    "judge.evaluate": 5,
    "judge.verdict": 5,
    "judge.key": 6,
    "prepare": 6,
    "contest": 7,
    "advice": 7,
    "workbench": 7,
    "render": 8,
    "ledger": 8,
    "loop": 9,
    "selftest": 10,
    "shell": 11,
    "verbs": 12,
    "__main__": 13,
}
# Walls within the floors: lower parts that a part may not import, with the reason.
WALLS = {
    "workbench": {
        **dict.fromkeys(
            ("advice", "judge.verdict", "judge.evaluate", "judge.key"), "it serves people who never run the ratchet"
        ),
        "judge.simulate": "it shows what a profiler saw",
    },
    "render": dict.fromkeys(
        ("dumps", "operators", "sandbox", *(f"judge.{room}" for room in ("simulate", "evaluate", "verdict", "key"))),
        "it turns records into text",
    ),
    "judge.verdict": {"sandbox": "it decides from records alone", "dumps": "it decides from records alone"},
    "operators": {"dumps": "a problem knows no compiler"},
}
# Texts of kernels import nothing of the house; `problems` is the former name of the operators, `cli` that of the shell.
_NO_ROOMS = ("", "judge", "problems", "cli", "__main__")


def source_files() -> list[Path]:
    """The modules of the harness. Planted candidates and templates are left out, because they are kernels."""
    kernels = {"candidates", "templates", "existing"}
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not kernels & set(path.parts)]


def module(path: Path) -> str:
    """`harness.loop.sweep` of `harness/loop/sweep.py`."""
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part(name: str) -> str:
    """`judge.evaluate` of `harness.judge.evaluate.walk`, `loop` of `harness.loop.sweep`; "" of the package itself."""
    _, *rest = name.split(".")
    return ".".join(rest[:2] if rest[:1] == ["judge"] else rest[:1])


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file, cached because most files are looked at several times."""
    return ast.parse(path.read_text(encoding="utf-8"))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements at any depth. Expressions, nine tenths of a tree, are skipped: they hold no import."""
    for statement in body:
        yield statement
        for part_of_it in ast.iter_child_nodes(statement):
            if isinstance(part_of_it, ast.stmt):
                yield from _statements([part_of_it])
            elif isinstance(part_of_it, (ast.ExceptHandler, ast.match_case)):
                yield from _statements(part_of_it.body)


@cache
def imported(path: Path) -> tuple[tuple[str, str], ...]:
    """Modules that the file imports, each with the name taken from it ("": the module itself)."""
    names: list[tuple[str, str]] = []
    for node in _statements(parsed(path).body):
        if isinstance(node, ast.Import):
            names += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} is a relative import"
            assert node.module is not None
            names += [(node.module, alias.name) for alias in node.names]
    return tuple(names)


def imports(path: Path, modules: set[str]) -> Iterator[str]:
    """The modules that the file imports; a name taken from a package is a module where `known` has it."""
    for home, name in imported(path):
        whole = f"{home}.{name}"
        yield whole if whole in modules else home


MODULES = {module(path): path for path in source_files()}


def rooms() -> tuple[str, ...]:
    """The rooms by floor: folders, the judge's by themselves, and loose files."""
    parts = {part(name) for name in MODULES} - set(_NO_ROOMS)
    return tuple(sorted(parts, key=lambda room: (FLOORS.get(room, 0), room)))


def arrows() -> frozenset[tuple[str, str]]:
    """Pairs of rooms of which the first imports the second."""
    pairs = {(part(name), part(used)) for name, path in MODULES.items() for used in imports(path, set(MODULES))}
    inside = set(rooms())
    return frozenset((user, used) for user, used in pairs if user != used and {user, used} <= inside)


def purpose(room: str) -> str:
    """The first sentence of a room's docstring."""
    home = MODULES[f"harness.{room}"]
    text = ast.get_docstring(parsed(home))
    assert text, f"{home} has no docstring"
    return text.partition("\n")[0]
