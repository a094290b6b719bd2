"""Evidence about a kernel of a package counts only for the package that was judged."""

import hashlib
import importlib.metadata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evidence_examples import evidence

from harness.loop.installed import is_unchanged
from harness.records import Evidence, Imported, SourceFile

VERSION = importlib.metadata.version("numpy")
FILE = Path(np.__file__)
DIGEST = hashlib.sha256(FILE.read_bytes()).hexdigest()


def importing(*, name: str = "numpy", version: str = VERSION, digest: str = DIGEST) -> Evidence:
    """Evidence of a kernel that imports this package, with operations from numpy/__init__.py."""
    made = evidence()
    assert made.trace is not None
    package = Imported(name=name, version=version, files=1, sha256="0" * 64)
    source = SourceFile(name="numpy/__init__.py", sha256=digest)
    return replace(made, trace=replace(made.trace, imported=(package,), sources=(source,)))


def test_evidence_counts_for_the_package_that_was_judged() -> None:
    assert is_unchanged(importing())
    assert is_unchanged(evidence())
    assert is_unchanged(replace(evidence(), trace=None))


@pytest.mark.parametrize(
    "other",
    [
        importing(version="0.1"),
        importing(digest="0" * 64),
        importing(name="no_such_package"),
        importing(name="not.a name"),
    ],
    ids=["version", "file", "removed", "no name"],
)
def test_evidence_does_not_count_for_another_package(other: Evidence) -> None:
    assert not is_unchanged(other)


def test_evidence_does_not_count_for_a_package_that_is_installed_for_editing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.loop.installed.editable_roots", lambda: (FILE.resolve().parent,))
    assert not is_unchanged(importing())
