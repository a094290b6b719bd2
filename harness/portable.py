"""What failed, without the folders of the machine where it failed: records are committed and read elsewhere."""

import re
from dataclasses import replace
from pathlib import Path

from harness.records import Failure

# Up to the folder that packages are installed in: what follows says which file of which package.
_LIBRARIES = re.compile(r"(?:/[^\s\"'/]+)+/site-packages/")


def portable(failure: Failure | None, *folders: Path) -> Failure | None:
    """`failure` with the paths of its texts relative to `folders` and to where packages are installed."""
    if failure is None:
        return None
    return replace(failure, message=_relative(failure.message, folders), detail=_relative(failure.detail, folders))


def _relative(text: str, folders: tuple[Path, ...]) -> str:
    text = _LIBRARIES.sub("", text)
    # The longest first: one folder may lie in another.
    for folder in sorted({str(folder) for folder in folders if folder.is_absolute()}, key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    return text
