"""What a verb is: what it says about itself, its parser, and the outcome of a run."""

import pkgutil
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from harness.cli.arguments import Parser, add_contest, add_needless_quiet, add_only_reads

GROUPS = {
    "loop": "the loop: change, judge, keep what is faster",
    "look": "look: what happened, and what to try next",
    "profile": "profile: where the time goes",
    "machine": "machine: programs, tests and the ratchet itself",
}
EXIT_CODES = (
    "exit codes: 0 accepted or fine, 1 rejected or failed, 2 usage, 3 inconclusive, 4 known error, 5 bug, "
    "130 interrupted"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run gave: the verb's record (None where it has no --json), the same as text, and the exit code.

    `text` is rendered only where it is printed. `messages` are for stderr, after the text. `afterwards` is work that
    nobody waits for: it is done when everything is printed, and what it returns is said on stderr.
    """

    text: Callable[[], str]
    document: object | None = None
    exit_code: int = 0
    messages: tuple[str, ...] = ()
    afterwards: Callable[[], Sequence[str]] = tuple


class Verb:
    """One verb. Its class imports nothing heavy, so that --help is quick; `run` imports what `does` names.

    `line` is its line of the overview, `example` what follows `ratchet.sh` there; --help ends with `examples`, where
    they are not the same. `is_watched` says that it works on files that anyone may have written, for as long as they
    make it: see harness.cli.watch. `shows_texts` says that files are part of what it prints, to be copied as they are.
    """

    name: ClassVar[str]
    group: ClassVar[str]
    line: ClassVar[str]
    example: ClassVar[str]
    description: ClassVar[str]
    examples: ClassVar[str] = ""
    takes_contest: ClassVar[bool] = True
    is_watched: ClassVar[bool] = False
    shows_texts: ClassVar[bool] = False
    takes_quiet: ClassVar[bool] = True
    does: ClassVar[str]

    def run(self, given: Namespace) -> Outcome:
        """Does it. Raises RatchetError."""
        outcome: Outcome = pkgutil.resolve_name(self.does)(given)
        return outcome

    def configure(self, parser: Parser) -> None:
        """Adds its own arguments; none unless it says so."""

    def parser(self) -> Parser:
        """What it understands."""
        parser = Parser(
            prog=f"ratchet.sh {self.name}",
            description=self.description,
            epilog=f"example: {self.examples or f'ratchet.sh {self.example}'}",
            allow_abbrev=False,
        )
        if self.takes_contest:
            add_contest(parser)
        add_only_reads(parser)
        parser.set_defaults(json=False)
        self.configure(parser)
        if self.takes_quiet:
            add_needless_quiet(parser)
        return parser

    def parse(self, words: Sequence[str]) -> Namespace:
        """The words after the verb, understood. Raises UsageError with the verb's usage."""
        return self.parser().parse_args(words)

    def usage(self, given: Namespace) -> str:
        """The usage to show where what was parsed as `given` turns out to be wrong."""
        return self.parser().format_usage().strip()

    def parsers(self) -> Iterator[tuple[str, Parser]]:
        """Its name and parser; then those of its subcommands."""
        yield self.name, self.parser()
