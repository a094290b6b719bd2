"""Contests below a folder, to name them where the folder itself is none."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

# A contest lies in a folder of the repository, or in one of its examples; a walk of more entries takes too long.
_DEPTH, _MOST_ENTRIES = 2, 5000
_SHOWN = 8


def sentence(folder: Path) -> str:
    """`contests here: attn, mbg`, the folders as `-C` takes them; "" if there is none within two levels.

    `folder` is as the user typed it, relative to the current folder or absolute.
    """
    where = "here" if folder == Path() else "there"
    names = sorted(str(path) for path in _contests(folder))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"contests {where}: {', '.join(names[:_SHOWN])}{more}" if names else ""


def _contests(folder: Path) -> Iterator[Path]:
    for below in itertools.islice(_folders(folder, _DEPTH), _MOST_ENTRIES):
        if all((below / name).is_file() for name in ("prepare.py", "kernel.py")):
            yield below


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    """Folders below, no links and nothing hidden; what cannot be read is left out."""
    try:
        with os.scandir(folder) as entries:
            below = [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for path in sorted(below):
        if not path.name.startswith("."):
            yield path
            if depth > 1:
                yield from _folders(path, depth - 1)
