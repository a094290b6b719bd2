"""A copy of the harness for tests that change it, with its bytecode."""

import shutil
from pathlib import Path

from rooms import PACKAGE


def copy_harness(folder: Path, *left_out: str) -> Path:
    """The package `harness` in `folder`, without what `left_out` names (files, folders); git ignores its bytecode.

    Bytecode stays with a module for as long as the size and the second of its source are the same. Processes that tests
    start write none: each process of a copy without it would compile the harness again.
    """
    package = folder / "harness"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns(*left_out))
    (package / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    return package
