"""Names of Pallas that some releases of JAX have and others lack: the releases, and the code to write instead.

The rows come from the packages jax 0.7.0, 0.8.0, 0.9.0, 0.10.0, 0.10.2 and 0.12.0.1: from the names that
jax/experimental/pallas/__init__.py and tpu.py define, and from their tables of deprecations.
tests/advice/test_jax_names.py compares the rows with the JAX that is installed.
"""

import ast
import difflib
import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

PALLAS, TPU = "jax.experimental.pallas", "jax.experimental.pallas.tpu"
# The version of JAX in requirements.lock, for each version of Python.
SUPPORTED = {"3.11": "0.10.2", "3.12": "0.12.0.1"}
# The minimum similarity of a suggested name: that of a name with one letter or underscore too few or too many.
# `gpu` and `tpu` are less similar.
_NEAR = 0.75
_LACKS = re.compile(
    r"module '(?P<module>jax(?:\.\w+)*)' has no attribute '(?P<name>\w+)'"
    r"|cannot import name '(?P<name_>\w+)' from '(?P<module_>jax(?:\.\w+)*)'"
    r"|No module named '(?P<module__>jax(?:\.\w+)*)'"
)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one module that JAX has from release `first` (None: before 0.7.0) to release `last` (None: until now).

    `gone` is the nearest release without the names, among the releases that were read. `instead` is the code to write
    instead of a name. In this text, `{name}` stands for the name, and `{bare}` for the name without `TPU`.
    """

    module: str
    names: tuple[str, ...]
    first: str | None
    last: str | None
    gone: str
    instead: str = ""


NAMES = (
    Names(TPU, ("TPUCompilerParams", "TPUMemorySpace"), None, "0.7.0", "0.8.0", "pltpu.{bare}"),
    Names(TPU, ("delay", "ANY"), None, "0.9.0", "0.10.0", "pl.{name}"),
    Names(TPU, ("repeat",), None, "0.10.0", "0.10.2", "jnp.tile, which takes the repeats of every axis"),
    Names(TPU, ("KernelType",), None, "0.10.0", "0.10.2", "pltpu.CoreType"),
    Names(
        TPU,
        ("HOST", "DeviceIdType", "semaphore", "semaphore_read", "semaphore_signal", "semaphore_wait"),
        None,
        "0.10.2",
        "0.12.0",
        "pl.{name}",
    ),
    Names(
        TPU,
        ("TensorCoreMesh", "reciprocal", "annotate", "split_bits", "join_bits", "emit_pipeline_with_async_prefetch"),
        "0.12.0",
        None,
        "0.10.2",
    ),
    Names(PALLAS, ("load",), None, "0.8.0", "0.9.0", "ref[index], or pltpu.load"),
    Names(PALLAS, ("store", "swap"), None, "0.8.0", "0.9.0", "ref[index] = value, or pltpu.store"),
    Names(
        PALLAS,
        tuple(f"atomic_{name}" for name in ("add", "and", "cas", "max", "min", "or", "xchg", "xor")),
        None,
        "0.8.0",
        "0.9.0",
        "jax.experimental.pallas.triton, for GPUs",
    ),
    Names(PALLAS, ("debug_checks_enabled",), None, "0.10.2", "0.12.0", "pl.enable_debug_checks.value"),
    Names(PALLAS, ("dot",), None, "0.10.2", "0.12.0", "jnp.dot"),
)


def lacks(message: str) -> bool:
    """True if a failure's message says that JAX has no such module or name."""
    return _LACKS.search(message) is not None


def remedy(message: str, here: str = "") -> str:
    """The advice on a name that jax `here` (default: the installed release) lacks: code to write, or releases to use.

    If no row has the name, the advice is the most similar name of its module, or other releases if none is similar. The
    advice is "" for any other message.
    """
    match = _LACKS.search(message)
    if match is None:
        return ""
    here = here or importlib.metadata.version("jax")
    module = next(filter(None, (match["module"], match["module_"], match["module__"])))
    name = match["name"] or match["name_"] or ""
    row = next((row for row in NAMES if row.module == module and name in row.names), None)
    shown = f"{module}.{name}" if name else module
    if row is None:
        parent, _, last = shown.rpartition(".")
        near = difflib.get_close_matches(last, sorted(_names_in(parent)), 1, _NEAR) if parent else []
        if near:
            return f"jax {here} has no {shown}; did you mean {parent}.{near[0]}?"
        others = [f"jax {version} (--python {python})" for python, version in SUPPORTED.items() if version != here]
        return f"jax {here} has no {shown}; try {' and '.join(others)}, or use only names that jax {here} has"
    releases = f"up to {row.last}, not from {row.gone} on" if row.last else f"from {row.first} on, not in {row.gone}"
    instead = row.instead.format(name=name, bare=name.removeprefix("TPU"))
    having = [python for python, version in SUPPORTED.items() if has(row, version) and version != here]
    ways = [f"write {instead}"] if instead else []
    ways += [f"judge the kernel with jax {SUPPORTED[python]} (--python {python})" for python in having]
    neither = "" if having else f"; no JAX that is supported here has it ({', '.join(SUPPORTED.values())})"
    return f"JAX has {shown} {releases}{neither}: {', or '.join(ways)}"


def has(row: Names, version: str) -> bool:
    """True if the release `version` of JAX has the names of a row."""
    number = _numbers(version)
    return (row.last is None or number < _numbers(row.gone)) and (row.first is None or number >= _numbers(row.first))


def _names_in(module: str) -> Iterator[str]:
    """The public names of a module of the installed JAX and its submodules, read from files: nothing is imported."""
    top, *parts = module.split(".")
    spec = PathFinder.find_spec(top)
    for home in spec.submodule_search_locations or () if spec is not None else ():
        place = Path(home, *parts)
        names = [path.stem for path in place.iterdir()] if place.is_dir() else []
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                names += _bound(ast.parse(file.read_bytes()))
        yield from (name for name in names if not name.startswith("_"))


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a module's text binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
