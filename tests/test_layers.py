"""Imports go down the table of DESIGN: columns do not import each other, only measure/ imports JAX."""

import ast
from pathlib import Path

import pytest

import harness

PACKAGE = Path(harness.__file__).parent
VOCABULARY = {"records", "hardware", "units", "errors"}
TOOLS = {"tamper", "dumps", "codec", "git", "settings", "files", "diff", "lock", "hlo"}
COLUMNS = {"problems", "measure", "simulate", "judge", "ledger", "render", "profiles", "doctor"}
# Columns that may use another's records or pure functions, with the reason.
ALLOWED = {
    ("measure", "problems"): "a child checks outputs with the problem's own reference",
}
# What uses the columns, and is used by none of them.
UPPER = {"cli", "actions", "ratchet", "evaluation", "opponent", "revoke", "replay", "sweep", "preconditions", "contest"}
JAX_HOMES = {"measure", "templates"}


def modules() -> list[tuple[str, Path]]:
    # Planted candidates are no part of the harness, and some of them are out to break it.
    own = (path for path in sorted(PACKAGE.rglob("*.py")) if "candidates" not in path.parts)
    return [(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path) for path in own]


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} is a relative import"
            assert node.module is not None
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def harness_parts(path: Path) -> set[str]:
    known = {part for part, _ in modules()}
    return {name.split(".")[1] for name in imports(path) if name.startswith("harness.")} & known


def violations(part: str, used: set[str]) -> set[str]:
    if part in VOCABULARY:
        return used - VOCABULARY
    if part in TOOLS:
        return used - VOCABULARY - TOOLS
    if part in COLUMNS:
        others = {other for other in COLUMNS - {part} if (part, other) not in ALLOWED}
        return used & (others | UPPER)
    return set()


@pytest.mark.parametrize(("part", "path"), modules(), ids=lambda value: str(value).removeprefix(str(PACKAGE)))
def test_imports_go_down(part: str, path: Path) -> None:
    assert not violations(part, harness_parts(path)), f"{path.name} imports upwards or sideways"


@pytest.mark.parametrize(("part", "path"), modules(), ids=lambda value: str(value).removeprefix(str(PACKAGE)))
def test_only_measure_imports_jax(part: str, path: Path) -> None:
    uses_jax = any(name == "jax" or name.startswith("jax.") for name in imports(path))
    assert not uses_jax or part in JAX_HOMES


def test_render_is_called_by_the_command_line_only() -> None:
    users = {part for part, path in modules() if "render" in harness_parts(path)} - {"render"}
    assert users == {"cli"}


def test_the_guard_can_fail() -> None:
    assert violations("judge", {"records", "simulate"}) == {"simulate"}
    assert violations("records", {"judge"}) == {"judge"}
    assert violations("simulate", {"ratchet"}) == {"ratchet"}
