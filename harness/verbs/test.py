"""The verb `test`: run the project's tests."""

from argparse import Namespace
from collections.abc import Sequence

from harness.shell.parser import Parser
from harness.shell.verb import Outcome, Verb


class Test(Verb):
    place = "machine", 140
    line = "run the project's tests"
    description = (
        "Runs the project's tests; options other than those below go to pytest. `-m device` runs the tests that need a "
        "TPU; `-m device --on cpu` runs those that a CPU can run too."
    )
    examples = "ratchet.sh test -k settings"
    takes_contest = False
    # --quiet is passed on to pytest.
    takes_quiet = False

    def configure(self, parser: Parser) -> None:
        parser.flag("--quick", "only the shorter tests (one to two minutes on two idle cores)")

    def parse(self, words: Sequence[str]) -> Namespace:
        arguments, options = self.parser().parse_known_args(words)
        return Namespace(quick=arguments.quick, options=options)

    def run(self, arguments: Namespace) -> Outcome:
        from harness.verbs.parts import project_tests

        quick = ("--quick", "-m", "not slow and not long and not device") if arguments.quick else ()
        # Tests use one device one after the other, so a second process would not make them faster.
        alone = ("-n", "0") if "device" in arguments.options and "-n" not in arguments.options else ()
        return Outcome(exit_code=project_tests.run([*quick, *alone, *arguments.options]))
