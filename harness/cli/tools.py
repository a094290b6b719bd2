"""The verbs beside the loop: simulate any dump, run the project's tests."""

import subprocess
import sys

from harness.contest import PACKAGE
from harness.simulate.__main__ import simulate as run_simulator


def simulate(words: list[str]) -> int:
    return run_simulator(words)


def test(words: list[str]) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *words], cwd=PACKAGE.parent)
