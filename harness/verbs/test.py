"""The verb `test`: run the project's tests."""

import importlib.util
import sys
from argparse import Namespace
from collections.abc import Sequence

from harness.errors import RatchetError
from harness.shell.parser import Parser
from harness.shell.verb import Outcome, Verb


class Test(Verb):
    place = "machine", 140
    line = "run the project's tests"
    description = "Runs the project's tests; every other option is pytest's."
    examples = "ratchet.sh test -k settings"
    takes_contest = False
    # It is pytest's.
    takes_quiet = False

    def configure(self, parser: Parser) -> None:
        parser.flag("--quick", "only the shorter tests (a minute on two idle cores)")

    def parse(self, words: Sequence[str]) -> Namespace:
        given, options = self.parser().parse_known_args(words)
        return Namespace(quick=given.quick, options=options)

    def run(self, given: Namespace) -> Outcome:
        import subprocess

        from harness.contest import PACKAGE

        if not (PACKAGE.parent / "tests").is_dir():
            raise RatchetError("no-tests", "the installed package has no tests; they run in a clone: ./ratchet.sh test")
        if importlib.util.find_spec("pytest") is None:
            raise RatchetError(
                "no-pytest", "expected pytest, found none: ./ratchet.sh test installs what the tests need"
            )
        quick = ("--quick", "-m", "not slow and not long") if given.quick else ()
        code = subprocess.call([sys.executable, "-m", "pytest", *quick, *given.options], cwd=PACKAGE.parent)
        return Outcome(exit_code=code)
