"""The verb `help`: print the options of a verb, or of all verbs as a page."""

from argparse import Namespace

from harness.shell import help_page
from harness.shell.parser import Parser
from harness.shell.verb import Outcome, Verb


class Help(Verb):
    place = "machine", 30
    line = "print the options of a verb, or of all verbs as a page"
    example = "help --markdown"
    description = "Prints the help of a verb; without a verb, the list of verbs."
    examples = "ratchet.sh help sweep"
    takes_contest = False

    def configure(self, parser: Parser) -> None:
        parser.word("verb", "a verb; `experiment` for the options of an attempt", metavar="VERB")
        parser.flag("--markdown", "print the page docs/COMMANDS.md")

    def run(self, arguments: Namespace) -> Outcome:
        parser = help_page.parser_named(arguments.verb) if arguments.verb is not None else None
        if arguments.markdown:
            return Outcome(text=help_page.page)
        return Outcome(text=lambda: (parser.format_help() if parser else help_page.overview()).rstrip("\n"))
