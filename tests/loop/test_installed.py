"""Evidence about a kernel of a package counts only for the package that was judged; other installed files are named."""

import hashlib
import importlib.metadata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_examples import evidence
from narrowing import present

from harness.loop.attempt import on_packages
from harness.loop.installed import is_unchanged
from harness.records import Evidence, Imported, SourceFile

VERSION = importlib.metadata.version("numpy")
FILE = Path(np.__file__)
DIGEST = hashlib.sha256(FILE.read_bytes()).hexdigest()


def tracing(**changes: Any) -> Evidence:
    made = evidence()
    return replace(made, trace=replace(present(made.trace), **changes))


def importing(*, name: str = "numpy", version: str = VERSION, digest: str = DIGEST) -> Evidence:
    """Evidence of a kernel that imports this package, with operations from numpy/__init__.py."""
    package = Imported(name=name, version=version, files=1, sha256="0" * 64)
    return tracing(imported=(package,), sources=(SourceFile(name="numpy/__init__.py", sha256=digest),))


def importing_files(**hashes: str) -> Evidence:
    """Evidence of a kernel that imports packages with these hashes of their files."""
    return tracing(imported=tuple(Imported(name=name, version="1", files=2, sha256=hashes[name]) for name in hashes))


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


def test_a_package_with_other_files_than_the_champion_was_judged_with_is_named() -> None:
    (sentence,) = on_packages(importing_files(tiles="a", maths="b"), importing_files(tiles="c", maths="b"))
    assert sentence.startswith("tiles, which kernel.py imports, changed after the champion was judged")
    assert "copy the edited file into the folder of kernel.py" in sentence


def test_nothing_is_said_of_packages_that_are_as_they_were_or_that_one_of_both_imports() -> None:
    assert on_packages(importing_files(tiles="a"), importing_files(tiles="a")) == ()
    assert on_packages(importing_files(tiles="a"), importing_files(maths="b")) == ()
    assert on_packages(replace(evidence(), trace=None), importing_files(tiles="a")) == ()
