"""Every part of the harness has a floor; imports go down, nothing imports in a circle, and the key covers the judge."""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import architecture
import pytest
from rooms import FLOORS, MODULES, PACKAGE, PROJECT, WALLS, imports, module, parsed, part, source_files

from harness.judge import key

# Code that may import JAX: code that runs in children, and the kernels themselves.
JAX_HOMES = ("harness/sandbox", "harness/judge/evaluate", "harness/workbench/capture")


def violations(user: str, used: str) -> str:
    """The fault of an import between parts; empty if there is none."""
    if not used or user == used or not user:
        return ""
    if user not in FLOORS or used not in FLOORS:
        return f"{user if user not in FLOORS else used} has no floor"
    if FLOORS[used] >= FLOORS[user]:
        return f"{user} (floor {FLOORS[user]}) imports {used} (floor {FLOORS[used]})"
    reason = WALLS.get(user, {}).get(used)
    return f"{user} imports {used}, but {reason}" if reason else ""


def test_imports_go_down() -> None:
    faults = [
        f"{name}: {violation}"
        for name, path in MODULES.items()
        if part(name) not in ("judge", "problems", "cli")
        for other in imports(path, set(MODULES))
        if other.startswith("harness.") and (violation := violations(part(name), part(other)))
    ]
    assert faults == []


def test_every_part_has_a_floor_and_every_floor_a_part() -> None:
    assert {part(name) for name in MODULES} - {"", "judge", "problems", "cli"} == set(FLOORS)


def test_the_page_of_the_architecture_has_the_rooms_of_today() -> None:
    page = architecture.PAGE.read_text(encoding="utf-8")
    how = "python tests/support/architecture.py --write"
    assert architecture.with_table(page) == page, how
    assert architecture.drawing() == architecture.DRAWING.read_text(encoding="utf-8"), how


def test_long_signatures_are_found() -> None:
    tree = ast.parse(
        "class A:\n    def f(self, a, b, c, d, e, f, *, g): ...\n    def h(self, a, b, c, d, e, f, g, h): ...\n"
    )
    assert [name for name, _ in architecture.long_signatures({"harness.a": tree})] == ["harness.a.h"]


def test_the_floors_can_be_broken() -> None:
    assert violations("judge.verdict", "ledger") == "judge.verdict (floor 5) imports ledger (floor 8)"
    assert violations("loop", "loop") == ""
    assert violations("workbench", "advice").startswith("workbench (floor 7) imports advice")
    assert violations("workbench", "judge.verdict") == (
        "workbench imports judge.verdict, but it serves people who never run the ratchet"
    )
    assert violations("verbs", "newcomer") == "newcomer has no floor"


@cache
def defined(path: Path) -> frozenset[str]:
    """Functions, classes and variables of a file."""
    nodes = list(ast.walk(parsed(path)))
    named = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return frozenset(named | {node.id for node in nodes if isinstance(node, ast.Name)} | {"__file__"})


def is_there(name: str) -> bool:
    """True if a text names a file, a module, or something that a module defines."""
    if "/" in name:
        return (PROJECT / name).exists()
    if name in MODULES:
        return True
    home, _, last = name.rpartition(".")
    if home not in MODULES:
        return is_there(home)
    return last in defined(MODULES[home])


def test_modules_and_files_that_texts_name_are_there() -> None:
    # No import resolves them: children are started by the names of modules, pages and comments name files.
    files = r"(?:harness|docs|benchmarks)/[\w/.-]+\.(?:py|md|tsv)\b|harness/[\w/]+/(?=`)"
    named = re.compile(rf"(?<![\w./-])(?:harness(?:\.\w+)+|{files})")
    pages = (*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md"), *PROJECT.glob("benchmarks/*.py"))
    importers = {
        f"{path.relative_to(PROJECT)}: {name}": name
        for path in (*source_files(), *pages)
        for name in named.findall(path.read_text(encoding="utf-8"))
    }
    assert len(importers) > 500
    # docs/ADD_AN_OPERATOR.md invents a folder, docs/ADD_A_RULE.md and docs/ADD_A_VERB.md a file each.
    invented = ("harness/operators/activations/", "harness/advice/rules/loads.py", "harness/verbs/tally.py")
    assert [where for where, name in importers.items() if not is_there(name) and not name.startswith(invented)] == []
    assert not is_there("harness.judge.evaluate.timing.timing")
    assert is_there("harness.judge.evaluate.timing.device_timing.measure")


@pytest.mark.parametrize(
    "folder", ["harness", *(pytest.param(name, marks=pytest.mark.long) for name in ("benchmarks", "tests"))]
)
def test_nothing_imports_in_a_circle(folder: str) -> None:
    # A benchmark may have installed packages in its cache.
    others = (path for path in (PROJECT / folder).rglob("*.py") if ".cache" not in path.parts)
    paths = source_files() if folder == "harness" else sorted(others)
    names = {module(path) if folder == "harness" else path.stem: path for path in paths}
    graph = {name: set(imports(path, set(names))) & (set(names) - {name}) for name, path in names.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_only_children_and_kernels_import_jax() -> None:
    users = {
        path.relative_to(PROJECT).as_posix()
        for path in MODULES.values()
        if any(used == "jax" or used.startswith("jax.") for used in imports(path, set(MODULES)))
    }
    assert users
    assert [path for path in sorted(users) if not path.startswith(JAX_HOMES)] == []


def test_render_is_called_by_the_command_line_only() -> None:
    users = {part(name) for name, path in MODULES.items() if "render" in map(part, imports(path, set(MODULES)))}
    assert users - {"render"} == {"shell", "verbs"}


# --- What the key covers -----------------------------------------------------------------------


@pytest.mark.long
def test_the_key_covers_the_judge_and_what_it_stands_on() -> None:
    covered = {path.relative_to(PACKAGE).as_posix() for path in key.judge_files()}
    homes = ("judge", "sandbox")
    judge = {path.relative_to(PACKAGE).as_posix() for home in homes for path in PACKAGE.joinpath(home).rglob("*.py")}
    operators = {
        path.relative_to(PACKAGE).as_posix() for path in source_files() if path.is_relative_to(PACKAGE / "operators")
    }
    assert judge | operators <= covered
    floors = {part(module(PACKAGE / name)) for name in covered}
    below = {room for room, floor in FLOORS.items() if floor < FLOORS["contest"]}
    assert floors == (below - {"reading_limits"}) | {"judge"}


def test_the_judge_is_python_alone() -> None:
    """The key hashes modules: a table beside them would change a verdict and not the key."""
    paths = [path for home in ("judge", "sandbox") for path in (PACKAGE / home).rglob("*")]
    files = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
    assert [path for path in files if path.suffix != ".py"] == []


def test_the_package_itself_holds_the_version_and_nothing_else() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    docstring, version = tree.body
    assert isinstance(docstring, ast.Expr)
    assert isinstance(version, ast.Assign)
    assert ast.unparse(version.targets[0]) == "__version__"


def test_every_entry_point_is_a_module() -> None:
    assert set(key._OF_JUDGE) <= set(MODULES)
