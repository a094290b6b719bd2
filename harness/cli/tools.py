"""The verbs beside the loop: simulate any dump, run the project's tests."""

import subprocess
import sys

from harness.cli.arguments import Parser
from harness.cli.simulate import simulate as run_simulator
from harness.contest import PACKAGE
from harness.errors import UsageError


def simulate(words: list[str]) -> int:
    parser = Parser(
        prog="ratchet.sh simulate",
        description="Executes the schedules in any directory of compiler dumps and prints the time.",
        epilog="example: ratchet.sh simulate dumps --chip v6e",
        allow_abbrev=False,
    )
    if "-C" in words:
        raise UsageError("usage", "simulate takes a directory of compiler dumps and no contest: leave -C out")
    return run_simulator(words, parser)


def test(words: list[str]) -> int:
    parser = Parser(
        prog="ratchet.sh test",
        description="Runs the project's tests; every option is pytest's.",
        epilog="example: ratchet.sh test -k settings",
        allow_abbrev=False,
    )
    _, options = parser.parse_known_args(words)
    return subprocess.call([sys.executable, "-m", "pytest", *options], cwd=PACKAGE.parent)
