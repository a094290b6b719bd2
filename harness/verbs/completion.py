"""The verb `completion`: print the script by which a shell completes words."""

from argparse import Namespace

from harness.shell.parser import Parser
from harness.shell.verb import Outcome, Verb


class Completion(Verb):
    place = "machine", 20
    line = "print the script by which a shell completes words"
    example = "completion bash"
    description = (
        "Prints a script that a shell evaluates at its start, so that the Tab key completes verbs, options, the "
        "numbers of a contest's attempts and the constants of its kernel.py."
    )
    examples = 'eval "$(ratchet.sh completion bash)"; ratchet.sh completion fish | source'
    takes_contest = False

    def configure(self, parser: Parser) -> None:
        parser.choice("shell", ["bash", "zsh", "fish"], "which shell")

    def run(self, arguments: Namespace) -> Outcome:
        from harness.shell.completion import code

        return Outcome(text=lambda: code(arguments.shell))
