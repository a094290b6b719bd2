"""The chips, one file each. To add a chip, add its file. Loading one chip loads no other chip.

docs/ADD_A_CHIP.md has the source of each figure of a row.
"""

import importlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from harness.chips.row import ChipRow

_FILE = re.compile(r"[a-z]+[0-9]+[a-z]*")


@cache
def names() -> tuple[str, ...]:
    """The names of all chips, TPUs first."""
    stems = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return tuple(sorted((name for name in stems if _FILE.fullmatch(name)), key=lambda name: (name[0] != "v", name)))


@cache
def row(name: str) -> ChipRow:
    """The facts of the chip called `name`. Raises KeyError for a name that is not among `names()`."""
    if name not in names():
        raise KeyError(name)
    chip_row: ChipRow = importlib.import_module(f"{__name__}.{name}").ROW
    return chip_row


def having(has: Callable[[ChipRow], bool]) -> tuple[str, ...]:
    """The names of all chips for which `has(row)` is True, in the order of `names()`."""
    return tuple(name for name in names() if has(row(name)))
