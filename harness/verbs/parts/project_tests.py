"""The project's own tests, which are in a clone but not in a package."""

import importlib.util
import subprocess
import sys
from typing import IO

from harness.contest import PACKAGE
from harness.errors import RatchetError


def run(options: list[str], output: IO[bytes] | int | None = None) -> int:
    """Runs pytest on the project's tests, with output to a stream (default: stdout); returns pytest's exit code.

    Raises RatchetError `no-tests` outside a clone, and `no-pytest`.
    """
    if not (PACKAGE.parent / "tests").is_dir():
        raise RatchetError("no-tests", "the installed package has no tests; they run in a clone: ./ratchet.sh test")
    if importlib.util.find_spec("pytest") is None:
        raise RatchetError("no-pytest", "expected pytest, found none: ./ratchet.sh test installs what the tests need")
    return subprocess.call([sys.executable, "-m", "pytest", *options], cwd=PACKAGE.parent, stdout=output)
