"""What the verbs share: the parser, the options of an evaluation, where sentences go, exit codes."""

import argparse
import difflib
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

from harness.cli.program_name import renamed, typed
from harness.errors import RatchetError, UsageError
from harness.hardware import CHIPS
from harness.render.layout import harmless, wants_colour

# What begins a contest.
BASELINE = '"experiment: baseline"'
EXIT_OF_OUTCOME = {"accept": 0, "reject": 1, "failed": 1, "inconclusive": 3}


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        lacking = re.fullmatch(r"argument (-[\w-]+)(?:/\S+)*: expected one argument", message)
        for action in self._actions if lacking else ():
            if lacking and lacking[1] in action.option_strings and action.help:
                words = action.help % {"default": action.default}
                message = f"expected {lacking[1]} {action.metavar or 'VALUE'}, got nothing after it: {words}"
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        meant = did_you_mean(unknown[1], self.known(), "") if unknown else ""
        raise UsageError("usage", f"{message}{'; ' if meant else ''}{meant}\n{self.format_usage().strip()}")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse does it, but a value may begin with a minus and a digit: `--expect -5%`."""
        words: list[str] = []
        valued = self.valued()
        for word in sys.argv[1:] if args is None else args:
            if re.match(r"-\d", word) and words and words[-1].startswith("--") and words[-1] in valued:
                words[-1] += f"={word}"
            else:
                words.append(word)
        return super().parse_known_args(words, namespace)

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(renamed(message or ""), file)

    def known(self) -> list[str]:
        """The names of all its options."""
        return [name for action in self._actions for name in action.option_strings]

    def options(self) -> tuple[argparse.Action, ...]:
        """What it understands, in the order of `--help`, but for `--help` itself and what that does not name."""
        return tuple(
            action
            for action in self._actions
            if not isinstance(action, argparse._HelpAction) and action.help is not argparse.SUPPRESS
        )

    def valued(self) -> tuple[str, ...]:
        """The options that a value follows."""
        return tuple(name for action in self.options() if action.nargs != 0 for name in action.option_strings)


def add_contest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-C", dest="directory", type=Path, default=None, metavar="DIR", help="the contest's folder")


def add_only_reads(parser: argparse.ArgumentParser) -> None:
    """For tools that promise to write nothing: nothing is judged then, and no attempt is finished or undone."""
    parser.add_argument("--only-reads", action="store_true", help=argparse.SUPPRESS)


def add_json(parser: argparse.ArgumentParser, printed: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print {printed}")


def add_member(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--member", default=None, metavar="NAME", help="of a suite, the member that is meant")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def add_needless_quiet(parser: Parser) -> None:
    """`--quiet` where there is no progress to leave out: who writes a script need not know which verbs have any."""
    if "--quiet" not in parser.known():
        parser.add_argument("--quiet", action="store_true", help=argparse.SUPPRESS)


def directory(given: Path | None) -> Path:
    """The contest meant: the one named, else this folder. Raises RatchetError `no-contest` where it does not exist."""
    if given is not None and not given.is_dir():
        raise RatchetError("no-contest", f"expected a contest's folder, got {given}, which does not exist")
    return given or Path.cwd()


def command(words: str, given: Path | None) -> str:
    """`show 3` as a line to copy: `./ratchet.sh -C DIR show 3`, as it was typed, with `-C` only where it was."""
    place = "" if given is None else f"-C {shlex.quote(str(given))} "
    return f"{typed()} {place}{words}"


def at_least(least: int, most: int = sys.maxsize) -> Callable[[str], int]:
    """Reads a whole number from `least` to `most`, for `type=` of an argument."""
    upper = "or more" if most == sys.maxsize else f"to {most}"

    def number(text: str) -> int:
        is_number = text.removeprefix("-").isdecimal() and len(text) <= len(str(most)) + 1
        if not is_number or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number, {least} {upper}, got {text!r}")
        return int(text)

    return number


def minutes(text: str) -> float:
    """Reads a number of minutes above 0, for `type=` of an argument."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number of minutes above 0, got {text!r}")
    return number


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """The hint to a word that is none of `known`: the nearest of them, or what to do where none is near."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean `{near[0]}`?" if near else otherwise


def mesh_sizes(text: str | None) -> dict[str, int]:
    """`data=4,model=2` as sizes by name. Raises UsageError `usage`."""
    found: dict[str, int] = {}
    for part in text.split(",") if text else ():
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().isdecimal() or int(size) < 1:
            raise UsageError("usage", f"expected --mesh as data=4,model=2, got {text!r}")
        found[name.strip()] = int(size)
    return found


def attempt_number(text: str) -> int:
    """`3` or `0003` -> 3, for `type=` of an argument."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected the number of an attempt such as 3, got {text!r}")
    return int(text)


def since(text: str) -> str:
    """Reads the number of an attempt, or a day as 2026-03-31, for `type=` of an argument."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        try:
            return date.fromisoformat(text).isoformat()
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"expected a day such as 2026-03-31, got {text!r}") from error
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(
            f"expected the number of an attempt such as 3, or a day such as 2026-03-31, got {text!r}"
        )
    return str(int(text))


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
    add_json(parser, "the record instead of the report")
    add_quiet(parser)


def say(sentence: str) -> None:
    print(harmless(renamed(f"ratchet: {sentence}")), file=sys.stderr)


def colour() -> bool:
    return wants_colour(sys.stdout)
