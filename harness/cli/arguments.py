"""What the verbs share: the parser, the options of an evaluation, where sentences go, exit codes."""

import argparse
import shlex
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import UsageError
from harness.hardware import CHIPS
from harness.render import terminal

# What begins a contest.
BASELINE = '"experiment: baseline"'
EXIT_OF_OUTCOME = {"accept": 0, "reject": 1, "failed": 1, "inconclusive": 3}


class ParserBuilt(BaseException):
    """Stops a verb that was run only to learn what it understands, at the moment when it would parse."""


# How many parsers are still to parse before one is handed out; None: all of them parse.
_left_to_parse: ContextVar[int | None] = ContextVar("_left_to_parse", default=None)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError("usage", f"{message}\n{self.format_usage().strip()}")

    def parse_known_args(self, *words: Any, **named: Any) -> Any:
        left = _left_to_parse.get()
        if left == 0:
            raise ParserBuilt(self)
        if left is not None:
            _left_to_parse.set(left - 1)
        return super().parse_known_args(*words, **named)

    def options(self) -> tuple[argparse.Action, ...]:
        """What it understands, in the order of `--help`, but for `--help` itself."""
        return tuple(action for action in self._actions if not isinstance(action, argparse._HelpAction))

    def valued(self) -> tuple[str, ...]:
        """The options that a value follows."""
        return tuple(name for action in self.options() if action.nargs != 0 for name in action.option_strings)


def parser_of(run: Callable[[list[str]], int], *subcommand: str) -> Parser:
    """What the verb `run`, or its `subcommand`, understands. A verb builds its parser first, so it is run up to there.

    A subcommand's parser is built once the verb's own has parsed the subcommand's name.
    """
    token = _left_to_parse.set(len(subcommand))
    try:
        run(list(subcommand))
    except ParserBuilt as built:
        parser = built.args[0]
        assert isinstance(parser, Parser)
        return parser
    finally:
        _left_to_parse.reset(token)
    raise AssertionError(f"{run.__qualname__} parses no words")


def verb_parser(verb: str, description: str, example: str) -> Parser:
    parser = Parser(
        prog=f"ratchet.sh {verb}", description=description, epilog=f"example: {example}", allow_abbrev=False
    )
    parser.add_argument("-C", dest="directory", type=Path, default=None, metavar="DIR", help="the contest's folder")
    return parser


def directory(given: Path | None) -> Path:
    """The contest meant: the one named, else this folder."""
    return given or Path.cwd()


def command(words: str, given: Path | None) -> str:
    """`show 3` as a command line to copy: `./ratchet.sh -C DIR show 3`, with `-C` only where it was given."""
    place = "" if given is None else f"-C {shlex.quote(str(given))} "
    return f"./ratchet.sh {place}{words}"


def attempt_number(text: str) -> int:
    """`3` or `0003` -> 3, for `type=` of an argument."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected the number of an attempt such as 3, got {text!r}")
    return int(text)


def evaluation_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chip", default=None, help=f"judge for this chip: {', '.join(c.name for c in CHIPS)}")
    parser.add_argument(
        "--on",
        choices=["cpu", "tpu", "gpu", "simulated"],
        default=None,
        help="where the latency comes from; without it the chip if it is here, else (for a TPU) the simulator. "
        "cpu is for development and says nothing about a TPU or GPU",
    )
    parser.add_argument("--deep", action="store_true", help="profile with TRACE_COMPUTE_AND_SYNC (on a device)")
    parser.add_argument("--full", action="store_true", help="print the whole report, not one screen")
    parser.add_argument("--json", action="store_true", help="print the record instead of the report")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def say(sentence: str) -> None:
    print(f"ratchet: {sentence}", file=sys.stderr)


def colour() -> bool:
    return terminal.wants_colour(sys.stdout)
