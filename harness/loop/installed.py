"""Checks that the installed packages that a judged kernel imports have not changed since."""

import hashlib
import importlib.metadata
import importlib.util
import sysconfig
from contextlib import suppress
from pathlib import Path

from harness.candidate import read_file
from harness.records import Evidence, Imported, SourceFile
from harness.sandbox.editable import editable_roots


def is_unchanged(evidence: Evidence) -> bool:
    """True if every package that the kernel imported is still the one that was judged.

    Each package must have the recorded version and must not be an editable installation. Each source file of an
    operation must have the recorded hash. Nothing is imported.
    """
    trace = evidence.trace
    return trace is None or (all(map(_is_package, trace.imported)) and all(map(_is_file, trace.sources)))


def _is_package(recorded: Imported) -> bool:
    version = ""
    with suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version(recorded.name)
    try:
        spec = importlib.util.find_spec(recorded.name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    is_edited = any(Path(place).resolve().is_relative_to(root) for root in editable_roots() for place in places)
    return version == recorded.version and not is_edited


def _is_file(recorded: SourceFile) -> bool:
    homes = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    files = (read_file(home / recorded.name) for home in homes)
    return any(data is not None and hashlib.sha256(data).hexdigest() == recorded.sha256 for data in files)
