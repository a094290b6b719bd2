"""Types of arguments, the contest's folder, commands as the user types them, and sentences on stderr."""

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from harness.errors import RatchetError, UsageError
from harness.render.layout import harmless
from harness.shell.program_name import renamed, typed

# The message of a contest's first attempt.
BASELINE = '"experiment: baseline"'

# A function of a program, `train.py:step`: the file, and its name.
FUNCTION = re.compile(r"(.+\.py):([A-Za-z_]\w*)")


def directory(named: Path | None) -> Path:
    """The named folder, else the current one. Raises RatchetError `no-contest` if the named folder does not exist."""
    if named is not None and not named.is_dir():
        raise RatchetError("no-contest", f"expected a contest's folder, got {named}, which does not exist")
    return named or Path.cwd()


def command(words: str, named: Path | None) -> str:
    """A line to copy, `./ratchet.sh -C DIR show 3` for `show 3`: the command and `-C DIR` as the user typed them."""
    place = "" if named is None else f"-C {shlex.quote(str(named))} "
    return f"{typed()} {place}{words}"


def at_least(least: int, most: int = sys.maxsize) -> Callable[[str], int]:
    """A function that reads a whole number from `least` to `most`, for `type=` of an argument."""
    upper = "or more" if most == sys.maxsize else f"to {most}"

    def number(text: str) -> int:
        is_number = text.removeprefix("-").isdecimal() and len(text) <= len(str(most)) + 1
        if not is_number or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number, {least} {upper}, got {text!r}")
        return int(text)

    return number


def minutes(text: str) -> float:
    """Reads a number of minutes above 0 and below a million, for `type=` of an argument."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number of minutes above 0 and below 1,000,000, got {text!r}")
    return number


def mesh_sizes(text: str | None) -> dict[str, int]:
    """The sizes of mesh axes by name, from text such as `data=4,model=2`; {} for None. Raises UsageError `usage`."""
    sizes: dict[str, int] = {}
    for part in text.split(",") if text else ():
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().isdecimal() or int(size) < 1:
            raise UsageError("usage", f"expected --mesh as data=4,model=2, got {text!r}")
        if name.strip() in sizes:
            raise UsageError("usage", f"expected each axis of --mesh once, got {text!r}")
        sizes[name.strip()] = int(size)
    return sizes


def value_of(words: Sequence[str], option: str) -> tuple[list[str], str | None]:
    """The words without `option VALUE` or `option=VALUE`, and the value, None if absent; for spellings of other tools.

    Raises UsageError `usage` if the option has no value.
    """
    for at, word in enumerate(words):
        name, is_one_word, value = word.partition("=")
        if name == option:
            end = at + 1 if is_one_word else at + 2
            if not is_one_word and end > len(words):
                raise UsageError("usage", f"expected a value after {option}")
            return [*words[:at], *words[end:]], value if is_one_word else words[at + 1]
    return list(words), None


def attempt_number(text: str) -> int:
    """The number in `3` or `0003`, for `type=` of an argument."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected the number of an attempt such as 3, got {text!r}")
    return int(text)


def since(text: str) -> str:
    """Reads the number of an attempt, or a day such as 2026-03-31, for `type=` of an argument."""
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


def say(sentence: str) -> None:
    print(harmless(renamed(f"ratchet: {sentence}")), file=sys.stderr)
