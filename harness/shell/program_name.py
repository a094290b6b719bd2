"""The command that the user typed: ratchet.sh by its path, `ratchet` or `kernel-ratchet` of an installed package."""

import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path, PurePath

IN_A_CLONE = "./ratchet.sh"
# Python's option -X with which ratchet.sh passes on how it was called. Child processes do not inherit this option.
OPTION = "ratchet"
# The scripts of the package (pyproject.toml).
INSTALLED = ("ratchet", "kernel-ratchet")
# The command's name in texts: the word alone, not a part of a path.
_NAMED = re.compile(r"(?<![\w/.-])(?:\./)?ratchet\.sh(?![\w/.-])")


def typed() -> str:
    """The command that began this process, as one would type it again."""
    name = PurePath(sys.argv[0]).name
    if name in INSTALLED:
        return name
    script = sys._xoptions.get(OPTION)
    # The script has no folder in its name if it was called as `bash ratchet.sh`.
    return shlex.quote(script) if isinstance(script, str) and "/" in script else IN_A_CLONE


# The pattern of commands that need to name the contest, and the `-C DIR` that they get.
_place: tuple[re.Pattern[str], str] | None = None


def work_in(directory: Path | None, verbs: Iterable[str] = ()) -> None:
    """Remembers the folder of `-C`, so that commands in errors and hints work in the current folder.

    `verbs` are the names of the verbs that get `-C` in commands.
    """
    global _place
    _place = None
    if directory is not None:
        words = "|".join(map(re.escape, verbs))
        # Only commands with a verb after the name get -C, not usages and examples.
        follows = rf' (?:(?:{words})(?![\w-])|"experiment:)'
        pattern = re.compile(rf"(?<!usage: )(?<!example: ){_NAMED.pattern}(?={follows})")
        _place = (pattern, f"-C {shlex.quote(str(directory))}")


def renamed(text: str) -> str:
    """`text` with the command that the user typed, `-C` included, in place of each ratchet.sh."""
    if _place is not None:
        pattern, option = _place
        text = pattern.sub(lambda match: f"{match[0]} {option}", text)
    name = typed()
    return text if name == IN_A_CLONE else _NAMED.sub(lambda _: name, text)
