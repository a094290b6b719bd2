"""The command that the user typed: ratchet.sh by its path, `ratchet` or `kernel-ratchet` of an installed package."""

import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path, PurePath

IN_A_CLONE = "./ratchet.sh"
# How ratchet.sh was called: it says so with Python's option -X, which no process that this one starts inherits.
OPTION = "ratchet"
# The scripts of the package (pyproject.toml).
INSTALLED = ("ratchet", "kernel-ratchet")
# As texts name it: the word alone, not a part of a path.
_NAMED = re.compile(r"(?<![\w/.-])(?:\./)?ratchet\.sh(?![\w/.-])")


def typed() -> str:
    """What began this process, as one would type it again."""
    name = PurePath(sys.argv[0]).name
    if name in INSTALLED:
        return name
    script = sys._xoptions.get(OPTION)
    # Without a folder: `bash ratchet.sh`.
    return shlex.quote(script) if isinstance(script, str) and "/" in script else IN_A_CLONE


# Where commands have to be told of the contest: the pattern of those that take one, and `-C DIR`.
_place: tuple[re.Pattern[str], str] | None = None


def work_in(directory: Path | None, verbs: Iterable[str] = ()) -> None:
    """Says which folder `-C` named, for the commands in errors and hints: they have to work where the user stands.

    `verbs` are those that take a contest.
    """
    global _place
    _place = None
    if directory is not None:
        words = "|".join(map(re.escape, verbs))
        # A usage keeps its form.
        follows = rf' (?:(?:{words})(?![\w-])|"experiment:)'
        pattern = re.compile(rf"(?<!usage: )(?<!example: ){_NAMED.pattern}(?={follows})")
        _place = (pattern, f"-C {shlex.quote(str(directory))}")


def renamed(text: str) -> str:
    """`text` with the command that the user typed wherever it names ratchet.sh, with the `-C` of the user."""
    if _place is not None:
        pattern, option = _place
        text = pattern.sub(lambda found: f"{found[0]} {option}", text)
    name = typed()
    return text if name == IN_A_CLONE else _NAMED.sub(lambda _: name, text)
