"""The command that the user typed: ratchet.sh by its path, `ratchet` or `kernel-ratchet` of an installed package."""

import re
import shlex
import sys
from pathlib import PurePath

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


def renamed(text: str) -> str:
    """`text` with the command that the user typed wherever it names ratchet.sh."""
    name = typed()
    return text if name == IN_A_CLONE else _NAMED.sub(lambda _: name, text)
