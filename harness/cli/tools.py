"""What `test` does: it runs the project's tests."""

import subprocess
import sys
from argparse import Namespace

from harness.cli.verb import Outcome
from harness.contest import PACKAGE


def test(given: Namespace) -> Outcome:
    code = subprocess.call([sys.executable, "-m", "pytest", *given.options], cwd=PACKAGE.parent)
    return Outcome(text=lambda: "", exit_code=code)
