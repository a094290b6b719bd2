"""What `test` does: it runs the project's tests."""

import importlib.util
import subprocess
import sys
from argparse import Namespace

from harness.cli.verb import Outcome
from harness.contest import PACKAGE
from harness.errors import RatchetError


def test(given: Namespace) -> Outcome:
    """Runs pytest. Raises RatchetError `no-tests` in an installed package, `no-pytest` without what tests need."""
    if not (PACKAGE.parent / "tests").is_dir():
        raise RatchetError("no-tests", "the installed package has no tests; they run in a clone: ./ratchet.sh test")
    if importlib.util.find_spec("pytest") is None:
        raise RatchetError("no-pytest", "expected pytest, found none: ./ratchet.sh test installs what the tests need")
    quick = ("--quick", "-m", "not slow and not long") if given.quick else ()
    code = subprocess.call([sys.executable, "-m", "pytest", *quick, *given.options], cwd=PACKAGE.parent)
    return Outcome(text=lambda: "", exit_code=code)
