"""A verb: its description, its parser, the document that it prints, and the outcome of a run."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Literal

from harness.shell.parser import Parser

if TYPE_CHECKING:
    from harness.render.sections import Block

GROUPS = {
    "loop": "the loop: change, judge, keep what is faster",
    "look": "look: what happened, and what to try next",
    "profile": "profile: where the time goes",
    "machine": "machine: programs, tests and the ratchet itself",
}
# The verb that is not typed: a message that begins with its name and a colon is typed in its place.
MESSAGE = "experiment"

# The effect of a verb on files, for programs that call it. `repairs`: the verb only reads, but first finishes or undoes
# an interrupted attempt. `overwrites`: the text of kernel.py is replaced.
Effect = Literal["reads", "repairs", "writes", "overwrites"]


@dataclass(frozen=True, slots=True)
class Document:
    """The form of a verb's --json: its record, and its version, which documents carry as `schema`.

    The version increases if a key is removed or changes its meaning, but not for a new key. tests/fixtures/schemas has
    the saved forms.
    """

    version: int
    record: type


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run: the verb's record (None if it has no --json), its text for people, and the exit code.

    - `text`: it is rendered only if it is printed; blocks are laid out for the terminal.
    - `messages`: sentences for stderr, printed after the text.
    - `afterwards`: work that runs after everything is printed. The sentences that it returns go to stderr.
    """

    text: "Callable[[], str | Iterable[Block]]" = str
    document: object | None = None
    exit_code: int = 0
    messages: tuple[str, ...] = ()
    afterwards: Callable[[], Sequence[str]] = tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A verb or a subcommand as programs call it: the tool's name, the words after the verb, the parser."""

    tool: str
    words: tuple[str, ...]
    parser: Parser


class Verb:
    """One verb: the only class of a file in harness/verbs, with the file's name.

    The file imports nothing heavy, so that --help is quick. The method `run` imports the rest, or the work is done by
    the function `run` of a module of the same name in harness/verbs/parts.

    - `line`: the verb's line in the overview. `place`: the line's group, and its position in this group.
    - `example`: the command line after `ratchet.sh` in the overview, by default only the name. `examples`: the text at
      the end of --help, by default `example`.
    - `is_watched`: the verb reads files that anyone may have written, so its time and memory are limited
      (harness.shell.watch).
    - `shows_texts`: the output contains the text of files, so `ratchet.sh` in it is not replaced by the command that
      the user typed.
    - `hints_name_contest`: hints with this verb get `-C CONTEST`. False for a verb that works on another contest than
      the current one (`new`).

    Programs may call the verb if it has an `effect`, under the name `tool` if that is set. They do not get the
    arguments `not_for_tools`. `other_names` maps an argument to another name under which programs may pass it.
    """

    name: ClassVar[str]
    place: ClassVar[tuple[str, int]]
    line: ClassVar[str]
    example: ClassVar[str]
    description: ClassVar[str]
    examples: ClassVar[str] = ""
    document: ClassVar[Document | None] = None
    effect: ClassVar[Effect | None] = None
    tool: ClassVar[str] = ""
    not_for_tools: ClassVar[frozenset[str]] = frozenset()
    other_names: ClassVar[Mapping[str, str]] = {}
    takes_contest: ClassVar[bool] = True
    hints_name_contest: ClassVar[bool] = True
    is_watched: ClassVar[bool] = False
    shows_texts: ClassVar[bool] = False
    takes_quiet: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__.rpartition(".")[2]
        cls.example = cls.__dict__.get("example", cls.name)

    def run(self, arguments: Namespace) -> Outcome:
        """Does the work of the verb; by default, the function `run` of its module in harness/verbs/parts does it.

        Raises RatchetError.
        """
        work = import_module(f"{self.__module__.rpartition('.')[0]}.parts.{self.name}")
        outcome: Outcome = work.run(arguments)
        return outcome

    def configure(self, parser: Parser) -> None:
        """Adds the verb's own arguments; none by default."""

    def parser(self) -> Parser:
        """The parser of the verb's arguments."""
        parser = Parser(
            prog=f"ratchet.sh {self.name}",
            description=self.description,
            epilog=f"example: {self.examples or f'ratchet.sh {self.example}'}",
            allow_abbrev=False,
        )
        parser.common(takes_contest=self.takes_contest)
        parser.set_defaults(json=False)
        self.configure(parser)
        if self.takes_quiet:
            parser.needless_quiet()
        return parser

    def parse(self, words: Sequence[str]) -> Namespace:
        """The parsed words after the verb. Raises UsageError with the verb's usage."""
        return self.parser().parse_args(words)

    def usage(self, arguments: Namespace) -> str:
        """The usage to show with an error about these arguments."""
        return self.parser().format_usage().strip()

    def parsers(self) -> Iterator[tuple[str, Parser]]:
        """Name and parser of the verb, then name and parser of each subcommand."""
        yield self.name, self.parser()

    def calls(self) -> Iterator[Call]:
        """The calls that programs may make."""
        if self.effect:
            yield Call(tool=self.tool or self.name, words=(), parser=self.parser())

    def meant_by(self, words: Sequence[str]) -> str | None:
        """The command of this verb to suggest for `words`, which do not begin with a verb; None: no suggestion.

        xprof suggests its subcommand with the name that `words` begin with.
        """
        return None
