"""A candidate's use of installed packages: their versions, their files, and the source lines of its operations."""

import hashlib
import importlib.metadata
import itertools
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from jax._src import source_info_util

from harness.judge.evaluate.trace.jaxprs import Equation, Jaxpr, equations, frames, is_own, line_of
from harness.records import Imported, SourceFile
from harness.sandbox.editable import editable_roots

# Kernels that come with JAX. All other modules of JAX are tools of the judge, and their version is in the key.
_KERNELS_OF_JAX = "jax.experimental.pallas.ops"
# The most files that are recorded. No known published kernel has operations from more files.
_MOST_SOURCES = 32
# Computed before kernel.py runs, because kernel.py could change the results of sysconfig.
_HOMES = tuple(
    dict.fromkeys((*(Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")), *editable_roots()))
)


def loaded() -> frozenset[str]:
    """The names of the packages that this process has imported, in whole or in part."""
    return frozenset(name.partition(".")[0] for name in list(sys.modules))


def imported(before: frozenset[str]) -> tuple[Imported, ...]:
    """The packages that were imported since `before`, and JAX's kernels if they are imported, by name.

    Each package has one hash over the names and contents of its imported files.
    """
    files: dict[str, dict[str, str]] = {}
    for name, module in sorted(sys.modules.items()):
        top = name.partition(".")[0]
        is_new = top not in before or name.startswith(_KERNELS_OF_JAX)
        if is_new and (path := _installed(getattr(module, "__file__", None))) is not None:
            files.setdefault(top, {})[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return tuple(
        Imported(
            name=top,
            version=_version(top),
            files=len(digests),
            sha256=hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest(),
        )
        for top, digests in files.items()
    )


def sources(jaxpr: Jaxpr) -> tuple[SourceFile, ...]:
    """The files of installed packages that define operations of the program, by path below site-packages."""
    files = {file for equation in equations(jaxpr) for file, _ in frames(equation)}
    source_files: dict[str, SourceFile] = {}
    for file in sorted(file for file in files if "/" in file and source_info_util.is_user_filename(file)):
        if (path := _installed(file)) is not None:
            name = _below_home(path)
            source_files[name] = SourceFile(name=name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    return tuple(source_files.values())[:_MOST_SOURCES]


def digested(program: str, packages: Iterable[Imported]) -> str:
    """The fingerprint of a candidate: a hash of its `program`, and of the `packages` that it imports, if any."""
    hashes = [package.sha256 for package in packages]
    return hashlib.sha256(" ".join((program, *hashes)).encode()).hexdigest() if hashes else program


def place(places: Iterable[tuple[str, int]]) -> str:
    """The first place (file, line) in an installed package, as `tokamax/flash.py line 12`; "" if there is none.

    JAX's modules are skipped, because their messages concern their callers. JAX's kernels are not skipped.
    """
    for file, line in places:
        path = _installed(file) if source_info_util.is_user_filename(file) else None
        if path is not None:
            return f"{_below_home(path)} line {line}"
    return ""


def place_of(equation: Equation) -> str:
    """The known source lines of the equation, as `kernel.py line 12, in tokamax/flash.py line 34: `."""
    within = place(itertools.takewhile(lambda frame: not is_own(frame[0]), frames(equation)))
    own_line = line_of(equation)
    return f"{own_line.removesuffix(': ')}{', in ' * bool(own_line)}{within}: " if within else own_line


def _below_home(path: Path) -> str:
    return next(path.relative_to(home).as_posix() for home in _HOMES if path.is_relative_to(home))


def _installed(file: object) -> Path | None:
    """The path of a Python file of an installed package, None for any other file."""
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    path = Path(file).resolve()
    return path if path.is_file() and any(path.is_relative_to(home) for home in _HOMES) else None


def _version(top: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(top)
    return ""
